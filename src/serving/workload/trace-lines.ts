/** Lines of a text file, one after the other, in bounded memory. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { UserError, show } from '../../errors.js';
import { displayPath } from '../../io/files.js';

/** Bytes read at once. */
const PIECE_BYTES = 2 ** 18;
/** The longest line: a Mooncake request of a million tokens has 2,000 hash ids of some 8 bytes. */
const MAX_LINE_BYTES = 2 ** 20;

export class LineReader {
  /** Number of the line that was read last, from 1. */
  line = 0;
  private readonly descriptor: number;
  private readonly piece = Buffer.allocUnsafe(PIECE_BYTES);
  private rest: Buffer = Buffer.alloc(0);
  private pending: string[] = [];
  private at = 0;
  private ended = false;
  private readonly decoder = new TextDecoder('utf-8', { fatal: true });
  private readonly subject: string;

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
    // A line end is one byte that no other character contains.
    const end = count === 0 ? bytes.length : bytes.lastIndexOf(10) + 1;
    if (bytes.length - end > MAX_LINE_BYTES)
      throw new UserError(
        `${this.subject} line ${this.line + this.linesIn(bytes, end) + 1} is longer than ${MAX_LINE_BYTES} bytes`,
        'check that it is a trace with a request a line',
      );
    this.pending = this.decode(bytes.subarray(0, end)).split('\n');
    // What follows the last line end is no line.
    if (count > 0 || this.pending.at(-1) === '') this.pending.pop();
    this.at = 0;
    this.rest = Buffer.from(bytes.subarray(end));
    if (count === 0) this.close();
  }

  private linesIn(bytes: Buffer, end: number): number {
    let lines = 0;
    for (let at = bytes.indexOf(10); at >= 0 && at < end; at = bytes.indexOf(10, at + 1)) lines++;
    return lines;
  }

  private decode(bytes: Buffer): string {
    try {
      return this.decoder.decode(bytes);
    } catch {
      // Which line it is: line by line.
      let line = this.line;
      for (let from = 0; from < bytes.length; line++) {
        const next = bytes.indexOf(10, from) + 1 || bytes.length;
        try {
          new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(from, next));
        } catch {
          break;
        }
        from = next;
      }
      throw new UserError(`${this.subject} line ${line + 1} is not UTF-8`, 'save it as UTF-8');
    }
  }
}
