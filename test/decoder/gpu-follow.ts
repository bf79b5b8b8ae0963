/**
 * References that follow a GPU decoder where rounding decides: of two tokens with nearly the same mass either may stay
 * under H2O, and a value between two that can be stored may become either. Both are right, and a random model amplifies
 * the difference. What follows is compared given the same decisions. A decision that no rounding explains fails.
 */
import { expect } from 'vitest';
import { loopSlot, tensorOfLoop, type CacheTensor } from '../../src/codecs/layout.js';
import { hasOwnStorage, layoutOf } from '../../src/codecs/registry.js';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import type { CachedRows } from '../../src/decoder/gpu/index.js';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import type { Decisions, Unit } from '../../src/decoder/reference/cache.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { Site } from '../../src/decoder/reference/network.js';
import { blocksOf } from '../../src/geometry/geometry.js';
import { runsOf, takenAs } from '../../src/schedule/prefill/prefill.js';
import { configurationOf, limitOf, referenceOf, relative, TOLERANCE, type Case } from './gpu-cases.js';

export interface Followers {
  /** One a sequence. */
  readonly references: readonly ReferenceDecoder[];
  /** Reads the decoder's cache; to be called before the references take in what the decoder has taken in. */
  readonly follow: () => Promise<void>;
  /**
   * Takes a part of each prompt in, run by run as `chunked` does, and follows after each run.
   * @returns the references' logits of the last tokens
   */
  readonly extend: (parts: readonly (readonly number[])[], chunkTokens: number) => Promise<Vector[]>;
}

/** Whether tokens are to be taken in piece by piece, so that references follow before a later piece evicts. */
export const isFollowed = ({ eviction, codec }: Case): boolean => eviction?.policy === 'h2o' || hasOwnStorage(codec);

/** @param prompts of the sequences */
export function followersOf(decoder: GpuDecoder, of: Case, prompts: readonly (readonly number[])[]): Followers {
  const { geometry, codec, path, choice, branch } = configurationOf(of);
  const layout = layoutOf(geometry, codec, path, choice, branch);
  const blocks = new Map(blocksOf(geometry).map((block) => [block.name, block]));
  const cached = new Map<CacheTensor, CachedRows[]>();
  const rowsOf = (tensor: CacheTensor, { layer, loop }: Site): CachedRows => {
    const { layers, loops } = blocks.get(tensor.block) as { layers: number; loops: number };
    const [i, t] = [Math.floor((layer * tensor.layers) / layers), loopSlot(tensor, loop, loops)];
    return cached.get(tensor)![i * tensor.loops + t]!;
  };
  const headOf = ({ heads }: CacheTensor, kvHead: number): number => Math.floor((kvHead * heads) / geometry.kvHeads);
  let atMost: number | undefined;
  const limit = (): number => (atMost ??= limitOf(of, prompts, TOLERANCE));
  const decisionsOf = (sequence: number): Decisions => ({
    keeps: (chosen, unit, { site, kvHead }) => {
      if (of.eviction?.policy !== 'h2o' || chosen.length < of.eviction.budgetTokens) return chosen;
      const tensor = layout.find(({ block }) => block === site.block)!;
      const own = rowsOf(tensor, site).positions(sequence, headOf(tensor, kvHead));
      const message = `kept in ${site.block} ${site.layer}.${site.loop}, head ${kvHead}, sequence ${sequence}`;
      expect(own.slice(-of.eviction.recentTokens), message).toEqual(chosen.slice(-of.eviction.recentTokens));
      expectTie(chosen, own, unit, limit, message);
      return own;
    },
    stores: (rounded, exact, { role, site, kvHead, position }) => {
      const tensor = tensorOfLoop(layout, site.block, role, site.loop)!;
      if (tensor.storage === 'f32') return rounded;
      // Rows of tokens that are not kept are not there.
      const own = rowsOf(tensor, site).row(sequence, headOf(tensor, kvHead), position) ?? rounded;
      const message = `${role} of ${position} in ${site.block} ${site.layer}.${site.loop}, head ${kvHead}`;
      if (tensor.residual) expectCoded(own, rounded, exact, tensor.residual.headDim, message);
      // What a prompt attends to before is in 16 bits as well, and is not followed.
      else expectRounding(own, rounded, exact, tensor.storage === 'f16' ? () => limitOf(of, prompts) : limit, message);
      return own;
    },
  });
  // Packed loops are not followed: their reference keeps rows of its own.
  const packed = layout.some((t) => t.packed);
  const read = layout.filter((t, i) =>
    packed && t.block === 'core'
      ? false
      : t.storage === 'f32'
        ? of.eviction?.policy === 'h2o' && layout.findIndex((s) => s.block === t.block) === i
        : true,
  );
  const references = prompts.map((_, sequence) => referenceOf(of, decisionsOf(sequence)));
  const follow = async (): Promise<void> => {
    for (const tensor of read) {
      const { block, role, layers, loops } = tensor;
      const { layers: allLayers, loops: allLoops } = blocks.get(block) as { layers: number; loops: number };
      const rows: CachedRows[] = [];
      for (let layer = 0; layer < allLayers; layer += allLayers / layers)
        for (let slot = 0; slot < loops; slot++) {
          const served = Array.from({ length: allLoops }, (_, loop) => loopSlot(tensor, loop, allLoops));
          rows.push(await decoder.cached(role, { block, layer, loop: served.indexOf(slot) }));
        }
      cached.set(tensor, rows);
    }
  };
  const extend: Followers['extend'] = async (parts, chunkTokens) => {
    const expected: Vector[] = [];
    for (const [i, part] of parts.entries())
      for (const { from, tokens } of runsOf(takenAs(configurationOf(of), 'chunked', chunkTokens), 0, part.length)) {
        const piece = part.slice(from, from + tokens);
        await decoder.extend(i, piece, from + tokens === part.length);
        await follow();
        expected[i] = references[i]!.prefill(piece, 'chunked', chunkTokens).at(-1)!;
      }
    return expected;
  };
  return { references, follow, extend };
}

/** Fails where tokens were kept that are lighter than others by more than the limit, a share of their masses. */
function expectTie(
  chosen: readonly number[],
  own: readonly number[],
  { mass }: Unit,
  limit: () => number,
  message: string,
): void {
  const massOf = (position: number): number => mass.get(position) ?? 0;
  const lost = chosen.filter((position) => !own.includes(position)).map(massOf);
  const instead = own.filter((position) => !chosen.includes(position)).map(massOf);
  expect(instead.length, message).toBe(lost.length);
  if (lost.length === 0) return;
  const [heaviest, lightest] = [Math.max(...lost), Math.min(...instead)];
  expect(
    (heaviest - lightest) / (heaviest + lightest),
    `${message}: ${lost.join()} for ${instead.join()}`,
  ).toBeLessThan(limit());
}

/**
 * Fails where a loop's row is coded worse than by the reference. Of two scales or offsets as near, which are a
 * sixteenth apart, either may be stored, and every code of the group follows: single values say nothing, the error of
 * all does.
 */
function expectCoded(own: Vector, rounded: Vector, exact: Vector, width: number, message: string): void {
  for (let at = 0; at < exact.length; at += width) {
    const errorOf = (row: Vector): number => relative(row.subarray(at, at + width), exact.subarray(at, at + width));
    expect(errorOf(own), `${message}, loop ${at / width} of those together`).toBeLessThan(
      1.5 * errorOf(rounded) + 0.01,
    );
  }
}

/**
 * Fails where stored values are further from the exact ones than rounding, by more than the limit, a share of the
 * largest.
 */
function expectRounding(own: Vector, rounded: Vector, exact: Vector, limit: () => number, message: string): void {
  const size = Math.max(...exact.map(Math.abs));
  const excess = exact.map((x, i) => Math.abs(own[i]! - x) - Math.abs(rounded[i]! - x));
  const worst = Math.max(...excess) / size;
  if (!(worst < TOLERANCE)) expect(worst, message).toBeLessThan(limit());
}
