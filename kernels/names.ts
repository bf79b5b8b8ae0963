/** WGSL files are known by their name alone. */

/**
 * Paths by file name of the WGSL among `paths`.
 * @throws Error where two folders hold a file of the same name
 */
export function filesByName(paths: readonly string[]): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  for (const path of paths.filter((p) => p.endsWith('.wgsl'))) {
    const name = path.slice(Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\')) + 1);
    const other = files.get(name);
    if (other !== undefined) throw new Error(`${name} lies in two folders of kernels: ${other} and ${path}`);
    files.set(name, path);
  }
  return files;
}
