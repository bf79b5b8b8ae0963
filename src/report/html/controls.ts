/** The page's controls: which settings they change, what they show, and how their text becomes a scenario again. */
import { DEVICES, memoryOf } from '../../devices/catalogue.js';
import type { Sources } from '../../plan/ask/prepare.js';
import { FIELDS, fieldText, type Field } from '../../schema/fields.js';
import { readBounds } from '../../schema/setting-text.js';
import { flagOf, type Scenario } from '../../schema/settings.js';
import { stackLabel } from '../../stacks/serving.js';
import { STACKS } from '../../stacks/serving.js';
import { formatDecimalBytes, formatTokens } from '../../numbers/units.js';
import type { PageData } from '../page-data.js';
import { sourcesFor } from './sources.js';

/** Settings that the page changes, in its order: what each is called, and a hint. */
const WORDS = {
  model: ['Model', 'shape and published quality'],
  device: ['Device', 'memory and kernels'],
  users: ['Users', 'served at once, over replicas; empty: one replica'],
  gpus: ['GPUs', 'that share the model; empty: 1, or the best for the users'],
  stack: ['Kernels', 'of which server'],
  usdPerHour: ['Price', '$ for a GPU-hour; empty: none'],
  batch: ['Batch', 'sequences together on one replica; empty: the plan’s best'],
  context: ['Context', 'tokens a user: 4096, 64k, 1M'],
  tpot: ['Longest time a token', 'such as 80ms; empty: any'],
  ttft: ['Longest first token', 'such as 2s; empty: any'],
  min: ['Least quality', 'such as gsm8k=0.75, or gsm8k@isocache=0.7'],
  retrieval: ['Reliable retrieval', 'tokens, such as 32k; empty: any'],
  keep: ['Scores to keep', 'share of the uncompressed model’s; empty: 0.9'],
} as const satisfies Partial<Record<keyof Scenario, readonly [label: string, hint: string]>>;
type ControlName = keyof typeof WORDS;
const CONTROLS = Object.keys(WORDS) as ControlName[];
export type ControlValues = Readonly<Record<ControlName, string>>;

export interface Control {
  readonly name: ControlName;
  readonly label: string;
  readonly hint: string;
  readonly value: string;
  /** Values and what they are called. */
  readonly choices?: readonly (readonly [value: string, title: string])[];
}

/** What the controls show before anything is changed. */
export function initialValues({ scenario, sources }: PageData): ControlValues {
  const asked = (name: ControlName): string => fieldText(scenario, FIELDS.get(flagOf(name)) as Field) ?? '';
  return {
    ...(Object.fromEntries(CONTROLS.map((name) => [name, asked(name)])) as ControlValues),
    model: sources.model.publishedAs ?? sources.model.geometry.name,
    device: sources.spec?.id ?? '',
    context: asked('context') || formatTokens(4096),
  };
}

/** @param presets names of the models that are known; a model from a file comes before them */
export function controlsOf(data: PageData, presets: readonly string[]): Control[] {
  const values = initialValues(data);
  const models = presets.includes(values.model) ? presets : [values.model, ...presets];
  const { sources } = data;
  const own = `${sources.device.name}, ${formatDecimalBytes(sources.device.vramBytes)}`;
  const devices = DEVICES.map((spec): [string, string] => [
    spec.id,
    spec.id === values.device ? own : `${spec.name}, ${formatDecimalBytes(memoryOf(spec))}`,
  ]);
  const stacks: [string, string][] = [
    ['', 'chosen for the device'],
    ...STACKS.map((stack): [string, string] => [stack, stackLabel(stack)]),
    ['attainable', 'what tuned kernels reach'],
  ];
  if (!stacks.some(([stack]) => stack === values.stack)) stacks.unshift([values.stack, values.stack]);
  const choices: Partial<Record<ControlName, NonNullable<Control['choices']>>> = {
    model: models.map((m) => [m, m]),
    device: sources.spec === null ? [['', own], ...devices] : devices,
    stack: stacks,
  };
  return CONTROLS.map((name) => {
    const [label, hint] = WORDS[name];
    return { name, label, hint, value: values[name], ...(choices[name] ? { choices: choices[name] } : {}) };
  });
}

/** A question of the controls. */
export interface Asked {
  readonly scenario: Scenario;
  readonly sources: Sources;
  /** False for the report's own question. */
  readonly changed: boolean;
}

/**
 * The report's scenario and sources with what the controls say. Fields that still show what they showed stay as they
 * are.
 * @throws UserError for text that is no such amount
 */
export function asked(data: PageData, values: ControlValues): Asked {
  const before = initialValues(data);
  const scenario: { -readonly [K in keyof Scenario]: Scenario[K] } = { ...data.scenario };
  const changed = new Set(CONTROLS.filter((name) => values[name].trim() !== before[name].trim()));
  for (const name of changed) {
    const now = values[name].trim();
    if (now === '') delete scenario[name];
    else if (name === 'min') scenario.min = readBounds(now.split(','), '--min');
    else scenario[name] = now;
  }
  if (changed.has('device')) {
    // Another device has its own memory, and its own measurements.
    delete scenario.vram;
    delete scenario.calibration;
  }
  // The page plans and does not simulate: --ttft is then of a prompt alone, as on the command line without a workload.
  if (changed.size > 0) delete scenario.workload;
  return { scenario, sources: sourcesFor(data, scenario, changed), changed: changed.size > 0 };
}
