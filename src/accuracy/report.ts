/** The ledger priced: every figure beside its prediction, and errors by group. */
import { groups as groupBy } from 'd3-array';
import { isEarlierEngine, isRuntime } from '../stacks/serving.js';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError, show } from '../errors.js';
import { turn } from '../io/turn.js';
import { readLedger, type Row } from '../schema/ledger-file.js';
import type { Use } from '../schema/ledger.js';
import type { JudgedFile, PricedBy } from '../plan/ask/tested.js';
import { causeOf, UNEXPLAINED } from './causes.js';
import {
  campaignOf,
  isTail,
  judgedOf,
  KINDS,
  needOf,
  summaryOf,
  type Judged,
  type Kind,
  type Summary,
} from './judge.js';
import { geometryOf, Pricing } from './price.js';
import { OWN_FOLDER } from './question.js';

/** What a time is, tails aside; first tokens hang on the queue more than on prices. */
export const TIMES: readonly Kind[] = ['step', 'first token', 'request', 'throughput'];

/** What plans and simulations say of the figures that judge (plan/ask/tested.ts). */
export function judgedFile({ figures }: Pick<AccuracyReport, 'figures'>): JudgedFile {
  const judging = figures.filter((f) => f.use === 'judges' && !f.cachedPrompts && TIMES.includes(f.kind));
  const alike = groupBy(judging, (f) => JSON.stringify([f.server, f.device, f.looped, pricedBy(f)]));
  return {
    schema: 'lla-sim/judged',
    schemaVersion: 3,
    groups: alike.map(([, own]) => ({
      server: own[0]!.serverName,
      version: versionOf(own[0]!),
      device: own[0]!.device,
      looped: own[0]!.looped,
      priced: pricedBy(own[0]!),
      figures: own.map(({ file, id, model, kind, error, inside }) => ({
        source: file,
        id,
        model,
        kind,
        error: Number(error.toPrecision(3)),
        inside,
      })),
    })),
  };
}

/** `server` is its name, and its version where the row has one. */
export const versionOf = ({ server, serverName: name }: AccuracyFigure): string | null =>
  server.slice(name.length + 1) || null;

const pricedBy = ({ serverName: name, evidence }: AccuracyFigure): PricedBy =>
  isRuntime(name) ? 'runtime' : evidence === 'attainable' ? 'attainable' : 'tables';

/** How errors are grouped. */
export const GROUPINGS = ['source', 'GPU', 'server', 'model'] as const;
export type Grouping = (typeof GROUPINGS)[number];

export interface Group extends Summary {
  readonly name: string;
  readonly use: Use;
  readonly kind: Kind;
}

/** A figure as files hold it. */
export interface AccuracyFigure extends Omit<Judged, 'row'> {
  readonly id: string;
  readonly campaign: string;
  readonly server: string;
  readonly serverName: string;
  readonly device: string;
  readonly gpus: number;
  readonly model: string;
  /** The campaign cannot be what it says without prompts found in a prefix cache (judge.ts): counts in no group. */
  readonly cachedPrompts: boolean;
  /** Why the figure lies outside its interval; null where it lies inside. */
  readonly cause: string | null;
}

export interface AccuracyReport {
  readonly schema: 'lla-sim/accuracy';
  readonly schemaVersion: 1;
  readonly rows: number;
  readonly priced: number;
  readonly figures: readonly AccuracyFigure[];
  /** By kind of figure, loops or not: of rows that fit and of rows that judge. */
  readonly kinds: readonly Group[];
  readonly groups: Readonly<Record<Grouping, readonly Group[]>>;
  /** By campaign, figures that nobody can have without cached prompts. */
  readonly cachedPrompts: readonly (Group & {
    /** Of all its rows the largest share of the GPUs' time that computing the prompts would need. */
    readonly need: number;
  })[];
  readonly notPriced: readonly {
    readonly rows: number;
    readonly file: string;
    readonly campaign: string;
    readonly why: string;
  }[];
}

/** Files of the package's own ledger. */
export const ownLedger = (): string[] => {
  return readdirSync(OWN_FOLDER)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name) => join(OWN_FOLDER, name));
};

const serverName = ({ server: s }: Row): string => (s.version === undefined ? s.name : `${s.name} ${s.version}`);
const modelName = ({ model }: Row): string => basename(model, '.json');
const sourceName = (file: string): string => basename(file, '.json');

/**
 * Prices rows of ledgers. All files are read and checked before the first row is priced.
 * @param only rows whose source, campaign, id, server, GPU or model contains this text
 * @param progress called with the share of the rows that is done; true ends the work
 * @throws UserError for a file that is wrong, and where `only` leaves nothing
 */
export async function accuracy(
  files: readonly string[],
  only: string | null,
  progress: (share: number) => boolean = () => false,
): Promise<AccuracyReport> {
  const all = files
    .map((file) => ({ file, rows: readLedger(file).rows }))
    .flatMap(({ file, rows }) => rows.map((row) => ({ file, row })));
  const asked = all.filter(({ file, row }) => only === null || wordsOf(file, row).includes(only.toLowerCase()));
  if (asked.length === 0)
    throw new UserError(
      only === null
        ? 'the ledger has no rows'
        : `no row of the ledger has ${show(only)} in its source, campaign, id, server, GPU or model`,
      'lla-sim accuracy --format csv lists them',
    );
  const pricing = new Pricing();
  const judged: Judged[] = [];
  const missing: Omit<AccuracyReport['notPriced'][number], 'rows'>[] = [];
  let priced = 0;
  for (const [i, { file, row }] of asked.entries()) {
    const folder = dirname(file);
    const found = await pricing.price(row, folder);
    if ('why' in found) missing.push({ file, campaign: row.campaign, why: found.why });
    else {
      const figures = judgedOf(sourceName(file), row, geometryOf(row, folder).loops > 1, found);
      judged.push(...figures);
      if (figures.length > 0) priced++;
    }
    // Lets a signal come through: a row takes up to a second.
    await turn();
    if (progress((i + 1) / asked.length)) break;
  }
  const notPriced = groupBy(missing, (m) => JSON.stringify(m)).map(([, own]) => ({
    rows: own.length,
    ...own[0]!,
    file: sourceName(own[0]!.file),
  }));
  // Causes are those of published rows: a user's row that misses has its own.
  const published = new Set(files.filter((file) => dirname(resolve(file)) === OWN_FOLDER).map(sourceName));
  return reportOf(judged, needsOf(all), published, asked.length, priced, notPriced);
}

/** The largest need of a campaign, where one of its rows needs more time than its GPUs have. */
function needsOf(all: readonly { readonly file: string; readonly row: Row }[]): ReadonlyMap<string, number> {
  const needs = new Map<string, number>();
  for (const { file, row } of all) {
    if (row.use === 'out-of-reach') continue;
    const key = campaignOf(sourceName(file), row);
    const need = needOf(row, () => geometryOf(row, dirname(file)));
    if (need !== null && need > Math.max(1, needs.get(key) ?? 0)) needs.set(key, need);
  }
  return needs;
}

const wordsOf = (file: string, row: Row): string =>
  [sourceName(file), row.campaign, row.id, serverName(row), row.device ?? row.deviceName, modelName(row)]
    .join(' ')
    .toLowerCase();

function reportOf(
  judged: readonly Judged[],
  needs: ReadonlyMap<string, number>,
  published: ReadonlySet<string>,
  rows: number,
  priced: number,
  notPriced: AccuracyReport['notPriced'],
): AccuracyReport {
  const needed = ({ file, row }: Judged): number | undefined => needs.get(campaignOf(file, row));
  const possible = judged.filter((j) => needed(j) === undefined);
  const middles = possible.filter(({ kind }) => !isTail(kind));
  const by = (name: (j: Judged) => string): Group[] => groupsOf(middles, name);
  const causeOfMiss = (j: Judged): string => {
    if (!published.has(j.file)) return UNEXPLAINED;
    if (!isTail(j.kind)) return causeOf(j);
    // A tail that misses where its middle does misses for the same reason.
    const middle = judged.find((of) => of.row === j.row && of.figure === j.figure && !isTail(of.kind));
    return middle === undefined || middle.inside ? UNEXPLAINED : causeOf(middle);
  };
  const cached = [...needs].flatMap(([key, need]) =>
    groupsOf(
      judged.filter(({ file, row }) => campaignOf(file, row) === key),
      ({ file, row }) => `${file}: ${row.campaign}`,
    ).map((group) => ({ ...group, need })),
  );
  return {
    schema: 'lla-sim/accuracy',
    schemaVersion: 1,
    rows,
    priced,
    figures: judged.map((j): AccuracyFigure => {
      const { row, ...figure } = j;
      return {
        id: row.id,
        campaign: row.campaign,
        server: serverName(row),
        serverName: row.server.name,
        device: row.device ?? row.deviceName!,
        gpus: row.gpus,
        model: modelName(row),
        ...figure,
        cachedPrompts: needed(j) !== undefined,
        cause: j.inside ? null : causeOfMiss(j),
      };
    }),
    kinds: groupsOf(possible, (j) => (j.looped ? 'looped' : isEarlier(j) ? EARLIER : 'without loops')),
    groups: {
      source: by((j) => j.file),
      GPU: by((j) => j.row.device ?? j.row.deviceName!),
      server: by((j) => (isEarlier(j) ? EARLIER : j.row.server.name)),
      model: by((j) => modelName(j.row)),
    },
    cachedPrompts: cached,
    notPriced,
  };
}

export const EARLIER = 'vllm before 0.8';

/** Of an engine that is not today's: it says little of what a server does now. */
const isEarlier = ({ row: { server } }: Judged): boolean =>
  isEarlierEngine({ stack: server.name, version: server.version ?? null });

/** Rows that judge first, then by name and kind. */
function groupsOf(judged: readonly Judged[], name: (j: Judged) => string): Group[] {
  return groupBy(judged, (j) => JSON.stringify([j.use, name(j), j.kind]))
    .map(([, own]): Group => ({ name: name(own[0]!), use: own[0]!.use, kind: own[0]!.kind, ...summaryOf(own) }))
    .sort(
      (a, b) =>
        Number(b.use === 'judges') - Number(a.use === 'judges') ||
        a.name.localeCompare(b.name) ||
        KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind),
    );
}
