/**
 * Speculation by the first loops in float64: tokens, cache and later logits are those of greedy decoding, for every
 * codec and path, or the combination is refused.
 */
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { CODECS, codecSpec } from '../../src/codecs/registry.js';
import { verificationRefusal, type Draft } from '../../src/codecs/verification.js';
import { drive, type TimedRequest } from '../../src/decoder/serving/drive.js';
import { ServingLoop, type SequenceEngine } from '../../src/decoder/serving/loop.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import { SequenceCache } from '../../src/decoder/reference/cache.js';
import { exactAttention } from '../../src/decoder/reference/forward.js';
import { run } from '../../src/decoder/reference/network.js';
import { speculate } from './speculate.js';
import { greedy } from '../../src/decoder/sampler.js';
import { UserError } from '../../src/errors.js';
import { parseEviction, type Eviction } from '../../src/eviction/policy.js';
import { blocksOf, type Geometry } from '../../src/geometry/geometry.js';
import { randomOf, SEED } from '../gpu/random.js';
import { BRANCH, decoderOf, GEOMETRIES, learnedCodecs, modelOf, promptOf, type Setup } from './models.js';
import { expectSame, decoderFor } from './account.js';

const LOOPED = GEOMETRIES.filter((g) => g.loops > 1);
const OURO = GEOMETRIES[0]!;
const TOKENS = 10;

/** Every codec that this room decodes, with ranks that lose something and a window that holds a round. */
function setupsOf(g: Geometry, window: number): Setup[] {
  const learned = learnedCodecs(g, 0.5);
  const lla = learned[0]!;
  const hla: Codec = { kind: 'hla', rankK: g.headDim, rankV: 3, rankFirst: g.headDim, windowTokens: window };
  const codecs: Codec[] = [
    { kind: 'full' },
    { kind: 'cla', shareLayers: 2 },
    { kind: 'kv-quant', bits: 4 },
    { kind: 'residual-quant', residual: 'mixed-g32' },
    { kind: 'final-loop', shared: 'decode' },
    { kind: 'mean-loop', shared: 'two-pass' },
    ...learned,
    { ...lla, kind: 'lla-window', windowTokens: window },
    hla,
  ];
  return codecs
    .filter((codec) => codecSpec(codec).refuse(g, codec) === undefined)
    .flatMap((codec) =>
      codecSpec(codec).paths.flatMap((path): Setup[] => [
        { codec, path, seed: SEED },
        ...(path === 'reconstruct' && !codecSpec(codec).fusedOnly
          ? [{ codec, path, materialised: true, seed: SEED }]
          : []),
        ...(path === 'absorbed' ? [{ codec, path, branch: { ...BRANCH, perHead: true }, seed: SEED }] : []),
      ]),
    );
}

/** Rounds until there are as many tokens as wanted, beside steps one by one. */
function compare(g: Geometry, setup: Setup, draft: { draftLoops: number; draftTokens: number }) {
  const model = modelOf(g, SEED);
  const prompt = promptOf(g, 5, SEED);
  const [plain, speculating] = [decoderOf(model, setup), decoderOf(model, setup)];
  const first = greedy(plain.prefill(prompt, 'accumulated').at(-1) as Float64Array);
  speculating.prefill(prompt, 'accumulated');
  const [expected, tokens] = [[first], [first]];
  let [accepted, rejected] = [0, 0];
  while (tokens.length < TOKENS) {
    const round = speculate(speculating, tokens.at(-1)!, draft);
    tokens.push(...round.tokens);
    accepted += round.tokens.length - 1;
    rejected += draft.draftTokens - round.tokens.length + 1;
    while (expected.length < tokens.length) expected.push(greedy(plain.step(expected.at(-1)!)));
    expect(tokens).toEqual(expected);
    expect(speculating.length).toBe(plain.length);
    expect(speculating.cachedScalars, 'rows of rejected proposals are freed').toBe(plain.cachedScalars);
    for (const block of blocksOf(g))
      expect(speculating.keptPositions({ block: block.name, layer: 0, loop: 0 }, 0)).toEqual(
        plain.keptPositions({ block: block.name, layer: 0, loop: 0 }, 0),
      );
  }
  const last = tokens.at(-1)!;
  expect(speculating.step(last)).toEqual(plain.step(last));
  return { accepted, rejected };
}

/** Reference decoders as sequences of a serving loop. */
function engineOf(make: () => ReferenceDecoder, sequences: number, draft?: Draft): SequenceEngine {
  const decoders = Array.from({ length: sequences }, make);
  return {
    sequences,
    contextTokens: 64,
    ...(draft ? { draft } : {}),
    extend: (sequence, tokens) => {
      const logits = decoders[sequence]!.prefill(tokens, 'accumulated').at(-1)!;
      return Promise.resolve({ token: greedy(logits), seconds: 0 });
    },
    step: (last, joins) => {
      const next = (decoder: ReferenceDecoder, token: number): readonly number[] =>
        draft ? speculate(decoder, token, draft).tokens : [greedy(decoder.step(token))];
      return Promise.resolve({
        tokens: decoders.map((decoder, i) => (joins(i) ? next(decoder, last[i]!) : [])),
        seconds: 0,
      });
    },
    forget: (sequence) => void (decoders[sequence] = make()),
  };
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe('speculation by the first loops (seed ' + SEED + ')', () => {
  const random = randomOf(SEED);

  it('gives the tokens, the cache and the logits of greedy decoding, whatever the codec and path', () => {
    const kinds = new Set<string>();
    let [accepted, rejected] = [0, 0];
    for (const g of LOOPED) {
      const draft = { draftLoops: random.whole(1, g.loops - 1), draftTokens: random.whole(1, 6) };
      for (const setup of setupsOf(g, draft.draftTokens + random.whole(0, 2))) {
        if (verificationRefusal(setup.codec, null, draft) !== undefined) {
          const refused = (): unknown => speculate(decoderOf(modelOf(g, SEED), setup), 0, draft);
          expect(refused).toThrow(UserError);
          continue;
        }
        const rounding = random.pick([undefined, 'f16', 'q8', 'q4'] as const);
        const choice = rounding === undefined ? {} : { choice: { storage: rounding, groupSize: 32 } };
        const counts = compare(g, { ...setup, ...choice }, draft);
        kinds.add(`${setup.codec.kind} ${setup.path}`);
        accepted += counts.accepted;
        rejected += counts.rejected;
      }
    }
    expect([...kinds].sort()).toEqual(
      [
        'full full',
        'cla full',
        'kv-quant full',
        ...['fast', 'reconstruct', 'absorbed', 'block-absorbed'].map((path) => `mla-head ${path}`),
        ...['reconstruct', 'absorbed', 'block-absorbed'].map((path) => `lla-window ${path}`),
        'hla rotated',
      ]
        .filter((name) => CODECS[name.split(' ')[0] as Codec['kind']].paths.includes(name.split(' ')[1] as never))
        .sort(),
    );
    expect(accepted).toBeGreaterThan(0);
    expect(rejected).toBeGreaterThan(0);
  });

  it('gives requests that are served together their tokens without it, whatever the codec and path', async () => {
    let [rounds, steps] = [0, 0];
    for (const g of LOOPED) {
      const draft = { draftLoops: random.whole(1, g.loops - 1), draftTokens: random.whole(1, 6) };
      const setups = setupsOf(g, draft.draftTokens).filter(
        ({ codec }) => verificationRefusal(codec, null, draft) === undefined,
      );
      for (const setup of setups) {
        const model = modelOf(g, SEED);
        const requests: TimedRequest[] = Array.from({ length: 5 }, (_, id) => ({
          id,
          time: id * 1e-9,
          prompt: promptOf(g, random.whole(1, 9), SEED + id),
          maxTokens: random.whole(1, 9),
        }));
        // Whole prompts and no preemption: some codecs fill latents of a prompt in another way than those of a step.
        const options = {
          maxNumBatchedTokens: 9,
          chunkedPrefill: false,
          blockTokens: 8,
          blocks: 9,
          capTokens: Infinity,
        };
        const serve = async (own?: Draft): Promise<Map<number, readonly number[]>> => {
          const engine = engineOf(() => decoderOf(model, setup), 3, own);
          const served = await drive(new ServingLoop(engine, options), requests, ({ decoded }) => {
            if (own) rounds += decoded;
            else steps += decoded;
            return 1;
          });
          return new Map(served.map(({ id, tokens }) => [id, tokens]));
        };
        expect(await serve(draft), `${setup.codec.kind} ${setup.path}`).toEqual(await serve());
      }
    }
    expect(rounds).toBeLessThan(steps);
  });

  it('proposes what the first loops say of the whole text, where they read no latents', () => {
    for (const g of LOOPED) {
      const model = modelOf(g, SEED);
      const exitAfter = random.whole(1, g.loops - 1);
      const decoder = decoderFor(model, { codec: { kind: 'full' } });
      const [first, last] = [promptOf(g, 5, SEED), promptOf(g, 4, SEED + 1)];
      if (g.codaLayers === 0) decoder.prefill(first, 'accumulated');
      else first.splice(0);
      const all = [...first, ...last];
      const attention = exactAttention(model);
      const expected = run(model, all, [...all.keys()], attention, { exitAfter }).slice(first.length);
      const drafted = last.map((token) => decoder.draft(token, exitAfter));
      expectSame(drafted, expected);
    }
  });

  it('refuses what cannot be verified in one pass or taken back, with the reason', () => {
    const draft = { draftLoops: 1, draftTokens: 4 };
    const refuse = (codec: Codec, eviction: Eviction | null = null, of = draft, g = OURO): (() => unknown) => {
      const decoder = decoderFor(modelOf(g, SEED), { codec, eviction });
      return () => speculate(decoder, 0, of);
    };
    const [lla] = learnedCodecs(OURO, 0.5) as [Codec];
    expect(refuse(lla)).toThrow("lla has a token's rows only after the last loop");
    expect(refuse({ ...lla, kind: 'lla-window', windowTokens: 3 })).toThrow(
      '3 exact tokens, fewer than the 4 proposals',
    );
    const h2o = parseEviction('h2o:2+2', 'eviction');
    expect(refuse({ kind: 'full' }, h2o)).toThrow('evicts tokens that a rejected proposal cannot bring back');
    expect(refuse({ kind: 'full' }, null, { draftLoops: 3, draftTokens: 4 })).toThrow('3 draft loops of the 3');
    expect(refuse({ kind: 'full' }, null, { draftLoops: 1, draftTokens: 0 })).toThrow('0 proposals');
    expect(refuse({ kind: 'full' }, null, draft, GEOMETRIES.at(-1))).toThrow('of the 1 of');
  });

  it('is caught where a rejected row is not freed', () => {
    const join = Reflect.get(SequenceCache.prototype, 'join') as SequenceCache['join'];
    vi.spyOn(SequenceCache.prototype, 'join').mockImplementation(function (this: SequenceCache, positions) {
      // The row after the accepted ones stays.
      Reflect.apply(join, this, [positions.length < 4 ? [...positions, (positions.at(-1) ?? 0) + 1] : positions]);
    });
    expect(() => compare(OURO, { codec: { kind: 'full' }, seed: SEED }, { draftLoops: 1, draftTokens: 3 })).toThrow();
  });
});
