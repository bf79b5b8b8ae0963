/** A trace as a source of requests: read line by line, from the first arrival on. */
import { isUtf8 } from 'node:buffer';
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { UserError, show } from '../../errors.js';
import { displayPath } from '../../io/files.js';
import type { Source } from '../engine.js';
import { emptyDraft, type Draft } from '../scheduler/requests.js';
import type { Observed } from './workload.js';
import { formatOf, KNOWN_COLUMNS, type TraceFormat } from './trace-formats.js';

/** Bytes read at once. */
const PIECE_BYTES = 2 ** 18;
/** The longest line: a Mooncake request of a million tokens has 2,000 hash ids of some 8 bytes. */
const MAX_LINE_BYTES = 2 ** 20;

/** A line end is one byte that no other character contains. */
const linesOf = (bytes: Buffer): Buffer[] =>
  bytes
    .toString('latin1')
    .split('\n')
    .map((line) => Buffer.from(line, 'latin1'));

/** Lines of a text file, one after the other, in bounded memory. */
class LineReader {
  /** Number of the line that was read last, from 1. */
  line = 0;
  private readonly descriptor: number;
  private readonly piece = Buffer.allocUnsafe(PIECE_BYTES);
  private rest: Buffer = Buffer.alloc(0);
  private pending: string[] = [];
  private at = 0;
  private ended = false;
  private readonly decoder = new TextDecoder('utf-8', { fatal: true });
  readonly subject: string;

  /** @throws UserError where there is no such file, or it is a folder */
  constructor(path: string) {
    this.subject = `trace ${show(displayPath(path))}`;
    try {
      if (!statSync(path).isFile())
        throw new UserError(`${this.subject} is no regular file`, 'name a CSV or JSONL file');
      this.descriptor = openSync(path, 'r');
    } catch (error) {
      if (error instanceof UserError) throw error;
      const code = (error as NodeJS.ErrnoException).code;
      throw new UserError(
        `${this.subject} ${code === 'ENOENT' ? 'does not exist' : `cannot be read (${String(code)})`}`,
        'check the path',
      );
    }
  }

  /** The next line that is not empty, without its end; null after the last. @throws UserError naming the line */
  next(): string | null {
    for (;;) {
      while (this.at < this.pending.length) {
        const line = this.pending[this.at++]!;
        this.line++;
        if (line !== '' && line !== '\r') return line.endsWith('\r') ? line.slice(0, -1) : line;
      }
      if (this.ended) return null;
      this.read();
    }
  }

  close(): void {
    if (!this.ended) closeSync(this.descriptor);
    this.ended = true;
  }

  private read(): void {
    const count = readSync(this.descriptor, this.piece, 0, PIECE_BYTES, null);
    const bytes = Buffer.concat([this.rest, this.piece.subarray(0, count)]);
    const end = count === 0 ? bytes.length : bytes.lastIndexOf(10) + 1;
    if (bytes.length - end > MAX_LINE_BYTES)
      throw new UserError(
        `${this.subject} line ${this.line + linesOf(bytes.subarray(0, end)).length} is longer than ` +
          `${MAX_LINE_BYTES} bytes`,
        'check that it is a trace with a request a line',
      );
    this.pending = this.decode(bytes.subarray(0, end)).split('\n');
    // What follows the last line end is no line.
    if (count > 0 || this.pending.at(-1) === '') this.pending.pop();
    this.at = 0;
    this.rest = Buffer.from(bytes.subarray(end));
    if (count === 0) this.close();
  }

  private decode(bytes: Buffer): string {
    try {
      return this.decoder.decode(bytes);
    } catch {
      const wrong = linesOf(bytes).findIndex((line) => !isUtf8(line));
      throw new UserError(`${this.subject} line ${this.line + wrong + 1} is not UTF-8`, 'save it as UTF-8');
    }
  }
}

export interface TraceOptions {
  readonly path: string;
  /** Only the first requests; Infinity: all. */
  readonly limit: number;
  /** Lines that are wrong are left out and counted, instead of ending the run. */
  readonly skipBad: boolean;
}

/** What a first reading of a trace tells. */
export interface TraceSummary {
  readonly format: string;
  readonly hashTokens: number | null;
  readonly requests: number;
  readonly skipped: number;
  /** First to last arrival. */
  readonly seconds: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Longest prompt with its answer. */
  readonly longest: number;
}

/** Reads a trace's requests, times from the first arrival on. */
class TraceReader {
  skipped = 0;
  readonly format: TraceFormat;
  private readonly lines: LineReader;
  private first: string | null;
  private origin = NaN;
  private last = -Infinity;
  private read = 0;

  constructor(private readonly o: TraceOptions) {
    this.lines = new LineReader(o.path);
    const first = this.lines.next();
    if (first === null) throw new UserError(`${this.lines.subject} is empty`, 'name a trace with requests');
    const found = formatOf(first);
    if ('problem' in found) throw this.wrongLine(found.problem, `known traces: ${KNOWN_COLUMNS}`);
    this.format = found.format;
    this.first = found.header ? null : first;
  }

  next(draft: Draft): boolean {
    while (this.read < this.o.limit) {
      const line = this.first ?? this.lines.next();
      this.first = null;
      if (line === null) break;
      const problem = this.format.read(line, draft);
      // Such lines are not wrong, and leaving them out would leave out load.
      if (problem === null && draft.time < this.last)
        throw this.wrongLine('arrives before the line above', 'sort the lines by arrival');
      if (problem !== null) {
        if (!this.o.skipBad) throw this.wrongLine(problem, 'correct the line, or leave such lines out with --skip-bad');
        this.skipped++;
        continue;
      }
      this.last = draft.time;
      if (Number.isNaN(this.origin)) this.origin = draft.time;
      draft.time -= this.origin;
      this.read++;
      return true;
    }
    this.lines.close();
    return false;
  }

  /** The error for a trace that ended without a request. */
  noRequests(): UserError {
    const wrong = this.skipped > 0 ? `: all ${this.skipped} lines are wrong` : '';
    return new UserError(`${this.lines.subject} holds no requests${wrong}`, 'name a trace with requests');
  }

  private wrongLine(problem: string, cure: string): UserError {
    return new UserError(`${this.lines.subject} line ${this.lines.line} ${problem}`, cure);
  }
}

/**
 * Reads a trace once, to know its size.
 * @throws UserError naming the file, the line and the reason
 */
export function summarise(o: TraceOptions): TraceSummary {
  const reader = new TraceReader(o);
  const draft = emptyDraft();
  let requests = 0;
  let promptTokens = 0;
  let outputTokens = 0;
  let longest = 0;
  let seconds = 0;
  while (reader.next(draft)) {
    requests++;
    promptTokens += draft.promptTokens;
    outputTokens += draft.outputTokens;
    longest = Math.max(longest, draft.promptTokens + draft.outputTokens);
    seconds = draft.time;
  }
  if (requests === 0) throw reader.noRequests();
  const { name, hashTokens } = reader.format;
  return { format: name, hashTokens, requests, skipped: reader.skipped, seconds, promptTokens, outputTokens, longest };
}

/** More than a trace has. */
const HASHES_OF_A_ROUND = 2 ** 40;

/** A trace's requests, with arrival times divided by `speedUp`. */
export class TraceSource implements Source {
  private reader: TraceReader;
  private round = 0;

  /**
   * @param times that the trace is served, one after the other
   * @param roundSeconds until it begins anew, by its own clock
   */
  constructor(
    private readonly o: TraceOptions,
    private readonly speedUp: number,
    private readonly times = 1,
    private readonly roundSeconds = 0,
  ) {
    this.reader = new TraceReader(o);
  }

  next(draft: Draft): boolean {
    if (!this.reader.next(draft)) {
      if (++this.round >= this.times) return false;
      this.reader = new TraceReader(this.o);
      if (!this.reader.next(draft)) return false;
    }
    const { round } = this;
    draft.time = (draft.time + round * this.roundSeconds) / this.speedUp;
    // Prompts of another round are others', or a cache that holds one round would know all of the next.
    if (round > 0 && draft.hashes) draft.hashes = draft.hashes.map((id) => id + round * HASHES_OF_A_ROUND);
    return true;
  }

  after(): boolean {
    return false;
  }
}

/** Lengths of a trace's prompts and answers, to draw from. */
export function observedLengths(path: string, most: number): Observed {
  const reader = new TraceReader({ path, limit: most, skipBad: false });
  const draft = emptyDraft();
  const prompts: number[] = [];
  const outputs: number[] = [];
  while (reader.next(draft)) {
    prompts.push(draft.promptTokens);
    outputs.push(draft.outputTokens);
  }
  if (prompts.length === 0) throw reader.noRequests();
  return { prompts: Int32Array.from(prompts), outputs: Int32Array.from(outputs) };
}
