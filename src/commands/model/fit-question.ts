/** The model and the text that `fit` and `fidelity` work on, read from their options. */
import { statSync } from 'node:fs';
import { unknownWords, type TensorSource, type Tokenizer } from '../../decoder/index.js';
import type { Teacher } from '../../fit/capture.js';
import { readText, readTokens, windowsOf } from '../../fit/windows.js';
import { UserError } from '../../errors.js';
import { LEAST_JUDGED, longRollouts, longTextRollouts, taskItems, textItems, type Item } from '../../fidelity/items.js';
import { displayPath } from '../../io/files.js';
import { mix } from '../../numbers/hash.js';
import { untrainedTwin } from '../../tiny/model.js';
import { lesson } from '../../tiny/tasks.js';
import { fingerprintOfSeed } from '../../io/fingerprint.js';
import type { Geometry } from '../../geometry/geometry.js';
import { PRESET_NAMES } from '../../geometry/presets.js';
import type { Device } from '../../gpu/index.js';
import { randomFrom } from '../../numbers/random.js';
import { parseTokens } from '../../numbers/units.js';
import { option, type Args, type OptionTable } from '../command.js';
import { say } from '../output.js';
import { loadModel, modelFingerprint, WEIGHTS } from './run-question.js';

/** Tokens of a window, where the model reaches as far. */
const WINDOW_TOKENS = 256;
/** Tokens that a codec is fitted to unless asked otherwise: a latent of 512 numbers has its covariance by then. */
const CALIBRATION_TOKENS = 16_384;

/** Seeds of the bundled model's texts, for fitting and for judging: neither sees the other's. */
const CALIBRATION_SEED = 0x66697421;
const JUDGED_SEED = 0x6a756467;
const LONG_SEED = 0x6c6f6e67;
/** Of the weights of an untrained twin. */
const TWIN_SEED = 1;

export const TEACHER_OPTIONS: OptionTable = {
  model: option(
    'folder with config.json and safetensors, a bundled model, or a preset with fabricated weights [lla-tiny]',
    'Model',
    { proposals: PRESET_NAMES },
  ),
  layers: option('core layers of a model with fabricated weights [all]', 'Model'),
  vocab: option('vocabulary of a model with fabricated weights [all]', 'Model'),
  weights: option('element type of the weights [f16]', 'Model', { choices: WEIGHTS }),
  text: option('text file to fit to', 'Text'),
  tokens: option('file of token numbers to fit to, instead of a text', 'Text'),
  tokenizer: option('tokenizer.json [the one of the checkpoint]', 'Text'),
  'max-tokens': option('tokens of it that are used [16k]', 'Text'),
  window: option('tokens of a sequence that the text is cut into [256]', 'Text'),
  seed: option('of fabricated weights and random directions [0]', 'Model'),
};

/** Models whose text was checked for unknown words: fitting and judging read the same text. */
const WARNED = new WeakSet<LoadedTeacher>();

/** A model whose codec is fitted or judged. */
export interface LoadedTeacher {
  readonly geometry: Geometry;
  readonly tokenizer: Tokenizer | null;
  readonly trained: boolean;
  /** The model that comes with the program, whose tasks are known. */
  readonly bundled: boolean;
  fingerprint(seed: number): string;
  teacher(device: Device, seed: number): Teacher;
  /** The same shape untrained: the bundled model's beginning, others with fabricated weights. */
  twin(device: Device): Teacher;
  readonly twinFingerprint: string;
  close(): void;
}

/**
 * The model that a codec is fitted to, or judged on; says on stderr where its weights are fabricated.
 * @throws UserError for a folder without weights: what is fitted to others says nothing of that model
 */
export function teacherOf(args: Args): LoadedTeacher {
  const loaded = loadModel(args);
  const { geometry, checkpoint, tokenizer } = loaded;
  if (checkpoint === null) {
    const name = args.text('model');
    if (name !== null && statSync(name, { throwIfNoEntry: false })?.isDirectory())
      throw new UserError(
        `${displayPath(name)} has no weights: neither model.safetensors nor model.safetensors.index.json`,
        'put them there; a config.json alone is a shape, whose weights are fabricated: name that file',
      );
    say(
      args.isSet('quiet'),
      'warning: the weights are fabricated, so the codec and its quality say nothing of a model',
    );
  }
  const storage = args.choice('weights', WEIGHTS);
  const normEpsilon = checkpoint?.normEpsilon ?? 1e-6;
  const withWeights = (device: Device, seed: number, model: TensorSource | undefined): Teacher => ({
    ...{ device, geometry, normEpsilon },
    weights: { storage, seed, ...(model ? { model } : {}) },
  });
  return {
    geometry,
    tokenizer,
    trained: checkpoint !== null,
    bundled: loaded.bundled,
    fingerprint: (seed) => modelFingerprint(loaded, seed),
    teacher: (device, seed) => withWeights(device, seed, checkpoint?.tensors),
    // The bundled model's twin is another one than fabricated weights of this shape.
    twinFingerprint: fingerprintOfSeed(geometry, TWIN_SEED + (loaded.bundled ? 1 : 0)),
    twin: (device) => withWeights(device, TWIN_SEED, loaded.bundled ? untrainedTwin(geometry) : undefined),
    close: () => checkpoint?.tensors.close(),
  };
}

/**
 * The windows that a codec is fitted to.
 * @param windowTokens of each, unless --window says it
 * @throws UserError where there is no text for the model
 */
export const calibrationWindows = (args: Args, loaded: LoadedTeacher, windowTokens = WINDOW_TOKENS): number[][] => {
  const windows = windowsFor(args, loaded, windowTokens);
  return hasTasks(args, loaded) ? windows : divided(windows).fitted;
};

/** True for the bundled model where no text is given: it has tasks of its own. */
const hasTasks = (args: Args, { bundled }: LoadedTeacher): boolean =>
  bundled && args.text('text') === null && args.text('tokens') === null;

/**
 * What a model is asked: the bundled model its own tasks, unless a text is given; others the last quarter of their
 * text, which no codec is fitted to.
 */
export function itemsOf(args: Args, loaded: LoadedTeacher, seed: number): Item[] {
  if (hasTasks(args, loaded)) return taskItems(mix(JUDGED_SEED + seed));
  const items = textItems(divided(windowsFor(args, loaded)).judged);
  if (items.length === 0)
    throw new UserError(
      `the last quarter of the text has no window of ${LEAST_JUDGED} tokens to judge on`,
      'give a longer text, or a larger --window or --max-tokens',
    );
  return items;
}

/** Long rollouts, of texts that no codec is fitted to. */
export const longRolloutsOf = (args: Args, loaded: LoadedTeacher, seed: number): Item[] =>
  hasTasks(args, loaded)
    ? longRollouts(mix(LONG_SEED + seed))
    : longTextRollouts(divided(windowsFor(args, loaded)).judged);

/** The first three quarters for fitting, the rest for judging. */
function divided(windows: readonly number[][]): { fitted: number[][]; judged: number[][] } {
  const cut = Math.max(1, Math.floor((windows.length * 3) / 4));
  return { fitted: windows.slice(0, cut), judged: windows.slice(cut) };
}

function windowsFor(args: Args, loaded: LoadedTeacher, windowTokens = WINDOW_TOKENS): number[][] {
  const { geometry: g, tokenizer } = loaded;
  const [text, file] = [args.text('text'), args.text('tokens')];
  const most = parseTokens(args.text('max-tokens') ?? String(CALIBRATION_TOKENS), '--max-tokens');
  const asked = parseTokens(args.text('window') ?? String(windowTokens), '--window');
  const length = Math.min(asked, g.maxPositions, most);
  if (text !== null && file !== null) throw new UserError('--text and --tokens are two texts', 'give one of them');
  if (text === null && file === null) {
    const random = randomFrom(CALIBRATION_SEED);
    if (loaded.bundled)
      return Array.from({ length: Math.floor(most / length) }, () => [...lesson(random, length).tokens]);
    if (loaded.trained)
      throw new UserError('there is no text to fit to', 'give --text FILE, or --tokens FILE with token numbers');
    // Weights without a meaning have no text either.
    return windowsOf(
      Array.from({ length: most }, () => Math.floor(random() * g.vocab)),
      length,
    );
  }
  const tokens = (text !== null ? readText(text, tokenizer) : readTokens(file as string, g.vocab)).slice(0, most);
  if (text !== null && tokenizer && !WARNED.has(loaded)) {
    const unknown = unknownWords(tokenizer, tokens, displayPath(text));
    if (unknown !== null) say(args.isSet('quiet'), unknown);
    WARNED.add(loaded);
  }
  return windowsOf(tokens, length);
}
