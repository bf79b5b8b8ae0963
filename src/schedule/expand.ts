/** A schedule's operations with the places at which they run: one by one for the decoder, counted for prices. */
import { anchoredLoops } from '../codecs/registry.js';
import { layerRuns, stackPlace, storedCoreLayers, type LayerBlock, type StackPlace } from '../geometry/geometry.js';
import type { Configuration, Place, Visit, When } from './configuration.js';
import type { Op } from './op.js';
import type { Schedule } from './schedule.js';

/**
 * Layers `first`, `first + step`, … and loops `from` to `to` (excluded) of a stack, all unless given; of every `each`
 * loops the `inEach`.
 */
interface Places {
  readonly first?: number;
  readonly step?: number;
  readonly from?: number;
  readonly to?: number;
  readonly each?: number;
  readonly inEach?: 'last' | 'others';
}

/** One loop; none where there are fewer. */
const one = (loop: number, loops: number): Places => ({ from: Math.min(loop, loops), to: Math.min(loop + 1, loops) });
const shareOf = (c: Configuration): number => c.codec.shareLayers ?? 1;
const anchoredOf = (c: Configuration): number => anchoredLoops(c.geometry, c.codec);

/** Where an operation of a stack runs. */
const PLACES: Readonly<Record<When, (loops: number, c: Configuration) => Places>> = {
  always: () => ({}),
  'first-loop': () => ({ to: 1 }),
  'later-loops': () => ({ from: 1 }),
  'second-loop': (loops) => one(1, loops),
  'third-loop': (loops) => one(2, loops),
  'fourth-loop': (loops) => one(3, loops),
  'last-loop': (loops) => ({ from: loops - 1 }),
  'anchor-loop': (_, c) => ({ each: anchoredOf(c), inEach: 'last' }),
  'residual-loops': (_, c) => ({ each: anchoredOf(c), inEach: 'others' }),
  'owning-layer': (_, c) => ({ step: shareOf(c) }),
  'closing-layer': (_, c) => ({ first: shareOf(c) - 1, step: shareOf(c) }),
};

/** True where an operation of a layer runs at a place. */
function runsAt(c: Configuration, { when }: Op, { block: { loops }, layer, loop }: Place): boolean {
  const { first = 0, step = 1, from = 0, to = loops, each = 1, inEach = 'last' } = PLACES[when](loops, c);
  const inGroup = (loop % each === each - 1) === (inEach === 'last');
  return layer >= first && (layer - first) % step === 0 && loop >= from && loop < to && inGroup;
}

/** How often an operation of a list of layers runs in a step, its parts included. */
export function timesOf(c: Configuration, { layers, loops }: Pick<LayerBlock, 'layers' | 'loops'>, op: Op): number {
  const { first = 0, step = 1, from = 0, to = loops, each = 1, inEach = 'last' } = PLACES[op.when](loops, c);
  const running = ((to - from) / each) * (inEach === 'last' ? 1 : each - 1);
  return Math.max(0, Math.ceil((layers - first) / step)) * running * op.repeat;
}

/** Visits every operation with the number of times that it runs in one step: as often as `expand` yields it. */
export function forEachOp(c: Configuration, s: Schedule, visit: (op: Op, calls: number) => void): void {
  for (const stage of s.stages) {
    if (stage.kind === 'once') {
      for (const o of stage.ops) visit(o, o.repeat);
      continue;
    }
    const { block, loopStart, runStart = [], layer, runEnd = [], loopEnd } = stage;
    const oneLayer = { layers: 1, loops: block.loops };
    const runs = { layers: c.geometry.stacks?.reduce((sum, stack) => sum + stack.runs, 0) ?? 1, loops: block.loops };
    const lists = [loopStart, runStart, layer, runEnd, loopEnd];
    for (const [i, of] of [oneLayer, runs, block, runs, oneLayer].entries())
      for (const o of lists[i] as readonly Op[]) {
        const calls = timesOf(c, of, o);
        if (calls > 0) visit(o, calls);
      }
  }
}

/** The quantity that the parts of an operation divide. */
function sizeOf({ kernel, shape }: Op): number {
  if (kernel === 'matmul') return shape.n as number;
  if (kernel === 'embed') return shape.width as number;
  return shape.sequences ?? shape.rows ?? 0;
}

/** The operations of one list. Neighbours of equal `repeat` run part by part (configuration.ts). */
function* inOrder(ops: readonly Op[], place: Place | undefined): Generator<Visit<Op>> {
  const taken = new Map<string, { parts: number; size: number }>();
  const visit = (op: Op): Visit<Op> => {
    const key = `${op.label} ${op.variant} ${op.from ?? ''} ${op.loop ?? ''} ${op.loopsBack ?? ''}`;
    const before = taken.get(key) ?? { parts: 0, size: 0 };
    taken.set(key, { parts: before.parts + 1, size: before.size + sizeOf(op) });
    return { op, place, part: before.parts, before: before.size };
  };
  for (let i = 0; i < ops.length;) {
    const { repeat } = ops[i] as Op;
    let end = i + 1;
    while (repeat > 1 && end < ops.length && (ops[end] as Op).repeat === repeat) end++;
    for (let part = 0; part < repeat; part++) for (const op of ops.slice(i, end)) yield visit(op);
    i = end;
  }
}

/** Every operation, in order. @param exitAfter loops of the core, the last one as if it ended them; all unless given */
export function* expand(c: Configuration, schedule: Schedule, exitAfter = Infinity): Generator<Visit<Op>> {
  let first = 0;
  for (const stage of schedule.stages) {
    if (stage.kind === 'once') {
      // A pass of the network begins with its embedding.
      first = 0;
      yield* inOrder(stage.ops, undefined);
      continue;
    }
    const { block } = stage;
    const loops = block.name === 'core' ? Math.min(block.loops, exitAfter) : block.loops;
    for (const { layer, loop } of layerRuns(c.geometry, block)) {
      if (loop >= loops) continue;
      // Where the layer is in the runs of stacks.
      const runOf = (layer: number): StackPlace | undefined =>
        block.name === 'core' ? stackPlace(c.geometry, layer) : undefined;
      const run = runOf(layer);
      const at = (layer: number): Place => ({ block, layer, loop, stored: first + (runOf(layer)?.stored ?? layer) });
      const place = at(layer);
      const running = (ops: readonly Op[] = [], where = place): readonly Op[] =>
        ops.filter((op) => runsAt(c, op, where));
      if (layer === 0) yield* inOrder(running(stage.loopStart), place);
      if (run?.begins) yield* inOrder(running(stage.runStart), place);
      yield* inOrder(running(stage.layer), place);
      if (run?.ends) yield* inOrder(running(stage.runEnd), place);
      if (layer < block.layers - 1) continue;
      const end = { ...at(0), loop: loop === loops - 1 ? block.loops - 1 : loop };
      yield* inOrder(running(stage.loopEnd, end), place);
    }
    first += block.name === 'core' ? storedCoreLayers(c.geometry) : block.layers;
  }
}
