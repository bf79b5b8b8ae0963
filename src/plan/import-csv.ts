/** Kernel times measured elsewhere (CUDA, Triton, ROCm): a CSV file becomes predictors like a calibration's. */
import { parse } from 'csv-parse/sync';
import { fitPredictor } from '../cost/fit.js';
import { predictorKey } from '../cost/pricers.js';
import { UserError, show } from '../errors.js';
import { KERNELS, KERNEL_NAMES, workOf, type KernelName } from '../kernels/registry.js';
import type { Shape } from '../kernels/spec.js';
import type { Sample } from '../schema/calibration.js';
import { parseNumber } from '../units.js';
import { displayPath, readTextFile } from '../files.js';
import type { ImportedTimes } from './answer.js';

const MAX_FILE_BYTES = 16 * 2 ** 20;
const MAX_ROWS = 20_000;
const MAX_ROW_CHARACTERS = 10_000;
/** Points a predictor is fitted to; a longer table would make planning wait. */
const MAX_POINTS = 120;
/** Longest kernel time and largest size that a row may state. */
const MAX_SECONDS = 1e3;
const MAX_SIZE = 2 ** 40;
/** Fields that a schedule leaves at 0: no rotary branch, no group scales, no current key. */
const MAY_BE_ZERO: readonly string[] = ['branchWidth', 'branchHeads', 'groupSize', 'keyWidth'];

/**
 * Reads columns `kernel`, `variant` (optional where the kernel has one), the kernel's shape fields and `seconds`.
 * Repeated shapes are repetitions of one measurement.
 * @throws UserError naming the row and the field
 */
export function readKernelTimes(path: string): ImportedTimes {
  const rows = readRows(path);
  const groups = new Map<string, { kernel: KernelName; variant: string; samples: Map<string, Sample> }>();
  rows.forEach((row, index) => {
    const at = `${displayPath(path)}, row ${index + 2}`;
    const kernel = row['kernel'] as KernelName;
    if (!KERNEL_NAMES.includes(kernel))
      throw new UserError(
        `${at}: kernel must be one of ${KERNEL_NAMES.join(', ')}, not ${show(row['kernel'] ?? '')}`,
        'correct the kernel column',
      );
    const spec = KERNELS[kernel];
    const variant = row['variant'] || (spec.variants[0] as string);
    if (!spec.variants.includes(variant))
      throw new UserError(
        `${at}: ${kernel} has the variants ${spec.variants.join(', ')}, not ${show(variant)}`,
        'correct the variant column',
      );
    const shape: Record<string, number> = {};
    for (const dim of spec.dims) {
      if (row[dim] === undefined)
        throw new UserError(
          `${at}: the column ${dim} is missing`,
          `${kernel} takes the columns ${spec.dims.join(', ')}`,
        );
      shape[dim] = readNumber(row[dim], `${at}: ${dim}`, {
        min: MAY_BE_ZERO.includes(dim) ? 0 : 1,
        max: MAX_SIZE,
        whole: dim !== 'group',
      });
    }
    const seconds = readNumber(row['seconds'] ?? '', `${at}: seconds`, { min: 1e-12, max: MAX_SECONDS });
    addSample(groups, kernel, variant, shape, seconds);
  });
  const kernels = [...groups.values()].map(({ kernel, variant, samples: byShape }) => {
    const samples = [...byShape.values()];
    if (samples.length > MAX_POINTS)
      throw new UserError(
        `${displayPath(path)}: ${samples.length} shapes of ${kernel} ${variant}, more than ${MAX_POINTS}`,
        'leave out shapes that lie close together',
      );
    return { kernel, variant, samples, fitted: fitPredictor(kernel, variant, samples) };
  });
  return { kernels, source: `imported ${displayPath(path)}` };
}

function readRows(path: string): Record<string, string>[] {
  const text = readTextFile(path, 'kernel times', MAX_FILE_BYTES);
  checkLines(text, `kernel times ${show(path)}`);
  let rows: Record<string, string>[];
  try {
    rows = parse<Record<string, string>>(text, {
      columns: (names: string[]) => columnsOf(names, `kernel times ${show(path)}`),
      skip_empty_lines: true,
      trim: true,
      bom: true,
      to: MAX_ROWS + 1,
      max_record_size: MAX_ROW_CHARACTERS,
    });
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(
      `kernel times ${show(path)} is not CSV: ${
        String((error as Error).message)
          .slice(0, 300)
          .split('\n')[0]
      }`,
      'write a header line and one row a measurement',
    );
  }
  if (rows.length === 0)
    throw new UserError(`kernel times ${show(path)} holds no rows`, 'write a header line and one row a measurement');
  if (rows.length > MAX_ROWS)
    throw new UserError(`kernel times ${show(path)} holds more than ${MAX_ROWS} rows`, 'leave repetitions out');
  for (const column of ['kernel', 'seconds']) {
    if (!(column in (rows[0] as object)))
      throw new UserError(
        `kernel times ${show(path)} lacks the column ${column}`,
        'name the columns kernel, variant, the shape fields and seconds',
      );
  }
  return rows;
}

/** The parser takes a minute for a line of millions of cells. */
function checkLines(text: string, subject: string): void {
  for (let i = 0, start = 0; i < text.length; i++) {
    if (text[i] === '\n' || text[i] === '\r') start = i + 1;
    else if (i - start >= MAX_ROW_CHARACTERS)
      throw new UserError(
        `${subject} has a line of more than ${MAX_ROW_CHARACTERS} characters`,
        'write one row a line',
      );
  }
}

/** The header's names. Of two columns with one name, nobody could say which is meant. */
function columnsOf(names: string[], subject: string): string[] {
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined)
    throw new UserError(`${subject} has the column ${show(twice)} twice`, 'leave one of them out');
  return names;
}

/** Decimal numbers only: a hexadecimal size is likelier a mistake. */
function readNumber(text: string, subject: string, rule: { min: number; max: number; whole?: boolean }): number {
  return parseNumber(/^[0-9.eE+-]+$/.test(text) ? text : NaN, subject, rule, text);
}

function addSample(
  groups: Map<string, { kernel: KernelName; variant: string; samples: Map<string, Sample> }>,
  kernel: KernelName,
  variant: string,
  shape: Shape,
  seconds: number,
): void {
  const key = predictorKey(kernel, variant);
  const group = groups.get(key) ?? { kernel, variant, samples: new Map<string, Sample>() };
  groups.set(key, group);
  const shapeKey = JSON.stringify(shape);
  const known = group.samples.get(shapeKey);
  if (known) {
    known.seconds.push(seconds);
    return;
  }
  const work = workOf({ kernel, variant, shape });
  group.samples.set(shapeKey, {
    variant,
    shape: { ...shape },
    tuning: {},
    readBytes: work.readBytes,
    writeBytes: work.writeBytes,
    flops: work.flops,
    seconds: [seconds],
    relativeError: 0,
  });
}
