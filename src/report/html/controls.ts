/** The page's controls: which settings they change, what they show, and how their text becomes a scenario again. */
import { presetSource, readVram, type Sources } from '../../plan/answer.js';
import { UserError, show } from '../../errors.js';
import type { Scenario } from '../../schema/settings.js';
import { formatTokens } from '../../units.js';
import type { PageData } from '../page-data.js';

export const CONTROLS = ['model', 'vram', 'context', 'batch', 'tpot', 'retrieval', 'min'] as const;
export type ControlName = (typeof CONTROLS)[number];
export type ControlValues = Readonly<Record<ControlName, string>>;

export interface Control {
  readonly name: ControlName;
  readonly label: string;
  readonly hint: string;
  readonly value: string;
  readonly choices?: readonly string[];
}

/** Bytes in the largest decimal unit that says them exactly. */
function exactBytes(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 2 ** 30],
    ['GB', 1e9],
    ['MB', 1e6],
  ] as const)
    if (bytes % size === 0) return `${bytes / size}${unit}`;
  return `${bytes}B`;
}

/** What the controls show before anything is changed. */
export function initialValues({ scenario, sources }: PageData): ControlValues {
  const text = (value: unknown): string => (value === undefined ? '' : String(value as string | number));
  return {
    model: sources.model.publishedAs ?? sources.model.geometry.name,
    vram: scenario.vram === undefined ? exactBytes(sources.device.vramBytes) : text(scenario.vram),
    context: scenario.context === undefined ? formatTokens(4096) : text(scenario.context),
    batch: text(scenario.batch),
    tpot: text(scenario.tpot),
    retrieval: text(scenario.retrieval),
    min: Object.entries(scenario.min ?? {})
      .map(([metric, least]) => `${metric}=${least}`)
      .join(', '),
  };
}

/** @param presets names of the models that are known; a model from a file comes before them */
export function controlsOf(data: PageData, presets: readonly string[]): Control[] {
  const values = initialValues(data);
  const models = presets.includes(values.model) ? presets : [values.model, ...presets];
  return [
    { name: 'model', label: 'Model', hint: 'geometry and published quality', value: values.model, choices: models },
    { name: 'vram', label: 'Memory of one GPU', hint: 'such as 141GB or 80GiB', value: values.vram },
    { name: 'context', label: 'Context', hint: 'tokens a sequence: 4096, 64k, 1M', value: values.context },
    { name: 'batch', label: 'Batch', hint: 'empty: as many as fit', value: values.batch },
    { name: 'tpot', label: 'Longest time a token', hint: 'such as 80ms; empty: any', value: values.tpot },
    {
      name: 'retrieval',
      label: 'Reliable retrieval',
      hint: 'tokens, such as 32k; empty: any',
      value: values.retrieval,
    },
    { name: 'min', label: 'Least quality', hint: 'such as gsm8k=0.75, or gsm8k@isocache=0.7', value: values.min },
  ];
}

function readBounds(text: string): Record<string, number> {
  const bounds: Record<string, number> = Object.create(null) as Record<string, number>;
  for (const pair of text.split(',')) {
    const match = /^\s*([^=\s]+)\s*=\s*([0-9.eE+-]+)\s*$/.exec(pair);
    if (!match)
      throw new UserError(`--min must be METRIC=VALUE, not ${show(pair.trim())}`, 'write for example gsm8k=0.75');
    bounds[(match[1] as string).toLowerCase()] = Number(match[2]);
  }
  return bounds;
}

/**
 * The report's scenario and sources with what the controls say. Fields that still show what they showed stay as they
 * are.
 * @throws UserError for text that is no such amount
 */
export function asked(data: PageData, values: ControlValues): { scenario: Scenario; sources: Sources } {
  const before = initialValues(data);
  const scenario: { -readonly [K in keyof Scenario]: Scenario[K] } = { ...data.scenario };
  let { sources } = data;
  for (const name of CONTROLS) {
    const now = values[name].trim();
    if (now === before[name].trim()) continue;
    if (now === '') {
      // Memory without a figure is that of the device.
      if (name === 'vram' && data.sources.spec) delete scenario.vram;
      else if (name === 'vram') throw new UserError('--vram needs a value', 'write for example 141GB');
      else delete scenario[name];
    } else if (name === 'min') scenario.min = readBounds(now);
    else scenario[name] = now;
  }
  if (scenario.model !== data.scenario.model && scenario.model !== undefined)
    sources = { ...sources, model: presetSource(scenario.model) };
  if (scenario.vram !== data.scenario.vram) {
    const vramBytes =
      scenario.vram === undefined
        ? (sources.spec?.vramBytes ?? sources.device.vramBytes)
        : readVram(String(scenario.vram));
    // The device stays the report's: from the memory alone the command line might choose another.
    if (sources.spec && scenario.device === undefined && scenario.calibration === undefined)
      scenario.device = sources.spec.id;
    sources = { ...sources, device: { ...sources.device, vramBytes } };
  }
  return { scenario, sources };
}
