/** Where the page finds what a plan rests on: tables that it carries, files that were dropped on it. */
import { show, UserError } from '../errors.js';
import type { NamedCalibration } from '../plan/ask/measured.js';
import type { Shelf } from '../plan/ask/sources.js';
import { staleKernels } from '../plan/ask/stale.js';
import type { JudgedGroup } from '../plan/ask/tested.js';
import type { KnownFiles } from '../stacks/choose.js';
import type { StackTables } from '../stacks/serving.js';
import type { StackFile } from '../stacks/stack-schema.js';

/** What the page carries beside its program. */
export interface Carried {
  readonly files: KnownFiles;
  readonly judged: readonly JudgedGroup[];
  /** Names of the tables (`tableName`) that are ready to be read, and of those that come packed after the program. */
  readonly ready: readonly string[];
  readonly packed: readonly string[];
}

/** A stack's tables of a device: `h200-vllm`. Those that are ready lie in an element of this name. */
export const tableName = ({ device, stack }: Pick<StackFile, 'device' | 'stack'>): string => `${device}-${stack}`;
/** The element that holds the other tables: JSON, gzip, base64. A browser reads millions of characters slowly. */
export const PACKED = 'tables';

/**
 * @param held the calibration that was dropped on the page; null where there is none
 * @param textOf the text of an element of the page
 * @param whole when all elements of the page are there: packed tables come after the program
 */
export function shelfOf(
  { ready, packed, files, judged }: Carried,
  held: () => NamedCalibration | null,
  textOf: (id: string) => string,
  whole: () => Promise<void>,
): Shelf {
  const names = new Set([...ready, ...packed]);
  const read = new Map<string, StackTables>();
  let unpacking: Promise<void> | null = null;
  const keep = (tables: StackTables): void => void read.set(tableName(tables.file), tables);
  async function unpack(): Promise<void> {
    await whole();
    for (const tables of await inflated<StackTables[]>(textOf(PACKED))) keep(tables);
  }
  const isPacked = (device: string): boolean => packed.some((name) => name.startsWith(`${device}-`));
  const open = (device: string): Promise<void> => (isPacked(device) ? (unpacking ??= unpack()) : Promise.resolve());
  const bundled = (device: string, stack: string): StackTables | null => {
    const name = tableName({ device, stack });
    if (ready.includes(name) && !read.has(name)) keep(JSON.parse(textOf(name)) as StackTables);
    return read.get(name) ?? null;
  };
  const noFile = (what: string, cure: string) => (path: string) =>
    Promise.reject(new UserError(`this page has no ${what} ${show(path)}`, cure));
  return {
    model: noFile('model', 'choose one by name, or drop its config.json here'),
    fidelity: noFile('file', 'ask on the command line: lla-sim plan --fidelity FILE'),
    calibration: (path) => {
      const own = held();
      if (own?.file === path) return Promise.resolve(own);
      return Promise.reject(new UserError(`this page has no calibration ${show(path)}`, 'drop the file here'));
    },
    calibrationOf: () => Promise.resolve(null),
    async stale(calibration) {
      // Texts of kernels come after the program, too.
      await whole();
      return staleKernels(calibration);
    },
    stackFile: noFile('stack file', 'ask on the command line: lla-sim plan --stack FILE'),
    has: (device, stack) => names.has(tableName({ device, stack })),
    async tables(device, stack) {
      if (bundled(device, stack) === null) await open(device);
      return bundled(device, stack);
    },
    open,
    bundled,
    files: () => files,
    judged: () => judged,
  };
}

/** JSON of gzip of base64. */
async function inflated<T>(text: string): Promise<T> {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return (await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json()) as T;
}
