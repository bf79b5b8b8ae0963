/** The question of `lla-sim run`: model, prompt, codec and path, read from its options. */
import { existsSync, realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  GREEDY,
  openCheckpoint,
  readTokenizer,
  unknownWords,
  type Checkpoint,
  type Sampling,
  type Tokenizer,
} from '../../decoder/index.js';
import { pathSpec } from '../../codecs/paths.js';
import { requireVerifiable, type Draft } from '../../codecs/verification.js';
import { decodedAs } from '../../decoder/decodable.js';
import { PREFILL_METHODS, type PrefillMethod } from '../../decoder/gpu/prefill-methods.js';
import { UserError, show } from '../../errors.js';
import { fingerprintOfFolder, fingerprintOfSeed } from '../../io/fingerprint.js';
import type { Geometry } from '../../geometry/geometry.js';
import { flagOf, SETTINGS, type Scenario } from '../../schema/settings.js';
import { bundledFolder, readModelFile } from '../../geometry/model-file.js';
import { LIMITS } from '../../geometry/config.js';
import { BUNDLED_NAMES, findPreset, mostLayers, withLayers, withLoops } from '../../geometry/presets.js';
import { codecSpec } from '../../codecs/registry.js';
import { candidateId, listCandidates } from '../../plan/ask/candidates.js';
import { readQuestion } from '../../plan/ask/settings.js';
import { isModelFile } from '../../plan/ask/sources.js';
import type { Candidate } from '../../plan/types.js';
import { randomFrom } from '../../numbers/random.js';
import { readBounds } from '../../schema/setting-text.js';
import { PREFILL_CHUNK_TOKENS } from '../../schedule/prefill/prefill.js';
import type { Configuration } from '../../schedule/schedule.js';
import { TINY_FOLDER } from '../../tiny/model.js';
import { passkeyTask, type Task } from '../../tiny/tasks.js';
import { parseBytes, parseNumber, parseTokens } from '../../numbers/units.js';
import { type Args } from '../command.js';
import { say } from '../output.js';
import { readDraft } from './run-speculate.js';

export const WEIGHTS = ['f16', 'f32'] as const;
/** Decoded where flags ask for fabricated weights and no model is named. */
const SHAPE = 'ouro-1.4b';
/** Tokens of the prompt that the bundled model is asked where none is given. */
const ASKED_TOKENS = 64;

/** The model, its weights and its tokenizer. */
export interface Loaded {
  readonly geometry: Geometry;
  readonly checkpoint: Checkpoint | null;
  readonly tokenizer: Tokenizer | null;
  /** A model that comes with the program: its vocabulary and its tasks are known. */
  readonly bundled: boolean;
}

/** The folder of a bundled model, which its name or its folder names; lla-tiny's unless asked. null for others. */
function bundledFor(asked: string | null): string | null {
  if (asked === null) return TINY_FOLDER;
  const path = existsSync(asked) ? realpathSync(asked) : null;
  const name = BUNDLED_NAMES.find((known) => known === asked || realpathSync(bundledFolder(known)) === path);
  return name === undefined ? null : bundledFolder(name);
}

/**
 * A folder with weights is a checkpoint; everything else is a shape. Without a model, and without flags that are for
 * fabricated weights, it is the bundled checkpoint.
 */
export function loadModel(args: Args): Loaded {
  const asked = args.text('model');
  const folder = ['layers', 'vocab', 'fill'].every((flag) => args.text(flag) === null) ? bundledFor(asked) : null;
  const bundled = folder !== null;
  const name = folder ?? asked ?? SHAPE;
  const file = args.text('tokenizer');
  const isFolder = existsSync(name) && statSync(name).isDirectory();
  const hasWeights =
    isFolder &&
    ['model.safetensors', 'model.safetensors.index.json'].some((weights) => existsSync(join(name, weights)));
  const checkpoint = hasWeights ? openCheckpoint(name) : null;
  try {
    const named = checkpoint?.geometry ?? (isFolder || isModelFile(name) ? readModelFile(name) : findPreset(name));
    const loops = args.text('loops');
    const whole =
      loops === null
        ? named
        : withLoops(named, parseNumber(loops, '--loops', { min: 1, max: LIMITS.loops, whole: true }));
    const reduced = (flag: 'layers' | 'vocab'): number => {
      const value = args.text(flag);
      if (value !== null && checkpoint)
        throw new UserError(
          `--${flag} is for fabricated weights: a checkpoint is decoded whole`,
          `leave --${flag} out, or name a preset`,
        );
      const max = flag === 'layers' ? mostLayers(whole) : whole.vocab;
      return value === null ? max : parseNumber(value, `--${flag}`, { min: 1, max, whole: true });
    };
    const geometry = decodedAs({ ...withLayers(whole, reduced('layers')), vocab: reduced('vocab') });
    const tokenizerFile = file ?? checkpoint?.tokenizerFile ?? null;
    return {
      geometry,
      checkpoint,
      tokenizer: tokenizerFile === null ? null : readTokenizer(tokenizerFile, geometry.vocab),
      bundled,
    };
  } catch (error) {
    checkpoint?.tensors.close();
    throw error;
  }
}

/** The fingerprint of a loaded model, by which a codec's file names it. @param seed of fabricated weights */
export const modelFingerprint = ({ checkpoint, geometry }: Loaded, seed: number): string =>
  checkpoint ? fingerprintOfFolder(checkpoint.folder) : fingerprintOfSeed(geometry, seed);

export interface RunQuestion {
  readonly candidate: Candidate;
  readonly id: string;
  readonly configuration: Omit<Configuration, 'bindingBytes'>;
  readonly prompt: readonly number[];
  /** The question of the prompt with its answer, where the bundled model is asked one of its own. */
  readonly task: Task | null;
  /** The decoder's own choice where undefined. */
  readonly prefill: PrefillMethod | undefined;
  readonly chunkTokens: number;
  readonly fill: number;
  readonly batch: number;
  readonly maxTokens: number;
  readonly contextTokens: number;
  readonly pageTokens: number;
  readonly storage: 'f16' | 'f32';
  readonly sampling: Sampling;
  readonly seed: number;
  readonly stop: number | null;
  /** Speculation by the first loops. */
  readonly draft: Draft | null;
  readonly vramBytes: number | null;
}

/** Reads everything but the model. @throws UserError naming the flag, its rule and the value */
export function readRun(args: Args, loaded: Loaded): RunQuestion {
  const { geometry } = loaded;
  const whole = (name: string, otherwise: number, min: number, max: number): number =>
    parseNumber(args.text(name) ?? String(otherwise), `--${name}`, { min, max, whole: true });
  const seed = args.seed();
  const given = readPrompt(args, loaded);
  const task = given === null ? passkeyTask(randomFrom(seed), ASKED_TOKENS) : null;
  const prompt = given ?? (task as Task).prompt;
  const fill = args.text('fill') === null ? 0 : parseTokens(args.text('fill') as string, '--fill');
  const maxTokens = whole('max-tokens', task?.answer.length ?? 32, 1, 2 ** 20);
  const draft = readDraft(args, geometry.loops);
  // A last round may begin with one token left.
  const needed = fill + prompt.length + maxTokens - 1 + (draft?.draftTokens ?? 0);
  const ctx = args.text('ctx');
  const contextTokens = ctx === null ? needed : parseTokens(ctx, '--ctx');
  if (contextTokens < needed)
    throw new UserError(
      `--ctx ${contextTokens} is less than the ${needed} tokens that prompt, ` +
        `--max-tokens${draft ? ' and proposals' : ''} need`,
      'give a longer --ctx, or generate fewer tokens',
    );
  const storage = args.choice('weights', WEIGHTS);
  const stop = args.text('stop') === null ? null : whole('stop', 0, 0, geometry.vocab - 1);
  const batch = whole('batch', 1, 1, 2 ** 20);
  if (stop !== null && batch > 1)
    throw new UserError('--stop ends one sequence, and --batch asks for several', 'leave one of them out');
  const temperature = args.number('temperature', '0', { min: 0, max: 100 });
  const topP = args.number('top-p', '1', { min: 1e-6, max: 1 });
  if (temperature === 0 && args.text('top-p') !== null)
    throw new UserError(
      '--top-p means nothing without --temperature: the likeliest token is taken',
      'add --temperature 1, or leave --top-p out',
    );
  const vram = args.text('vram');
  const prefill = args.text('prefill') === null ? undefined : args.choice('prefill', PREFILL_METHODS);
  const chunkTokens = parseTokens(args.text('prefill-chunk') ?? String(PREFILL_CHUNK_TOKENS), '--prefill-chunk');
  const { candidate, id, ...rest } = readCandidate(args, geometry, contextTokens);
  if (draft && temperature > 0)
    throw new UserError('--draft-tokens speculates greedily, and --temperature draws tokens', 'leave one of them out');
  if (draft) requireVerifiable(geometry, candidate.codec, candidate.eviction, draft);
  return {
    candidate,
    id,
    ...rest,
    prompt,
    task,
    prefill,
    chunkTokens,
    fill,
    batch,
    maxTokens,
    contextTokens,
    storage,
    seed,
    stop,
    draft,
    sampling: temperature === 0 ? GREEDY : { temperature, topP, seed },
    vramBytes: vram === null ? null : parseBytes(vram, '--vram'),
  };
}

/** @returns null where none is given and the bundled model is asked a question of its own */
function readPrompt(args: Args, { geometry: g, tokenizer, bundled }: Loaded): number[] | null {
  const [tokens, text] = [args.text('tokens'), args.text('text')];
  if (tokens !== null && text !== null) throw new UserError('--tokens and --text are two prompts', 'give one of them');
  if (text !== null) {
    if (!tokenizer)
      throw new UserError('--text needs a tokenizer', 'give its file with --tokenizer, or token numbers with --tokens');
    const encoded = tokenizer.encode(text);
    if (encoded.length === 0) throw new UserError('--text makes no token', 'give a longer text');
    const unknown = unknownWords(tokenizer, encoded, '--text');
    if (unknown !== null) say(args.isSet('quiet'), unknown);
    return encoded;
  }
  if (tokens === null) {
    if (bundled) return null;
    if (args.text('fill') !== null) return [0];
    throw new UserError('there is no prompt', 'give --tokens 1,2,3, or --text with a tokenizer, or --fill 4k');
  }
  return tokens
    .split(',')
    .map((word) => parseNumber(word.trim(), '--tokens', { min: 0, max: g.vocab - 1, whole: true }));
}

/** One codec and path out of the planner's list. */
export function readCandidate(
  args: Args,
  geometry: Geometry,
  contextTokens: number,
): Pick<RunQuestion, 'candidate' | 'id' | 'configuration' | 'pageTokens'> {
  const one = (name: string): string | null => {
    const value = args.text(name);
    if (value?.includes(','))
      throw new UserError(`--${name} takes one value here, not ${show(value)}`, 'decode them one after the other');
    return value;
  };
  const kind = one('codec') ?? (one('ranks') === null ? 'full' : 'lla');
  const given: Record<string, string | readonly string[]> = {};
  const constants = args.text('constants');
  const { example } = SETTINGS.constants;
  for (const name of ['ratio', 'ranks', 'path', 'eviction', 'window', 'shared', 'cacheType', 'groupSize'] as const) {
    const value = one(flagOf(name));
    if (value !== null) given[name] = SETTINGS[name].kind === 'list' ? [value] : value;
  }
  const scenario: Scenario = {
    context: contextTokens,
    codec: [kind],
    ...given,
    ...(constants === null ? {} : { constants: readBounds(constants.split(','), '--constants', example) }),
  };
  const { filter, choice, branch, pageTokens, targetWorkgroups, cacheType: type } = readQuestion(scenario, geometry);
  const { candidates: all } = listCandidates(geometry, filter);
  // In float64 settings that count tokens otherwise decode alike.
  const decoded = all.filter(({ codec }) => codecSpec(codec).referenceOnly?.(codec) === undefined);
  const candidates = decoded.length > 0 ? decoded : all;
  const candidate =
    given.path === undefined
      ? (candidates.find((c) => pathSpec(c.path).materialises && !c.materialised) ?? (candidates[0] as Candidate))
      : (candidates[0] as Candidate);
  return {
    candidate,
    id: candidateId(geometry, candidate, type),
    configuration: { geometry, ...candidate, choice, branch, gpus: 1, targetWorkgroups },
    pageTokens,
  };
}
