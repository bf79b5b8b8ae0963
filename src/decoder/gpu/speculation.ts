/**
 * Rounds of self-speculation: the first loops propose tokens, a step at a time, and one pass of all loops verifies
 * them, with a row for each. Attention of a row is a step's: it reads its sequence's cache up to the row before it,
 * whose rows are written first. Rejected rows stay behind the sequence's end, where the next tokens overwrite them.
 */
import { requireVerifiable, type Draft } from '../../codecs/verification.js';
import { UserError } from '../../errors.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import { partOf, type Buffer } from '../../gpu/index.js';
import type { CacheRole } from '../../schedule/bind/refs.js';
import type { CachePart } from '../../schedule/cache-map.js';
import type { Configuration, Place } from '../../schedule/configuration.js';
import { expand } from '../../schedule/expand.js';
import { ALIGNMENT, sequencesApart } from '../../schedule/cache-parts.js';
import { schedule } from '../../schedule/schedule.js';
import { Allocations, makeUnused, makeWorkspace } from './allocations.js';
import { Caches } from './caches.js';
import type { GpuDecoderOptions, RoundResult } from './interface.js';
import { Machine } from './machine.js';
import { Binder } from './program.js';
import { StepProgram } from './steps.js';

/** Rows of a sequence in a round: the token that it begins with, and its proposals; 0 without speculation. */
export const roundRows = (draft: Draft | undefined): number => (draft ? draft.draftTokens + 1 : 0);

/** A decoder's caches with a part for each row: that of the row's sequence. */
class CachesOfRows extends Caches {
  constructor(
    c: Configuration,
    private readonly of: Caches,
    private readonly rowsEach: number,
    options: GpuDecoderOptions,
    allocations: Allocations,
  ) {
    const { contextTokens, pageTokens = 32 } = options;
    super({ ...c, bindingBytes: Infinity }, 1, contextTokens, pageTokens, allocations, rowsEach);
  }

  override parts(): readonly CachePart[] {
    return Array.from({ length: this.of.batch * this.rowsEach }, (_, i) => ({ index: i, first: i, count: 1 }));
  }

  override partOf(_block: LayerBlock['name'], row: number): CachePart {
    return { index: row, first: row, count: 1 };
  }

  override buffer(role: CacheRole, place: Place, loop = place.loop, row = 0): Buffer {
    const sequence = Math.floor(row / this.rowsEach);
    const part = this.of.partOf(place.block.name, sequence);
    const buffer = this.of.buffer(role, place, loop, part.index);
    if (part.count === 1) return buffer;
    const bytes = this.of.bytesEach(role, place);
    if (bytes % ALIGNMENT !== 0)
      throw new UserError(
        `rows of ${role} take ${bytes} bytes a sequence, no multiple of the ${ALIGNMENT} at which a binding may begin`,
        'speculate with one sequence, or a context of a multiple of 256 tokens',
      );
    return partOf(buffer, bytes * (sequence - part.first), bytes);
  }
}

/** What rounds of a decoder need beside it. */
export class Speculation {
  private readonly step: Machine;
  private readonly rows: Machine;

  private constructor(
    private readonly draft: Draft,
    private readonly drafting: StepProgram,
    private readonly verifying: StepProgram,
  ) {
    this.step = drafting.machine;
    this.rows = verifying.machine;
  }

  /**
   * @param step the decoder's own
   * @throws UserError where rounds would not give the tokens of greedy decoding, or rows cannot be bound apart
   */
  static async open(step: Machine, options: GpuDecoderOptions, draft: Draft): Promise<Speculation> {
    const { device, c, batch, setting } = step;
    if (setting.sampling.temperature > 0)
      throw new UserError('speculation is greedy, and a temperature draws tokens', 'leave one of them out');
    requireVerifiable(c.geometry, c.codec, c.eviction, draft);
    if (blocksOf(c.geometry).some((block) => sequencesApart(c, block, step.caches.slots.capacity) > 1))
      throw new UserError(
        `queries of ${c.geometry.name} are no multiple of ${ALIGNMENT} bytes, ` +
          `so that rows of a verification cannot be bound apart`,
        'decode without speculation',
      );
    const rowsEach = roundRows(draft);
    const count = batch * rowsEach;
    const allocations = new Allocations(device);
    try {
      const unused = await makeUnused(allocations);
      const caches = new CachesOfRows(c, step.caches, rowsEach, options, allocations);
      await makeWorkspace({ ...setting, batch: count }, caches, allocations);
      const rows = new Machine(device, { ...setting, batch: count }, allocations, step.weights, caches);
      const { capacity: slots } = caches.slots;
      const drafting = new StepProgram(step, new Binder(device, unused), (context) =>
        expand(c, schedule(c, batch, context, { slots }), draft.draftLoops),
      );
      const verifying = new StepProgram(rows, new Binder(device, unused), (context) =>
        expand(c, schedule(c, count, context, { slots, inTurn: true })),
      );
      const speculation = new Speculation(draft, drafting, verifying);
      await drafting.prepare(1);
      await verifying.prepare(1);
      return speculation;
    } catch (error) {
      allocations.free();
      throw error;
    }
  }

  get allocations(): Machine['allocations']['table'] {
    return this.rows.allocations.table;
  }

  get uniformBytes(): number {
    return this.drafting.uniformBytes + this.verifying.uniformBytes;
  }

  /**
   * A round of every sequence.
   * @param lengths tokens that each holds
   * @param next reads the tokens that a step chose, one a row
   * @param accept in place of comparing, as GpuDecoder.speculate has it
   */
  async round(
    tokens: readonly number[],
    lengths: readonly number[],
    next: (machine: Machine) => Promise<Uint32Array>,
    accept?: (sequence: number) => number,
  ): Promise<RoundResult> {
    const { draftTokens } = this.draft;
    const longest = Math.max(1, ...lengths);
    const proposed = tokens.map((): number[] => []);
    let draftSeconds = 0;
    for (let i = 0; i < draftTokens; i++) {
      const last = tokens.map((token, sequence) => proposed[sequence]?.at(-1) ?? token);
      const positions = lengths.map((length) => length + i);
      draftSeconds += await this.drafting.run(longest + i, last, positions);
      (await next(this.step)).forEach((token, sequence) => proposed[sequence]?.push(token));
    }
    const all = tokens.flatMap((token, sequence) => [token, ...(proposed[sequence] as number[])]);
    const positions = lengths.flatMap((length) => Array.from({ length: draftTokens + 1 }, (_, i) => length + i));
    const verifySeconds = await this.verifying.run(longest + draftTokens, all, positions);
    const said = await next(this.rows);
    const accepted = proposed.map((own, sequence) => {
      const first = sequence * (draftTokens + 1);
      const wrong = own.findIndex((token, i) => token !== said[first + i]);
      const kept = accept?.(sequence) ?? (wrong < 0 ? draftTokens : wrong);
      return [...said.slice(first, first + kept + 1)];
    });
    await this.keepLogits(accepted);
    return { tokens: accepted, proposed, draftSeconds, verifySeconds };
  }

  /** The last logits of each sequence are those of its last token. */
  private async keepLogits(accepted: readonly (readonly number[])[]): Promise<void> {
    const bytes = 4 * this.step.c.geometry.vocab;
    const [from, to] = [this.rows.buffer('logits'), this.step.buffer('logits')];
    for (const [sequence, tokens] of accepted.entries()) {
      const row = sequence * (this.draft.draftTokens + 1) + tokens.length - 1;
      await this.step.device.copy(partOf(from, row * bytes, bytes), to, bytes, sequence * bytes);
    }
  }

  free(): void {
    this.drafting.free();
    this.verifying.free();
    this.rows.allocations.free();
  }
}
