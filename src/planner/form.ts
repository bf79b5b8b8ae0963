/** The page's form: a control for every setting of the table, from the table. Pure: what it reads is given to it. */
import { DEVICES, memoryOf } from '../devices/catalogue.js';
import { PRESET_NAMES } from '../geometry/presets.js';
import { html, type Html } from '../report/html/html.js';
import { FIELDS, fieldText, putField, type Field, type OpenScenario } from '../schema/fields.js';
import type { Scenario } from '../schema/settings.js';
import { stackLabel } from '../stacks/serving.js';
import { STACK_CHOICES } from '../stacks/serving.js';
import { formatDecimalBytes } from '../numbers/units.js';

/** What most questions are about, in the order in which it is asked. */
const FIRST = [
  'model',
  'device',
  'ctx',
  'users',
  'tpot',
  'ttft',
  'usd-per-hour',
  'codec',
  'eviction',
  'gpus',
  'stack',
  'workload.depth',
];
/** Settings of files are dropped on the page instead. */
const isAsked = ({ setting }: Field): boolean => setting.file !== 'always';

type Choice = readonly [value: string, title: string];

/** Choices of settings that name something of a catalogue. */
const CATALOGUES: Readonly<Record<string, readonly Choice[]>> = {
  model: PRESET_NAMES.map((name) => [name, name]),
  device: DEVICES.map((d) => [d.id, `${d.name}, ${formatDecimalBytes(memoryOf(d))}`]),
  stack: STACK_CHOICES.filter((s) => s !== 'lla-sim').map((s) => [
    s,
    s === 'attainable' ? 'attainable: what tuned kernels reach' : stackLabel(s),
  ]),
};

/** What is taken where nothing is said: `[4096]` at the end of a setting's help. */
const unless = ({ setting }: Field): string => /\[([^\]]*)\]$/.exec(setting.help)?.[1] ?? '';
/** What a page says in place of a terminal. */
const HINTS: Readonly<Record<string, string>> = {
  model: 'shape and published scores; drop the config.json of another one below',
  device: 'memory, and whose kernels are known; or several',
  stack: 'whose kernels price the plan',
};
const hint = ({ key, setting }: Field): string => HINTS[key] ?? setting.help.replace(/ *\[[^\]]*\]$/, '');

/** A choice of several values is typed: `h100,h200`. */
export const SEVERAL = '…';

function control(field: Field): Html {
  const { key, setting } = field;
  const id = `f-${key.replace('.', '-')}`;
  const catalogue = CATALOGUES[key];
  const choices: readonly Choice[] | null =
    catalogue ?? (setting.kind === 'text' && setting.choices ? setting.choices.map((c) => [c, c]) : null);
  const proposals = setting.kind === 'list' && setting.choices ? setting.choices : null;
  const none = unless(field);
  const unset = none === '' ? '–' : `default: ${none}`;
  const options = choices?.map(([value, title]) => html`<option value="${value}">${title}</option>`) ?? [];
  const several = key === 'device' ? html`<option value="${SEVERAL}">several, to be typed …</option>` : '';
  const list = proposals ? html` list="${id}-list"` : '';
  const datalist = proposals?.map((p) => html`<option value="${p}">`);
  const input = choices
    ? html`<select id="${id}" name="${key}"><option value="">${unset}</option>${options}${several}</select>`
    : html`<input type="text" id="${id}" name="${key}" placeholder="${none}" autocomplete="off" autocapitalize="off" \
spellcheck="false"${list}>${datalist ? html`<datalist id="${id}-list">${datalist}</datalist>` : ''}`;
  return html`<div class="field"><label for="${id}">${setting.title ?? field.flag}</label>${input}\
<small id="${id}-hint">${hint(field)}</small></div>
`;
}

const controls = (keys: readonly string[]): Html =>
  html`<div class="fields">${keys.map((key) => control(FIELDS.get(key) as Field))}</div>`;

const rest = (part: Field['part']): string[] =>
  [...FIELDS.values()].filter((f) => f.part === part && isAsked(f) && !FIRST.includes(f.key)).map((f) => f.key);

/** Controls of the plan: what most ask first, and all others behind a word. */
export const planControls = (): Html =>
  html`${controls(FIRST)}
<details id="more"><summary>All other settings</summary>${controls(rest(null))}</details>`;

export const servingControls = (): Html =>
  html`${controls(['workload.rate', 'workload.prompt-tokens', 'workload.output-tokens', 'workload.requests'])}
<details><summary>All settings of requests and server</summary>${controls([
    ...rest('workload').filter((key) => !/\.(rate|prompt-tokens|output-tokens|requests)$/.test(key)),
    ...rest('server'),
  ])}</details>`;

/** Values of the controls by key; what is empty is not said. */
export type Values = Readonly<Record<string, string>>;

export function valuesOf(scenario: Scenario): Record<string, string> {
  const values: Record<string, string> = {};
  for (const field of FIELDS.values()) {
    const text = fieldText(scenario, field);
    if (text !== null) values[field.key] = text;
  }
  return values;
}

/**
 * The scenario that the controls ask.
 * @param words its name and description, which no control shows
 * @throws UserError for a value that its setting does not take
 */
export function scenarioOf(values: Values, words: Pick<Scenario, 'name' | 'description'> = {}): Scenario {
  const scenario: OpenScenario = { ...words };
  for (const field of FIELDS.values()) {
    const text = values[field.key]?.trim() ?? '';
    if (text !== '') putField(scenario, field, text);
  }
  return scenario;
}
