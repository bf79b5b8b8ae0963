/** A trace as a source of requests: read line by line, from the first arrival on. */
import { UserError, show } from '../../errors.js';
import { displayPath } from '../../io/files.js';
import type { Source } from '../engine.js';
import { emptyDraft, type Draft } from '../scheduler/requests.js';
import { formatOf, KNOWN_COLUMNS, type TraceFormat } from './trace-formats.js';
import { LineReader } from './trace-lines.js';

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
  private readonly subject: string;

  constructor(private readonly o: TraceOptions) {
    this.subject = `trace ${show(displayPath(o.path))}`;
    this.lines = new LineReader(o.path);
    const first = this.lines.next();
    if (first === null) throw new UserError(`${this.subject} is empty`, 'name a trace with requests');
    const found = formatOf(first);
    if ('problem' in found)
      throw new UserError(`${this.subject} line ${this.lines.line} ${found.problem}`, `known traces: ${KNOWN_COLUMNS}`);
    this.format = found.format;
    this.first = found.header ? null : first;
  }

  next(draft: Draft): boolean {
    while (this.read < this.o.limit) {
      const line = this.first ?? this.lines.next();
      this.first = null;
      if (line === null) break;
      const problem =
        this.format.read(line, draft) ?? (draft.time < this.last ? 'arrives before the line above' : null);
      if (problem !== null) {
        if (!this.o.skipBad)
          throw new UserError(
            `${this.subject} line ${this.lines.line} ${problem}`,
            'correct the line, or leave such lines out with --skip-bad',
          );
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
  if (requests === 0)
    throw new UserError(
      `trace ${show(displayPath(o.path))} holds no requests` +
        (reader.skipped > 0 ? `: all ${reader.skipped} lines are wrong` : ''),
      'name a trace with requests',
    );
  const { name, hashTokens } = reader.format;
  return { format: name, hashTokens, requests, skipped: reader.skipped, seconds, promptTokens, outputTokens, longest };
}

/** A trace's requests, with arrival times divided by `speedUp`. */
export class TraceSource implements Source {
  private readonly reader: TraceReader;

  constructor(
    o: TraceOptions,
    private readonly speedUp: number,
  ) {
    this.reader = new TraceReader(o);
  }

  next(draft: Draft): boolean {
    if (!this.reader.next(draft)) return false;
    draft.time /= this.speedUp;
    return true;
  }

  after(): boolean {
    return false;
  }
}

/** Lengths of a trace's prompts and answers, to draw from. */
export function observedLengths(path: string, most: number): { prompts: Int32Array; outputs: Int32Array } {
  const reader = new TraceReader({ path, limit: most, skipBad: false });
  const draft = emptyDraft();
  const prompts: number[] = [];
  const outputs: number[] = [];
  while (reader.next(draft)) {
    prompts.push(draft.promptTokens);
    outputs.push(draft.outputTokens);
  }
  if (prompts.length === 0)
    throw new UserError(`trace ${show(displayPath(path))} holds no requests`, 'name a trace with requests');
  return { prompts: Int32Array.from(prompts), outputs: Int32Array.from(outputs) };
}
