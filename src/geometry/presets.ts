/** Looped models whose shape is known in full. Data only; `parameterCount` of each equals its published count. */
import { nearestName } from '../nearest.js';
import { UserError, show } from '../errors.js';
import type { Geometry } from './geometry.js';
import { LOOPED } from './presets/looped.js';
import { RETROFITTED } from './presets/retrofitted.js';
import { UNLIKE } from './presets/unlike.js';

/** Every model that can be named instead of given as a `config.json`. */
export const PRESETS: readonly Geometry[] = [...LOOPED, ...RETROFITTED, ...UNLIKE];

export const PRESET_NAMES: readonly string[] = PRESETS.map((p) => p.name);

/** Other names that people write, lower case, each to the preset it means. */
const ALIASES: Readonly<Record<string, string>> = {
  'ouro-2.6b-thinking': 'ouro-2.6b',
  huginn: 'huginn-3.5b',
  'huginn-0125': 'huginn-3.5b',
  'nanbeige4.2': 'nanbeige4.2-3b',
  'nanbeige4.2-3b-base': 'nanbeige4.2-3b',
  'recurrent-llama-3.2': 'recurrent-llama-3.2-1b',
  'recurrent-olmo-2-0425': 'recurrent-olmo-2-1b',
  'recurrent-tinyllama-3t': 'recurrent-tinyllama-1.1b',
  'kohrm-text-1.4b': 'kohrm-1.4b',
  'dfm-mimir': 'mimir-1b',
  'iquest-coder-v1-40b-loop-instruct': 'iquest-coder-v1-40b-loop',
  'loopcoder-v2': 'loopcoder-v2-7b',
  'lumma-0.6b-base': 'lumma-0.6b',
  'qwen3_1.7b_loopus': 'loopus-qwen3-1.7b',
};

/** Aliases that are checkpoints of their own, of a preset's shape, which keep their names. */
const CHECKPOINTS: readonly string[] = ['ouro-2.6b-thinking'];

/**
 * Hugging Face owners that publish these models; `owner/name` means `name`, while any other `folder/name` is a path.
 */
const OWNERS = [
  'bytedance',
  'tomg-group-umd',
  'nanbeige',
  'smcleish',
  'irafm-llm',
  'sapientinc',
  'llm-os-models',
  'danish-foundation-models',
  'sandyresearch',
  'iquestlab',
  'multilingual-multimodal-nlp',
  'frontiersmind',
  'thrillcrazyer',
];
const OWNER = new RegExp(`^(${OWNERS.join('|')})/`);
/** Checkpoints of one shape that were trained with other numbers of loops are named after it. */
const TRAINED_LOOPS = /-train-recurrence-([1-9]\d{0,2})$/;

interface Target {
  readonly name: string;
  /** Its own name, where it is another than the preset's. */
  readonly checkpoint: string | null;
  /** Where the name says so. */
  readonly loops: number | null;
}

function targetOf(name: string): Target {
  const wanted = name.trim().toLowerCase().replace(OWNER, '');
  const loops = TRAINED_LOOPS.exec(wanted)?.[1];
  const plain = wanted.replace(TRAINED_LOOPS, '');
  return {
    name: (Object.hasOwn(ALIASES, plain) ? ALIASES[plain] : undefined) ?? plain,
    checkpoint: CHECKPOINTS.includes(plain) ? plain : null,
    loops: loops === undefined ? null : Number(loops),
  };
}

/** The most layers that `withLayers` takes. */
export const mostLayers = ({ layers, stacks }: Geometry): number =>
  stacks ? Math.min(...stacks.map((stack) => stack.layers)) : layers;

/** A model of fewer core layers, or with so many in each stack. */
export function withLayers(g: Geometry, layers: number): Geometry {
  if (!g.stacks) return { ...g, layers };
  const stacks = g.stacks.map(({ runs }) => ({ layers, runs }));
  return { ...g, stacks, layers: stacks.reduce((sum, stack) => sum + stack.layers * stack.runs, 0) };
}

/**
 * A model with another number of loops than it was trained with, under a name that says so.
 * @throws UserError where its file or class fixes the number
 */
export function withLoops(g: Geometry, loops: number): Geometry {
  if (loops === g.loops) return g;
  if (!g.loopsAreChosen)
    throw new UserError(
      g.loops === 1
        ? `--loops ${loops}: ${g.name} does not loop`
        : `--loops ${loops}: ${g.name} always runs ${g.loops} loops`,
      'leave --loops out; lla-sim models lists those whose loops are chosen',
    );
  const { modelType, ...other } = g;
  return { ...other, loops, name: `${g.name}-r${loops}`, trained: { model: modelType ?? g.name, loops: g.loops } };
}

/** The preset whose shape a model that was read from a file has; they may be different checkpoints. */
export const presetOfShape = (g: Geometry): string | undefined => {
  const shape = ({ name: _name, source: _source, modelType: _type, ...rest }: Geometry): string =>
    JSON.stringify(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
  return PRESETS.find((p) => shape(p) === shape(g))?.name;
};

/** Models whose weights come with the program, in folders of these names. */
export const BUNDLED_NAMES = ['lla-tiny', 'lla-small'] as const;
export type BundledName = (typeof BUNDLED_NAMES)[number];

/** True for the name of a bundled model, which a machine has as a folder, and a page has not. */
export const isBundled = (name: string): name is BundledName => BUNDLED_NAMES.some((known) => known === name);

/** True for the name, alias or Hugging Face id of a preset. Anything else with a slash is a path. */
export const isPreset = (name: string): boolean => PRESET_NAMES.includes(targetOf(name).name);

/** The preset whose published figures a preset's shape has: its own name, but for a checkpoint with one of its own. */
export const presetOf = ({ name }: Pick<Geometry, 'name'>): string =>
  CHECKPOINTS.includes(name) ? ALIASES[name]! : name;

/**
 * The preset of this name or alias, case-insensitive, with or without its Hugging Face owner (`ByteDance/Ouro-1.4B`).
 * @throws UserError naming the known presets, and the likeliest one where there is one
 */
export function findPreset(name: string): Geometry {
  const target = targetOf(name);
  const found = PRESETS.find((p) => p.name === target.name);
  if (found) {
    const named = target.checkpoint === null ? found : { ...found, name: target.checkpoint };
    if (target.loops === null) return named;
    // A checkpoint of its own, that was trained with so many.
    const { trained: _, ...own } = withLoops(named, target.loops);
    return own;
  }
  const known = [...PRESET_NAMES, ...Object.keys(ALIASES), ...BUNDLED_NAMES];
  const guess = nearestName(name.trim().toLowerCase().replace(OWNER, ''), known);
  const did = guess === undefined ? '' : `did you mean ${guess}? `;
  throw new UserError(
    `unknown model ${show(name)}`,
    `${did}lla-sim models lists all ${PRESETS.length} that have names; or give the path of a config.json`,
  );
}
