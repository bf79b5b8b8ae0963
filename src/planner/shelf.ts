/** Where the page finds what a plan rests on: tables that it carries, files that were dropped on it. */
import { show, UserError } from '../errors.js';
import type { NamedCalibration } from '../plan/measured.js';
import type { Shelf } from '../plan/sources.js';
import type { JudgedGroup } from '../plan/tested.js';
import type { KnownFiles } from '../stacks/choose.js';
import type { StackTables } from '../stacks/serving.js';

/** What the page carries beside its program. */
export interface Carried {
  readonly files: KnownFiles;
  readonly judged: readonly JudgedGroup[];
  /** Names of the tables, each of which is an element of the page (`tableId`). */
  readonly tables: readonly string[];
}

/** The element that holds a stack's tables of a device: `p-h200-vllm`. */
export const tableId = (device: string, stack: string): string => `p-${device}-${stack}`;

/**
 * @param held the calibration that was dropped on the page; null where there is none
 * @param textOf the text of an element of the page
 * @param whole when all elements of the page are there: tables come after the program
 */
export function shelfOf(
  { tables, files, judged }: Carried,
  held: () => NamedCalibration | null,
  textOf: (id: string) => string | null,
  whole: () => Promise<void>,
): Shelf {
  const names = new Set(tables);
  const read = new Map<string, StackTables>();
  const has = (device: string, stack: string): boolean => names.has(tableId(device, stack));
  const bundled = (device: string, stack: string): StackTables | null => {
    const id = tableId(device, stack);
    const text = names.has(id) && !read.has(id) ? textOf(id) : null;
    if (text !== null) read.set(id, JSON.parse(text) as StackTables);
    return read.get(id) ?? null;
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
    stale: async (calibration) => (await import('../plan/stale.js')).staleKernels(calibration),
    stackFile: noFile('stack file', 'ask on the command line: lla-sim plan --stack FILE'),
    has,
    async tables(device, stack) {
      if (has(device, stack) && bundled(device, stack) === null) await whole();
      return bundled(device, stack);
    },
    bundled,
    files: () => files,
    judged: () => judged,
  };
}
