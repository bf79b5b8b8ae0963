/** Formats of published traces: what a line says of a request. Times in seconds, of any origin. */
import { parse as parseCsv } from 'csv-parse/sync';
import { show } from '../../errors.js';
import { isObject } from '../../io/json.js';
import { emptyDraft, type Draft } from '../scheduler/requests.js';

/** Most tokens of a prompt or an answer that a line may state. */
const MAX_TOKENS = 2 ** 30;

export interface TraceFormat {
  readonly name: string;
  /** Tokens that a hash id stands for; null where requests have none. */
  readonly hashTokens: number | null;
  /** Writes a line's request. @returns what is wrong with it, or null */
  read(line: string, draft: Draft): string | null;
}

interface Columns {
  readonly name: string;
  readonly time: string;
  readonly prompt: string;
  readonly output: string;
  readonly seconds: (text: string) => number;
}

/** `2023-11-16 18:15:46.6805900`, with or without a zone, which must be UTC. */
function timestampSeconds(text: string): number {
  const m = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?:Z|\+00:?00)?$/.exec(text);
  if (!m) return NaN;
  const [year, month, day, hour, minute] = m.slice(1, 6).map(Number) as [number, number, number, number, number];
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59) return NaN;
  return Date.UTC(year, month - 1, day, hour, minute) / 1e3 + Number(m[6]);
}

const numberOf = (text: string): number => (/^-?[0-9.]+(?:[eE][+-]?[0-9]{1,3})?$/.test(text) ? Number(text) : NaN);

const CSV_FORMATS: readonly Columns[] = [
  { name: 'Azure', time: 'TIMESTAMP', prompt: 'ContextTokens', output: 'GeneratedTokens', seconds: timestampSeconds },
  { name: 'Vidur', time: 'arrived_at', prompt: 'num_prefill_tokens', output: 'num_decode_tokens', seconds: numberOf },
  { name: 'BurstGPT', time: 'Timestamp', prompt: 'Request tokens', output: 'Response tokens', seconds: numberOf },
];

const JSON_FORMATS: readonly (Omit<Columns, 'seconds'> & { hashTokens: number | null; scale: number })[] = [
  {
    name: 'Mooncake',
    time: 'timestamp',
    prompt: 'input_length',
    output: 'output_length',
    hashTokens: 512,
    scale: 1e-3,
  },
  { name: 'vLLM', time: 'arrival_time', prompt: 'input_toks', output: 'output_toks', hashTokens: null, scale: 1 },
  {
    name: 'LLMServingSim',
    time: 'arrival_time_ns',
    prompt: 'input_toks',
    output: 'output_toks',
    hashTokens: null,
    scale: 1e-9,
  },
];

/** What every trace must have, in words. */
export const KNOWN_COLUMNS = [...CSV_FORMATS, ...JSON_FORMATS]
  .map((f) => `${f.name}: ${f.time}, ${f.prompt}, ${f.output}`)
  .join('; ');

const cellsOf = (line: string): string[] => {
  if (!line.includes('"')) return line.split(',');
  const rows = parseCsv(line, { relax_column_count: true });
  return (rows as string[][])[0] ?? [];
};

/**
 * Recognises a trace by its first line: a header, or a request in JSON.
 * @returns the format, whether the first line is a request; or what is missing
 */
export function formatOf(first: string): { format: TraceFormat; header: boolean } | { problem: string } {
  if (first.startsWith('{')) {
    const fields = parseObject(first);
    if (typeof fields === 'string') return { problem: fields };
    const found = best(JSON_FORMATS, (name) => Object.hasOwn(fields, name));
    if (found.missing.length > 0) return { problem: `lacks ${found.missing.join(', ')}` };
    return { format: jsonFormat(found.format), header: false };
  }
  let names: string[];
  try {
    names = cellsOf(first.replace(/^\ufeff/, '')).map((name) => name.trim());
  } catch {
    return { problem: 'is neither CSV nor JSON' };
  }
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) return { problem: `has the column ${twice.slice(0, 40)} twice` };
  const found = best(CSV_FORMATS, (name) => names.includes(name));
  if (found.missing.length > 0) return { problem: `lacks the column ${found.missing.join(', ')}` };
  return { format: csvFormat(found.format, names), header: true };
}

/** The format with the fewest missing columns. */
function best<T extends Omit<Columns, 'seconds'>>(
  formats: readonly T[],
  has: (name: string) => boolean,
): { format: T; missing: string[] } {
  return formats
    .map((format) => ({ format, missing: [format.time, format.prompt, format.output].filter((name) => !has(name)) }))
    .reduce((a, b) => (b.missing.length < a.missing.length ? b : a));
}

function csvFormat({ name, time, prompt, output, seconds }: Columns, names: readonly string[]): TraceFormat {
  const [t, p, o] = [time, prompt, output].map((column) => names.indexOf(column)) as [number, number, number];
  return {
    name,
    hashTokens: null,
    read: (line, draft) => {
      let cells: string[];
      try {
        cells = cellsOf(line);
      } catch {
        return 'is not CSV';
      }
      if (cells.length !== names.length) return `has ${cells.length} cells, not ${names.length}`;
      const [at, asked, made] = [cells[t]!.trim(), cells[p]!.trim(), cells[o]!.trim()] as const;
      return write(draft, { time: seconds(at), prompt: numberOf(asked), output: numberOf(made) }, [
        [time, at],
        [prompt, asked],
        [output, made],
      ]);
    },
  };
}

function jsonFormat(f: (typeof JSON_FORMATS)[number]): TraceFormat {
  return {
    name: f.name,
    hashTokens: f.hashTokens,
    read: (line, draft) => {
      const fields = parseObject(line);
      if (typeof fields === 'string') return fields;
      const number = (name: string): number => (typeof fields[name] === 'number' ? fields[name] : NaN);
      const read = { time: number(f.time) * f.scale, prompt: number(f.prompt), output: number(f.output) };
      const of = (name: string): [string, unknown] => [name, fields[name]];
      const problem = write(draft, read, [of(f.time), of(f.prompt), of(f.output)]);
      if (problem !== null || f.hashTokens === null) return problem;
      const hashes = fields['hash_ids'];
      if (hashes === undefined) return null;
      if (!Array.isArray(hashes) || !hashes.every((id) => Number.isSafeInteger(id) && (id as number) >= 0))
        return 'has hash_ids that are no list of whole numbers';
      draft.hashes = hashes as number[];
      return null;
    },
  };
}

function parseObject(line: string): Record<string, unknown> | string {
  try {
    const value: unknown = JSON.parse(line);
    return isObject(value) ? value : 'is no JSON object';
  } catch {
    return 'is not JSON';
  }
}

type Cell = readonly [name: string, text: unknown];

/** @param cells of time, prompt and output, as the line has them */
function write(
  draft: Draft,
  { time, prompt, output }: { readonly time: number; readonly prompt: number; readonly output: number },
  [timeCell, ...tokenCells]: readonly [Cell, Cell, Cell],
): string | null {
  if (!Number.isFinite(time)) return `has no time in ${timeCell[0]}, but ${show(timeCell[1])}`;
  for (const [i, value] of [prompt, output].entries())
    if (!Number.isInteger(value) || value < 1 || value > MAX_TOKENS) {
      const [name, text] = tokenCells[i] as Cell;
      return `${name} must be a whole number from 1 to ${MAX_TOKENS}, not ${show(text)}`;
    }
  Object.assign(draft, emptyDraft(), { time, promptTokens: prompt, outputTokens: output });
  return null;
}
