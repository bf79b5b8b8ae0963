/**
 * Which steps are measured: codecs, ratios, paths and evictions of the planner's list at contexts and batches off the
 * calibration's grid.
 */
import { configurationOf } from '../bench/calibrate/anchors.js';
import { validationModel } from '../bench/calibrate/lists.js';
import { UserError } from '../errors.js';
import { randomFrom } from '../numbers/random.js';
import { parseEviction } from '../eviction/policy.js';
import type { Geometry } from '../geometry/geometry.js';
import { candidateId, listCandidates } from '../plan/ask/candidates.js';
import { DEFAULT_TARGET_WORKGROUPS } from '../plan/ask/settings.js';
import type { CodecKind, PathChoice } from '../codecs/codec.js';
import type { Candidate } from '../plan/types.js';
import type { Configuration } from '../schedule/schedule.js';
import type { DecoderCase } from './decoding.js';
import type { PromptCase } from './prefill.js';
import type { ServingCase, ServingRun } from './serving-requests.js';

/** The part of a grid that a candidate names: kind, ratio, path and eviction. */
interface Choice {
  readonly kind: CodecKind;
  readonly ratio: number | null;
  readonly path: PathChoice;
  readonly eviction?: string;
}

const CHOICES: readonly Choice[] = [
  { kind: 'full', ratio: null, path: 'full' },
  { kind: 'lla', ratio: 4, path: 'reconstruct' },
  { kind: 'lla', ratio: 4, path: 'block-absorbed' },
  { kind: 'lla', ratio: 64 / 3, path: 'reconstruct' },
  { kind: 'lla', ratio: 64 / 3, path: 'block-absorbed' },
  { kind: 'lla', ratio: 4, path: 'absorbed' },
  { kind: 'lla', ratio: 4, path: 'materialised' },
  { kind: 'kv-quant', ratio: 4, path: 'full' },
  { kind: 'full', ratio: null, path: 'full', eviction: 'streaming:4+508' },
  { kind: 'lla', ratio: 4, path: 'reconstruct', eviction: 'streaming:4+508' },
  { kind: 'lla', ratio: 4, path: 'reconstruct', eviction: 'h2o:256+256' },
  { kind: 'lla', ratio: 4, path: 'fast' },
  { kind: 'lla', ratio: 8 / 3, path: 'block-absorbed' },
  { kind: 'lla', ratio: 64 / 3, path: 'absorbed' },
  { kind: 'kv-quant', ratio: 2, path: 'full' },
  { kind: 'kv-quant', ratio: 8, path: 'full' },
  { kind: 'final-loop', ratio: 4, path: 'full' },
  { kind: 'full', ratio: null, path: 'full', eviction: 'h2o:256+256' },
  { kind: 'lla', ratio: 64 / 3, path: 'block-absorbed', eviction: 'streaming:4+508' },
  { kind: 'mla-head', ratio: 4, path: 'reconstruct' },
  { kind: 'lla-2d', ratio: 32 / 3, path: 'absorbed' },
];
/** The part that `quick` measures. */
const QUICK_CHOICES = 3;
/** Vocabulary of the model that a software adapter serves: there have to be many requests, and so short iterations. */
const SERVED_VOCAB = 8192;

/** The model that requests are served by: on a software adapter half as wide as the one that is validated. */
export function servingModel(software: boolean, name: string | null): Geometry {
  const model = validationModel(software, name);
  return software
    ? {
        ...model,
        name: `${model.name}, half as wide`,
        hidden: model.hidden / 2,
        mlpHidden: model.mlpHidden / 2,
        vocab: Math.min(model.vocab, SERVED_VOCAB),
      }
    : model;
}

export interface GridRules {
  readonly geometry: Geometry;
  readonly software: boolean;
  readonly quick: boolean;
  readonly seed: number;
  readonly bindingBytes: number;
}

/** A choice as a candidate with its name and configuration. */
export interface Chosen {
  readonly id: string;
  readonly c: Configuration;
  readonly candidate: Candidate;
}

/** Null where the model does not have it. */
export function chosenOf(geometry: Geometry, choice: Choice, bindingBytes: number): Chosen | null {
  const candidate = candidateOf(geometry, choice);
  if (!candidate) return null;
  const c = configurationFor(geometry, candidate, bindingBytes);
  return { id: candidateId(geometry, candidate, 'f16'), c, candidate };
}

export function candidateOf(g: Geometry, { kind, ratio, path, eviction }: Choice): Candidate | null {
  try {
    const { candidates } = listCandidates(g, {
      kinds: [kind],
      ratios: ratio === null ? null : [ratio],
      ranks: null,
      paths: [path],
      evictions: [parseEviction(eviction ?? 'none', 'eviction')],
    });
    return candidates[0] ?? null;
  } catch (error) {
    // A codec that cannot exist for this model is not part of its grid.
    if (!(error instanceof UserError)) throw error;
    return null;
  }
}

export const configurationFor = (geometry: Geometry, candidate: Candidate, bindingBytes: number): Configuration =>
  configurationOf(geometry, candidate, { targetWorkgroups: DEFAULT_TARGET_WORKGROUPS, bindingBytes });

/**
 * Steps at two contexts a choice (one for `quick`). The first lies on the calibration's grid of contexts, one sequence;
 * the second is drawn between its points, with an odd batch, so that most of the shapes that hold the context or the
 * batch were never measured.
 */
export function stepGrid({ geometry, software, quick, seed, bindingBytes }: GridRules): DecoderCase[] {
  const random = randomFrom(seed);
  const [least, most] = software ? [512, quick ? 1024 : 4096] : [1024, 32_768];
  const drawn = (low: number, high: number): number => Math.round((low * (high / low) ** random()) / 32) * 32;
  const batches = software ? (quick ? [1, 2] : [1, 2, 3, 5]) : [3, 5, 7, 11, 24];
  return CHOICES.slice(0, quick ? QUICK_CHOICES : undefined).flatMap((choice): DecoderCase[] => {
    const chosen = chosenOf(geometry, choice, bindingBytes);
    if (!chosen) return [];
    const { id, c } = chosen;
    const at = (batch: number, contextTokens: number): DecoderCase => ({ id, c, batch, contextTokens });
    const off = at(batches[Math.floor(random() * batches.length)] as number, drawn(least, most));
    return quick ? [off] : [at(1, 2 ** Math.round(Math.log2(drawn(least, most)))), off];
  });
}

/** Prompts: rows of full width and latents, whole and in chunks; of `quick` one. */
export function promptGrid({ geometry, software, quick, bindingBytes }: Omit<GridRules, 'seed'>): PromptCase[] {
  const [promptTokens, chunkTokens] = software ? (quick ? [32, 32] : [48, 24]) : [2048, 512];
  const prompts: PromptCase['prompt'][] = [
    { method: 'accumulated', promptTokens, chunkTokens: promptTokens },
    ...(quick ? [] : [{ method: 'chunked' as const, promptTokens, chunkTokens }]),
  ];
  const choices: readonly Choice[] = [
    { kind: 'full', ratio: null, path: 'full' },
    ...(quick ? [] : [{ kind: 'lla', ratio: 4, path: 'reconstruct' } as const]),
  ];
  return choices.flatMap((choice) => {
    const chosen = chosenOf(geometry, choice, bindingBytes);
    return chosen ? prompts.map((prompt): PromptCase => ({ id: chosen.id, c: chosen.c, prompt })) : [];
  });
}

/** Requests for the serving loop: rows of full width, latents, and eviction, which takes whole prompts. */
export function servingGrid({ geometry, software, bindingBytes }: Omit<GridRules, 'seed' | 'quick'>): ServingCase[] {
  const sizes: Sizes = software
    ? { sequences: 4, rehearsed: 96, maxNumBatchedTokens: 24, promptTokens: [8, 40], outputTokens: [4, 12] }
    : { sequences: 16, rehearsed: 128, maxNumBatchedTokens: 512, promptTokens: [64, 1024], outputTokens: [16, 256] };
  // Shares of the server's capacity: requests mostly wait, and whom each waits for hangs on single iterations; or they
  // hardly wait.
  const heavy: ServingRun = { load: 0.8, requests: 128 };
  const few = software ? 48 : 128;
  const light: ServingRun = { load: 0.3, requests: few };
  const atOnce: ServingRun = { load: null, requests: few };
  const evicting = software ? 'streaming:4+28' : 'streaming:4+508';
  // The acceptance is that of Ouro-1.4B by two loops, rounded.
  const speculation = { draftLoops: 2, draftTokens: 4, acceptance: 0.9, source: null, seed: 1 };
  const kinds: readonly (Choice & Pick<ServingCase, 'runs' | 'chunkedPrefill' | 'speculation'>)[] = [
    { kind: 'full', ratio: null, path: 'full', runs: [heavy, light], chunkedPrefill: true },
    { kind: 'full', ratio: null, path: 'full', runs: [atOnce], chunkedPrefill: true, speculation },
    { kind: 'lla', ratio: 4, path: 'block-absorbed', runs: [atOnce], chunkedPrefill: true },
    { kind: 'full', ratio: null, path: 'full', eviction: evicting, runs: [heavy], chunkedPrefill: false },
  ];
  return kinds.flatMap(({ runs, chunkedPrefill, speculation: drawn, ...choice }): ServingCase[] => {
    const chosen = chosenOf(geometry, choice, bindingBytes);
    if (!chosen) return [];
    const { id, c } = chosen;
    const own = { c, runs, chunkedPrefill, ...sizes };
    return [drawn ? { ...own, id: `${id}, speculating`, speculation: drawn } : { ...own, id }];
  });
}

type Sizes = Pick<ServingCase, 'sequences' | 'rehearsed' | 'maxNumBatchedTokens' | 'promptTokens' | 'outputTokens'>;
