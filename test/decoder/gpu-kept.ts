/**
 * References that keep the tokens that a GPU decoder kept under H2O. Of two tokens with nearly the same mass either may
 * stay: rounding decides. What follows is compared given the same tokens, to the usual tolerance.
 */
import { expect } from 'vitest';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import type { Unit } from '../../src/decoder/reference/cache.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { Site } from '../../src/decoder/reference/network.js';
import { blocksOf } from '../../src/geometry/geometry.js';
import { limitOf, referenceOf, TOLERANCE, type Case } from './gpu-cases.js';

export interface Followers {
  /** One a sequence. */
  readonly references: readonly ReferenceDecoder[];
  /** Reads what the decoder keeps; to be called before the references take in what the decoder has taken in. */
  readonly follow: () => Promise<void>;
}

const nameOf = ({ block, layer, loop }: Site): string => [block, layer, loop].join();

/** @param prompts of the sequences */
export function followersOf(decoder: GpuDecoder, of: Case, prompts: readonly (readonly number[])[]): Followers {
  const { eviction, geometry } = of;
  if (eviction?.policy !== 'h2o') return { references: prompts.map(() => referenceOf(of)), follow: async () => {} };
  const sites = blocksOf(geometry).flatMap(({ name, layers, loops }) =>
    Array.from({ length: layers * loops }, (_, i): Site => ({
      block: name,
      layer: Math.floor(i / loops),
      loop: i % loops,
    })),
  );
  const kept = new Map<string, readonly (readonly (readonly number[])[])[]>();
  const references = prompts.map((_, sequence) =>
    referenceOf(of, (chosen, unit, { site, kvHead }) => {
      if (chosen.length < eviction.budgetTokens) return chosen;
      const rows = kept.get(nameOf(site))?.[sequence] as readonly (readonly number[])[];
      const own = rows[Math.floor((kvHead * rows.length) / geometry.kvHeads)] as readonly number[];
      const message = `${nameOf(site)}, head ${kvHead}, sequence ${sequence}`;
      expect(own.slice(-eviction.recentTokens), message).toEqual(chosen.slice(-eviction.recentTokens));
      expectTie(chosen, own, unit, () => limitOf(of, prompts, TOLERANCE), message);
      return own;
    }),
  );
  return {
    references,
    follow: async () => {
      for (const site of sites) kept.set(nameOf(site), await decoder.keptPositions(site));
    },
  };
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
