/** Files of the ledger: read, merged and checked. The whole of a file is right, or all its mistakes are named. */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { DEVICES } from '../devices/catalogue.js';
import { show, UserError } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import { readModelFile } from '../geometry/model-file.js';
import { isPreset, PRESET_NAMES } from '../geometry/presets.js';
import { SERVERS } from './serving.js';
import { nearestName } from '../nearest.js';
import { issueWords, type Issue } from '../io/issues.js';
import { isObject, parseJson } from '../io/json.js';
import {
  FIGURES,
  ledgerSchema,
  NO_FIGURE,
  rowSchema,
  USES,
  type LedgerFile,
  type LedgerRow,
  type Use,
} from './ledger.js';

const MAX_BYTES = 4 * 2 ** 20;
const MAX_VALUES = 400_000;
const HINT = 'ledger/README.md says what a row must have';
/** Rows that may fit in a campaign that judges: the one from which its host's launch time is taken. */
const MOST_NAMED = 1;

/** A row with what its campaign and its file say. */
export type Row = LedgerRow & { readonly campaign: string };
export interface Ledger {
  /** As shown to people. */
  readonly file: string;
  readonly folder: string;
  readonly rows: readonly Row[];
  readonly notCarried: LedgerFile['notCarried'];
}

/**
 * Reads a file of the ledger, and looks whether the models and traces that its rows name are there.
 * @throws UserError that names all mistakes, a line each with file and row
 */
export function readLedger(path: string): Ledger {
  const file = displayPath(path);
  const folder = dirname(path);
  const subject = `ledger ${file}`;
  const json = parseJson(readTextFile(path, 'ledger', MAX_BYTES), subject, { maxValues: MAX_VALUES, hint: HINT });
  return { file, folder, ...parseLedger(json, subject, folder) };
}

/** The same for parsed JSON. @param subject as messages begin @param folder that paths in rows are relative to */
function parseLedger(json: unknown, subject: string, folder: string): Pick<Ledger, 'rows' | 'notCarried'> {
  const parsed = ledgerSchema.safeParse(json);
  if (!parsed.success)
    throw new UserError(
      parsed.error.issues.map((issue) => `${subject}: ${issueWords(issue, json)}`),
      HINT,
    );
  const { source, defaults, campaigns, notCarried } = parsed.data;
  const rows: Row[] = [];
  const mistakes: string[] = [];
  const ids = new Set<string>();
  const models = new Set<string>();
  for (const campaign of campaigns) {
    const { use, because } = campaign;
    const shared = [{ source }, defaults, campaign.defaults, { use, because }];
    let named = 0;
    campaign.rows.forEach((own, i) => {
      const id = typeof own['id'] === 'string' ? ` (${show(own['id'])})` : '';
      const place = `${subject}: row ${i + 1} of ${campaign.id}${id}`;
      const note = (what: string): void => void mistakes.push(`${place}: ${what}`);
      const whole = [...shared, own].reduce(merge);
      if (!USES.some((known) => known === whole['use'])) {
        note(`use must be one of ${USES.join(', ')}, not ${show(whole['use'])}`);
        whole['use'] = use;
      }
      // Rules between rows are looked at in wrong rows too: one mistake hides no other.
      if (typeof whole['id'] === 'string') {
        if (ids.has(whole['id'])) note('id is that of another row');
        ids.add(whole['id']);
      }
      if (whole['use'] === 'fits' && use === 'judges' && ++named > MOST_NAMED)
        note(`is the second that fits in a campaign that judges; ${MOST_NAMED} may`);
      if (whole['use'] === 'judges' && use !== 'judges') note(`judges in a campaign that ${SIDES[use]}; all rows do`);
      if (whole['use'] !== use && own['because'] === undefined)
        note('differs in use from its campaign without because');
      checkNames(whole, folder, models, note);
      const result = rowSchema.safeParse(whole);
      if (!result.success) {
        for (const issue of result.error.issues) rowWords(issue, whole).forEach(note);
        return;
      }
      rows.push({ ...result.data, campaign: campaign.id });
    });
  }
  if (mistakes.length > 0) throw new UserError(mistakes, HINT);
  return { rows, notCarried };
}

const SIDES: Record<Use, string> = { fits: 'fits', judges: 'judges', 'out-of-reach': 'is out of reach' };

/** Objects are joined key by key, lists of open questions one after the other; everything else is replaced. */
function merge(base: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
  const joined: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const below = joined[key];
    if (key === 'workload' && isObject(value) && isObject(below) && 'kind' in value && value['kind'] !== below['kind'])
      joined[key] = value;
    else if (key !== 'figures' && isObject(value) && isObject(below)) joined[key] = merge(below, value);
    else if (key === 'open' && Array.isArray(value) && Array.isArray(below)) joined[key] = below.concat(value);
    else joined[key] = value;
  }
  return joined;
}

/** An issue of a row, a mistake each; a figure whose name lacks its unit is told which has it. */
function rowWords(issue: Issue, row: Record<string, unknown>): string[] {
  if (issue.path[0] !== 'figures' || issue.path.length !== 1) return [issueWords(issue, row)];
  if (issue.keys === undefined && issue.message === NO_FIGURE && isObject(row['figures']))
    // A map whose names are wrong is told of them.
    return Object.keys(row['figures']).length > 0
      ? []
      : [`figures is empty: write at least one of ${Object.keys(FIGURES).join(', ')}`];
  if (issue.keys === undefined) return [issueWords(issue, row)];
  return issue.keys.map((unknown) => {
    const meant = Object.keys(FIGURES).find((name) => name.startsWith(unknown.replace(/(_?ms|Ms|Millis\w*)$/, '')));
    const write = meant === undefined ? `one of ${Object.keys(FIGURES).join(', ')}` : meant;
    return `figures.${unknown} is no figure with its unit: write ${write}`;
  });
}

/**
 * Servers that are misspelt, devices, models and traces that do not exist, of a row that may be wrong elsewhere.
 * `known`: models that were read.
 */
function checkNames(
  { device, server, workload, model, use }: Record<string, unknown>,
  folder: string,
  known: Set<string>,
  note: (what: string) => void,
): void {
  if (typeof device === 'string' && !DEVICES.some((d) => d.id === device)) {
    const near = nearestName(
      device,
      DEVICES.map((d) => d.id),
    );
    const meant = near === undefined ? '' : `did you mean ${near}? Else `;
    note(`device ${show(device)} is not in the catalogue; ${meant}name it as deviceName`);
  }
  const name = isObject(server) ? server['name'] : undefined;
  const meant =
    typeof name === 'string' && !SERVERS.some((one) => one === name) ? nearestName(name, SERVERS) : undefined;
  // `vllm-ascend` is a server of its own, `vlm` is none.
  if (typeof name === 'string' && meant !== undefined && !name.includes(meant))
    note(`server ${show(name)} is not known; did you mean ${meant}?`);
  const trace = isObject(workload) && workload['kind'] === 'trace' ? workload['trace'] : undefined;
  if (typeof trace === 'string' && !existsSync(resolve(folder, trace))) note(`trace ${show(trace)} does not exist`);
  if (typeof model !== 'string' || use === 'out-of-reach' || isPreset(model) || known.has(model)) return;
  try {
    readModelFile(resolve(folder, model));
    known.add(model);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const preset = nearestName(model, PRESET_NAMES);
    const is = existsSync(resolve(folder, model))
      ? `model ${show(model)}: ${error.message}`
      : `model ${show(model)} is neither a name of lla-sim models nor a file in the ledger's folder`;
    note(`${is}${preset === undefined ? '' : `; did you mean ${preset}?`}`);
  }
}
