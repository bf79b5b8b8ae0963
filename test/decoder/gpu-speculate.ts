/**
 * Speculation of the GPU decoder: every proposal and token is the float64 reference's, given the same tokens before.
 */
import { expect } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { hasOwnStorage } from '../../src/codecs/registry.js';
import { verificationRefusal } from '../../src/codecs/verification.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Device } from '../../src/gpu/index.js';
import { randomOf, SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { expectWithin, limitOf, open, relative, type Case } from './gpu-cases.js';
import { followersOf } from './gpu-follow.js';
import { onFewThreads, singles } from './gpu-list.js';
import { BRANCH, GEOMETRIES, learnedCodecs, promptOf } from './models.js';

/** Queries of 256 bytes, which rows of a verification are bound by. */
const wide = (g: Geometry): Geometry => ({
  ...g,
  heads: 4,
  headDim: 16,
  // Biases of q and k.
  extraParametersPerLayer: g.extraParametersPerLayer > 0 ? (4 + g.kvHeads) * 16 : 0,
});
const [OURO, HUGINN, GROUPED] = GEOMETRIES.map(wide) as [Geometry, Geometry, Geometry];
export { OURO };
const random = randomOf(SEED);
const DRAFT_TOKENS = random.whole(2, 5);
/** Prompts that nearly fill a tile of the cache, and rounds beyond it. */
const [PROMPT, ROUNDS] = [24, 12];

const casesOf = (geometry: Geometry): Case[] => {
  const learned = learnedCodecs(geometry, 0.5);
  const [lla, , mla] = learned as [Codec, Codec, Codec];
  const even = { ...mla, rankK: 2 * Math.ceil(mla.rankK! / 2) };
  // A ring of one tile holds them, but not the rows of a round as well.
  const windowed: Codec = { ...lla, kind: 'lla-window', windowTokens: random.whole(33 - DRAFT_TOKENS, 32) };
  const hla: Codec = {
    kind: 'hla',
    rankK: 16,
    rankV: 20,
    rankFirst: 16,
    windowTokens: random.whole(33 - DRAFT_TOKENS, 32),
  };
  return [
    { geometry, codec: { kind: 'full' } },
    { geometry, codec: { kind: 'kv-quant', bits: 4 } },
    { geometry, codec: { kind: 'cla', shareLayers: 2 } },
    ...(['fast', 'reconstruct', 'block-absorbed'] as const).map((path): Case => ({ geometry, codec: mla, path })),
    { geometry, codec: mla, path: 'reconstruct', materialised: true },
    // Absorbed queries of whole bindings: ranks and branch together.
    { geometry, codec: { ...even, rankK: 26 }, path: 'absorbed', branch: { ...BRANCH, perHead: true } },
    { geometry, codec: windowed, path: 'reconstruct' },
    { geometry, codec: windowed, path: 'block-absorbed' },
    { geometry, codec: hla, path: 'rotated' },
  ];
};
// Rows of a proposal's coda are written again when it is verified: codes of the first ones cannot be followed.
const ALL = [OURO, HUGINN, GROUPED]
  .flatMap(casesOf)
  .filter(({ geometry, codec }) => geometry !== HUGINN || !hasOwnStorage(codec))
  .map(singles);
export const CASES = everyNth(ALL.filter(onFewThreads), 12, 2);
/** Kernels of blocks add up across eight threads. */
export const BLOCK_CASES = everyNth(
  ALL.filter((of) => !onFewThreads(of)),
  6,
  2,
);

/** A token whose logit is the largest, or as large as arithmetic tells. */
function expectGreedy(token: number, logits: Vector, limit: number, message: string): void {
  const best = Math.max(...logits);
  const size = Math.sqrt(logits.reduce((sum, x) => sum + x * x, 0));
  expect((best - logits[token]!) / size, message).toBeLessThanOrEqual(limit);
}

/** Rounds of a batch, each followed by the references. @param fault changes the decoder's lengths after a round */
export async function followRounds(
  device: Device,
  of: Case,
  batch = 1,
  fault: (lengths: number[]) => void = () => {},
): Promise<{ accepted: number; proposals: number }> {
  const draft = { draftLoops: random.whole(1, of.geometry.loops - 1), draftTokens: DRAFT_TOKENS };
  expect(verificationRefusal(of.codec, null, draft)).toBeUndefined();
  const prompts = Array.from({ length: batch }, (_, i) => promptOf(of.geometry, PROMPT + i, SEED + i));
  const decoder = await open(device, of, { batch, contextTokens: 128, speculation: draft });
  const { references, follow: read } = followersOf(decoder, of, prompts);
  const limit = Math.max(1e-5, limitOf(of, prompts));
  let [accepted, proposals] = [0, 0];
  try {
    let tokens = [...(await decoder.prefill(prompts, 'by-token')).tokens];
    await read();
    references.forEach((reference, i) => {
      let logits: Vector | undefined;
      for (const token of prompts[i]!) logits = reference.step(token);
      expectGreedy(tokens[i]!, logits!, limit, 'after the prompt');
    });
    for (let n = 0; n < ROUNDS; n++) {
      const round = await decoder.speculate(tokens);
      await read();
      for (const [i, reference] of (references as ReferenceDecoder[]).entries()) {
        const [own, proposed] = [round.tokens[i], round.proposed[i]] as [number[], number[]];
        const sequence = [tokens[i]!, ...proposed];
        proposed.forEach((proposal, k) =>
          expectGreedy(proposal, reference.draft(sequence[k]!, draft.draftLoops), limit, `proposal ${k}`),
        );
        const logits = reference.verify(sequence, () => own.length - 1);
        own.forEach((token, k) => expectGreedy(token, logits[k]!, limit, `token ${k} of sequence ${i}`));
        expect(own.slice(0, -1)).toEqual(proposed.slice(0, own.length - 1));
        if (own.length <= DRAFT_TOKENS) expect(own.at(-1)).not.toBe(proposed[own.length - 1]);
        expect(decoder.lengths[i]).toBe(reference.length);
        accepted += own.length - 1;
        proposals += proposed.length;
      }
      tokens = round.tokens.map((own) => own.at(-1)!);
      fault(decoder.lengths as number[]);
    }
    // What a plain step computes from the cache that rounds have left.
    await decoder.step(tokens);
    await read();
    const logits = await decoder.logits();
    references.forEach((reference, i) => {
      const { vocab } = of.geometry;
      const error = relative(logits.subarray(i * vocab, (i + 1) * vocab), reference.step(tokens[i]!));
      expectWithin(error, of, prompts, `sequence ${i}`);
    });
    return { accepted, proposals };
  } finally {
    decoder.close();
  }
}
