/** What `--against` names: a folder of kernels, or a git revision of this program's kernels. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { UserError, printable, show } from '../../errors.js';
import { displayPath, readTextFile } from '../../io/files.js';
import { PACKAGE_ROOT } from '../../io/root.js';
import { filesByName } from '../../../kernels/names.js';
import type { KernelName } from '../../../kernels/registry.js';
import { codeOf, kernelHash, sourcesFrom, type SourceSet } from '../../../kernels/source.js';
import type { Step } from '../../gpu/index.js';
import { packUniforms } from '../../gpu/uniforms.js';

export interface Against {
  readonly kind: 'folder' | 'git';
  readonly name: string;
  readonly sources: SourceSet;
}

/** A kernel file is a few kilobytes. */
const MAX_SOURCE_BYTES = 2 ** 20;
const GIT_TIMEOUT_MS = 20_000;
/**
 * A path that exists is taken as that path; anything else is a git revision.
 * @param root where git looks for other versions of this program's kernels
 * @throws UserError for what is neither
 */
export function resolveAgainst(name: string, root: string = PACKAGE_ROOT): Against {
  const neither = `--against must be a git revision or a folder, not ${show(name)}`;
  if (name.startsWith('-')) throw new UserError(neither, 'name a folder that begins with - as ./-name');
  if (name.includes('\0') || name.length > 1000) throw new UserError(neither, 'check the name');
  if (!existsSync(name)) return revision(name, root);
  if (statSync(name).isDirectory()) return folder(name);
  throw new UserError(
    `--against ${show(name)} is a file, but versions of kernels lie in a folder or a git revision`,
    'name a folder of kernels or a revision, such as HEAD~1',
  );
}

/** Where kernels lie in a checkout: in kernels/, in src/kernels/ of some older versions, or right there. */
const KERNEL_PLACES = ['kernels', 'src/kernels', '.'];

/** Paths of a folder's files, those of its folders included. */
function filesIn(path: string): string[] {
  if (!existsSync(path) || !statSync(path).isDirectory()) return [];
  return readdirSync(path, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? readdirSync(join(path, entry.name)).map((file) => join(entry.name, file)) : [entry.name],
  );
}

function folder(name: string): Against {
  for (const path of KERNEL_PLACES.map((place) => join(name, place))) {
    const files = filesByName(filesIn(path));
    if (files.size === 0) continue;
    const sources = sourcesFrom(`folder ${resolve(path)}`, (file) =>
      readTextFile(join(path, files.get(file) ?? file), 'kernel', MAX_SOURCE_BYTES),
    );
    return { kind: 'folder', name: displayPath(path), sources };
  }
  throw new UserError(
    `--against ${show(name)} holds no kernels (*.wgsl), nor does its folder kernels`,
    'name a folder of kernels, or a checkout of lla-sim',
  );
}

function revision(name: string, root: string): Against {
  const commit = git(root, ['rev-parse', '--verify', '--quiet', '--end-of-options', `${name}^{commit}`]);
  if (typeof commit !== 'string') {
    throw commit.missing
      ? new UserError(
          `--against ${show(name)} is no file or folder, and git is not installed`,
          'name a folder of kernels',
        )
      : new UserError(
          `--against ${show(name)} is no file, no folder and no git revision of ` +
            `${displayPath(root) || 'this checkout'}${commit.reason}`,
          'name one, such as HEAD~1 or ../other/kernels',
        );
  }
  const sha = commit.trim();
  // ./ makes the path relative to the package, wherever that lies in its repository.
  const listed = git(root, ['ls-tree', '-r', '--name-only', sha, './src/kernels/', './kernels/']);
  const files = filesByName(typeof listed === 'string' ? listed.split('\n') : []);
  if (files.size === 0)
    throw new UserError(`--against ${show(name)} has no kernels (*.wgsl)`, 'name a revision of lla-sim');
  const read = (file: string): string => {
    const path = files.get(file);
    const text = path === undefined ? null : git(root, ['show', `${sha}:./${path}`]);
    if (typeof text !== 'string')
      throw new UserError(`kernel ${show(file)} does not exist at ${show(name)}`, 'compare another kernel');
    return text;
  };
  return { kind: 'git', name: `${printable(name)} (${sha.slice(0, 10)})`, sources: sourcesFrom(`git ${sha}`, read) };
}

/** Output of git, run without a shell, or why there is none. */
function git(root: string, args: readonly string[]): string | { readonly missing: boolean; readonly reason: string } {
  try {
    return execFileSync('git', ['-C', root, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: GIT_TIMEOUT_MS,
      maxBuffer: 16 * MAX_SOURCE_BYTES,
    });
  } catch (error) {
    const { code, stderr } = error as { code?: string; stderr?: string };
    const reason = (stderr ?? '').trim().split('\n')[0] ?? '';
    return { missing: code === 'ENOENT', reason: reason === '' ? '' : ` (${reason.slice(0, 160)})` };
  }
}

/** How the sources of a call's steps relate between this program and another version. */
export type SourceRelation =
  | { readonly kind: 'identical' | 'changed' }
  | { readonly kind: 'unreadable'; readonly version: 'before' | 'now'; readonly reason: string };

/** Whether a calibration, which knows kernels by their hash, would take one version's times for the other's. */
export function sameHash(kernel: KernelName, before: SourceSet, now: SourceSet): boolean {
  try {
    return kernelHash(kernel, before) === kernelHash(kernel, now);
  } catch {
    // One version lacks a source: it has another hash, or none.
    return false;
  }
}

/** Compares the code of every step's resolved source. */
export function relate(steps: readonly Step[], before: SourceSet, now: SourceSet): SourceRelation {
  let changed = false;
  for (const { source, element, uniforms } of steps) {
    let version: 'before' | 'now' = 'now';
    try {
      const own = codeOf(now.load(source, element));
      version = 'before';
      const old = before.load(source, element);
      if (codeOf(old) === own) continue;
      changed = true;
      // This program's launch runs the other version: its uniforms have to be the same.
      packUniforms(old, uniforms);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return { kind: 'unreadable', version, reason: printable(error.message) };
    }
  }
  return { kind: changed ? 'changed' : 'identical' };
}
