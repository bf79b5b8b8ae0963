/** Decode steps: their inputs, and their operations, bound for as many tokens as the sequences have. */
import { chosenKeys } from '../../codecs/flashloop.js';
import { streamsOf } from '../../codecs/registry.js';
import { reindexes } from '../../eviction/policy.js';
import { blocksOf } from '../../geometry/geometry.js';
import type { Span } from '../../../kernels/attention-options.js';
import { CACHED_TOKENS, recentTokens, spansFrom } from '../../schedule/buffers.js';
import { boundStep } from '../../schedule/bind/index.js';
import { divideSpan, packedSpan, spanOf } from '../../schedule/cache-map.js';
import type { Visit } from '../../schedule/configuration.js';
import type { Op } from '../../schedule/schedule.js';
import type { BoundStep } from '../../gpu/index.js';
import type { Machine } from './machine.js';
import { secondsOf, type Binder, type Operation } from './program.js';

/** Positions of pinned slots, [sequence][slot]: StreamingLLM's give the distances inside the cache. */
function sinkPositions({ c, caches }: Machine, lengths: readonly number[], spans: readonly Span[]): number[] {
  const { pinned, capacity } = caches.slots;
  return lengths.flatMap((length, i) => {
    const { pinned: sinks, ring } = spans[i] as Span;
    const shift = reindexes(c.eviction) ? length - sinks - ring : 0;
    return Array.from({ length: capacity }, (_, slot) => (slot < pinned ? slot + shift : 0));
  });
}

/**
 * Writes a step's tokens, their positions, and the slots of the tokens before them.
 * @param lengths tokens of each sequence, evicted ones included
 */
async function writeInputs(m: Machine, tokens: ArrayLike<number>, lengths: readonly number[]): Promise<void> {
  const { c, caches, allocations } = m;
  const spans = lengths.map((length) => spanOf(c.eviction, caches.slots, length));
  const write = (label: string, words: () => readonly number[]): Promise<void> =>
    allocations.has(label) ? m.device.write(m.buffer(label), Uint32Array.from(words())) : Promise.resolve();
  const streams = streamsOf(c.geometry, c.codec);
  // First sequences of the parts of all caches.
  const firsts = blocksOf(c.geometry).flatMap((block) => caches.parts(block.name).map(({ first }) => first));
  await Promise.all([
    m.device.write(m.buffer('tokens'), Uint32Array.from(tokens)),
    write('positions', () => lengths),
    write('places', () => spans.map((span) => span.pinned + span.ring)),
    write('pinned positions', () => sinkPositions(m, lengths, spans)),
    ...[...new Set(firsts)].flatMap((first) =>
      CACHED_TOKENS.map((read) =>
        write(spansFrom(first, read), () =>
          spans.slice(first).flatMap((all) => {
            if (read === 'packed') {
              const { pinned, firstPosition, ring } = packedSpan(c, all.ring);
              return [pinned, firstPosition, ring, streams ? chosenKeys(streams, all.ring) : 0];
            }
            const span = read === 'all' ? all : divideSpan(all, recentTokens(c))[read];
            return [span.pinned, span.firstPosition, span.ring, 0];
          }),
        ),
      ),
    ),
  ]);
}

const MIN_PLANNED_TOKENS = 256;

/** A context rounded up to an eighth of its octave: shapes change seldom, more tokens cost empty workgroups. */
export function plannedContext(longest: number, contextTokens: number): number {
  const grain = Math.max(MIN_PLANNED_TOKENS, 2 ** Math.floor(Math.log2(Math.max(1, longest))) / 8);
  return Math.min(contextTokens, Math.max(1, Math.ceil(longest / grain) * grain));
}

/** Bound operations of steps over a growing context, bound again when the planned context changes. */
export class StepProgram {
  private bound: { context: number; operations: readonly Operation[]; steps: readonly BoundStep[] } | undefined;

  /** @param visits the operations of a step over so many tokens */
  constructor(
    readonly machine: Machine,
    private readonly binder: Binder,
    private readonly visits: (context: number) => Iterable<Visit<Op>>,
  ) {}

  get operations(): readonly Operation[] {
    return this.bound?.operations ?? [];
  }

  get uniformBytes(): number {
    return this.binder.uniformBytes;
  }

  /** Binds the operations of a step over `longest` tokens, unless those of the last step can be used again. */
  async prepare(longest: number): Promise<readonly BoundStep[]> {
    const { setting, caches } = this.machine;
    const context = plannedContext(longest, setting.contextTokens);
    if (this.bound?.context === context) return this.bound.steps;
    this.free();
    try {
      const visits = boundStep(setting, caches, context, this.visits(context));
      const operations = await this.machine.compile(this.binder, visits);
      this.bound = { context, operations, steps: operations.flatMap((operation) => operation.steps) };
      return this.bound.steps;
    } catch (error) {
      this.free();
      throw error;
    }
  }

  /**
   * Runs a step of all rows.
   * @param longest tokens of a sequence that it is bound for
   * @param lengths tokens before each row's own
   * @returns seconds of the device
   */
  async run(longest: number, tokens: ArrayLike<number>, lengths: readonly number[]): Promise<number> {
    const steps = await this.prepare(longest);
    await writeInputs(this.machine, tokens, lengths);
    return secondsOf(await this.machine.device.run(steps, true));
  }

  free(): void {
    this.binder.free();
    this.bound = undefined;
  }
}
