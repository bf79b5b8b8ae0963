/**
 * Resolves the WGSL of kernels/, which the package ships beside dist/ (files.ts reads it). A file is known by its name
 * alone, which no two folders share. Four directives exist, each on a line of its own:
 *
 *   #include "name.wgsl"   the text of another file, once
 *   #element               the element type of weights: element_f16.wgsl or element_f32.wgsl
 *   #storage               how cached rows are read: storage_f16.wgsl, storage_q4.wgsl, ...
 *   #pairs                 how two components of such a row are read alone: pairs_f16.wgsl, pairs_q4.wgsl, ...
 *
 * Everything else is plain WGSL; numbers are `override` constants or uniforms. Unresolved directives are refused.
 */
import { sha256 } from '../src/numbers/sha256.js';
import { hasKernelFile, readKernelFile } from './files.js';
import { KERNELS, type KernelName } from './registry.js';
import { STORAGES, type Storage } from './spec.js';

/** Storage of the streamed operand. Weights are f16 or f32, cached rows any storage. */
export type Element = Storage;

/** The text of a WGSL file, by its name. */
type ReadSource = (file: string) => string;

const cache = new Map<string, string>();

/** The complete source of the file `<name>.wgsl`. `read` is replaced in tests. */
export function loadSource(name: string, element: Element, read: ReadSource = readKernelFile): string {
  const key = `${name}:${element}`;
  const known = read === readKernelFile ? cache.get(key) : undefined;
  if (known !== undefined) return known;
  const included = new Set<string>();
  const source = resolve(`${name}.wgsl`, element, read, included, []);
  const unresolved = /^.*(?:^\s*#|\$\{|\{\{|<%).*$/m.exec(source);
  if (unresolved) throw new Error(`${name}.wgsl: unresolved directive: ${unresolved[0].trim()}`);
  if (read === readKernelFile) cache.set(key, source);
  return source;
}

/**
 * The kernel sources of one version of the program. `id` names the version: it enters the key of every compiled
 * pipeline.
 */
export interface SourceSet {
  readonly id: string;
  /** The complete source of a kernel file (without .wgsl); throws where it does not exist or does not resolve. */
  load(name: string, element: Element): string;
}

/** The kernels that this program runs. */
export const OWN_SOURCES: SourceSet = { id: 'own', load: (name, element) => loadSource(name, element) };

/** Sources of another version, read by `read` and kept. */
export function sourcesFrom(id: string, read: ReadSource): SourceSet {
  const known = new Map<string, string>();
  return {
    id,
    load: (name, element) => {
      const key = `${name}:${element}`;
      const source = known.get(key) ?? loadSource(name, element, read);
      known.set(key, source);
      return source;
    },
  };
}

function resolve(file: string, element: Element, read: ReadSource, included: Set<string>, chain: string[]): string {
  if (chain.includes(file)) throw new Error(`${file}: include cycle ${[...chain, file].join(' -> ')}`);
  if (included.has(file)) return '';
  included.add(file);
  return read(file)
    .split('\n')
    .map((line) => {
      if (line.trim() === '#element')
        return resolve(`element_${element}.wgsl`, element, read, included, [...chain, file]);
      if (line.trim() === '#pairs') return resolve(`pairs_${element}.wgsl`, element, read, included, [...chain, file]);
      if (line.trim() === '#storage')
        return resolve(`storage_${element}.wgsl`, element, read, included, [...chain, file]);
      const include = /^\s*#include "([a-z0-9_]+\.wgsl)"\s*$/.exec(line);
      return include ? resolve(include[1] as string, element, read, included, [...chain, file]) : line;
    })
    .join('\n');
}

/**
 * The code of a WGSL text: comments are stripped, and white space stays only where it separates two words or two
 * operators. Texts of the same code compile to the same program.
 */
export function codeOf(source: string): string {
  // A line comment may contain the start of a block comment and the other way round: whichever begins first counts.
  let code = '';
  for (let at = 0, depth = 0; at < source.length;) {
    const two = source.slice(at, at + 2);
    if (depth === 0 && two === '//') {
      const end = source.indexOf('\n', at);
      at = end < 0 ? source.length : end;
    } else if (two === '/*') {
      depth++;
      at += 2;
    } else if (depth > 0) {
      if (two === '*/' && --depth === 0) code += ' ';
      at += two === '*/' ? 2 : 1;
    } else code += source[at++] as string;
  }
  return code
    .trim()
    .replace(/\s+/g, ' ')
    .replace(/(.) (?=(.))/g, (_, before: string, after: string) =>
      [/\w/, /[-+*/%&|^!~<>=]/].some((kind) => kind.test(before) && kind.test(after)) ? `${before} ` : before,
    );
}

/** SHA-256 over the code of resolved sources, in the order given: comments and line breaks do not count. */
export const hashSources = (sources: readonly { name: string; element: Element }[], of = OWN_SOURCES): string =>
  sha256(sources.map(({ name, element }) => `${codeOf(of.load(name, element))}\0`).join(''));

/** The element types that a source is compiled for: all storages where it reads cached rows. */
function elementsOf(name: string, of: SourceSet): readonly Element[] {
  const f16 = of.load(name, 'f16');
  return f16 === of.load(name, 'f32') ? ['f16'] : f16.includes('alias Unit') ? STORAGES : ['f16', 'f32'];
}

/**
 * SHA-256 over everything that a kernel's timing depends on: the code of all its sources in every element type,
 * resolved, and its launch. Empty for a kernel without sources: nothing can have been measured of it.
 */
export function kernelHash(kernel: KernelName, of = OWN_SOURCES): string {
  const { sources: names = [kernel], launchVersion: launch } = KERNELS[kernel];
  if (!names.every((name) => hasKernelFile(`${name}.wgsl`))) return '';
  const sources = hashSources(
    names.flatMap((name) => elementsOf(name, of).map((element) => ({ name, element }))),
    of,
  );
  return launch === undefined ? sources : sha256(`${sources} launch ${launch}`);
}
