/** Files of the ledger: read, merged and checked. The whole of a file is right, or the first wrong row is named. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DEVICES } from '../devices/catalogue.js';
import { show, UserError } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import { readModelFile } from '../geometry/model-file.js';
import { isPreset } from '../geometry/presets.js';
import { issueWords, parseJson } from '../io/json.js';
import { FIGURES, ledgerSchema, rowSchema, type LedgerFile, type LedgerRow, type Use } from './ledger.js';

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
 * @throws UserError, one line with file and row, for the first thing that is wrong
 */
export function readLedger(path: string): Ledger {
  const file = displayPath(path);
  const folder = dirname(path);
  const json = parseJson(readTextFile(path, 'ledger', MAX_BYTES), `ledger ${file}`, {
    maxValues: MAX_VALUES,
    hint: HINT,
  });
  return { file, folder, ...parseLedger(json, `ledger ${file}`, folder) };
}

/** The same for parsed JSON. @param subject as messages begin @param folder that paths in rows are relative to */
function parseLedger(json: unknown, subject: string, folder: string): Pick<Ledger, 'rows' | 'notCarried'> {
  const parsed = ledgerSchema.safeParse(json);
  if (!parsed.success) throw new UserError(`${subject}: ${issueWords(parsed.error.issues[0])}`, HINT);
  const { source, defaults, campaigns, notCarried } = parsed.data;
  const rows: Row[] = [];
  const ids = new Set<string>();
  const models = new Set<string>();
  for (const campaign of campaigns) {
    const { use, because } = campaign;
    const shared = [{ source }, defaults, campaign.defaults, { use, because }];
    let named = 0;
    campaign.rows.forEach((own, i) => {
      const id = typeof own['id'] === 'string' ? ` (${show(own['id'])})` : '';
      const place = `${subject}: row ${i + 1} of ${campaign.id}${id}`;
      const refuse = (what: string): never => {
        throw new UserError(`${place}: ${what}`, HINT);
      };
      const result = rowSchema.safeParse([...shared, own].reduce(merge));
      if (!result.success) return refuse(rowWords(result.error.issues[0]));
      const row = result.data;
      if (ids.has(row.id)) refuse('id is that of another row');
      ids.add(row.id);
      if (row.use === 'fits' && use === 'judges') named++;
      if (named > MOST_NAMED) refuse(`is the second that fits in a campaign that judges; ${MOST_NAMED} may`);
      if (row.use === 'judges' && use !== 'judges') refuse(`judges in a campaign that ${SIDES[use]}; all rows do`);
      if (row.use !== use && own['because'] === undefined) refuse('differs in use from its campaign without because');
      checkNames(row, folder, models, refuse);
      rows.push({ ...row, campaign: campaign.id });
    });
  }
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

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The first issue of a row; a figure whose name lacks its unit is told which has it. */
function rowWords(issue: (Parameters<typeof issueWords>[0] & { keys?: readonly string[] }) | undefined): string {
  const unknown = issue?.path[0] === 'figures' && issue.path.length === 1 ? issue.keys?.[0] : undefined;
  if (unknown === undefined) return issueWords(issue);
  const meant = Object.keys(FIGURES).find((name) => name.startsWith(unknown.replace(/(_?ms|Ms|Millis\w*)$/, '')));
  const write = meant === undefined ? `one of ${Object.keys(FIGURES).join(', ')}` : meant;
  return `figures.${unknown} is no figure with its unit: write ${write}`;
}

/** Devices, models and traces that do not exist. `known`: models that were read already. */
function checkNames(row: LedgerRow, folder: string, known: Set<string>, refuse: (what: string) => never): void {
  if (row.device !== undefined && !DEVICES.some((d) => d.id === row.device))
    refuse(`device ${show(row.device)} is not in the catalogue; name it as deviceName`);
  if (row.workload.kind === 'trace' && !existsSync(join(folder, row.workload.trace)))
    refuse(`trace ${show(row.workload.trace)} does not exist`);
  if (row.use === 'out-of-reach' || isPreset(row.model) || known.has(row.model)) return;
  try {
    readModelFile(join(folder, row.model));
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    refuse(`model ${show(row.model)}: ${error.message}`);
  }
  known.add(row.model);
}
