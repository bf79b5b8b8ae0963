/** Reads a file of `lla-sim fidelity` for a plan: it must be of the very model that is planned. */
import { group } from 'd3-array';
import type { Codec } from '../../codecs/codec.js';
import { isUncompressed } from '../../codecs/registry.js';
import { readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { show, UserError } from '../../errors.js';
import { displayPath } from '../../io/files.js';
import { fingerprintOfFolder } from '../../io/fingerprint.js';
import { readFidelity, type FidelityFile, type FidelityFileRow } from '../../schema/fidelity.js';
import { bootstrapMean, sum } from '../../numbers/statistics.js';
import { defined } from '../../present.js';
import { type Fidelity, type MeasuredRow, type Retrieved, HERE } from '../evaluate/fidelity.js';
import type { Score } from '../types.js';

const SEED = 1;

/**
 * @param model folder of the model, or its config.json; null for a preset
 * @throws UserError for a file that cannot be read, for a preset, and for another model than the file's
 */
export function readFidelityOf(file: string, model: string | null, named: string): Fidelity {
  const read = readFidelity(file);
  const subject = `${displayPath(file)} was measured on ${read.model.name} (${read.model.fingerprint.slice(0, 12)}…)`;
  if (model === null)
    throw new UserError(
      `${subject}, and ${show(named)} is a preset: its weights are not here`,
      'name the folder of that model with --model',
    );
  const fingerprint = fingerprintOf(model);
  if (fingerprint !== read.model.fingerprint)
    throw new UserError(
      `${subject}, and ${show(named)} has other weights (${fingerprint.slice(0, 12)}…)`,
      'name the folder of that model with --model, or measure this one with lla-sim fidelity',
    );
  return fidelityFrom(read, displayPath(file));
}

/** Fingerprints by folder and what lies in it: a model that is planned on several devices is read once. */
const known = new Map<string, string>();

function fingerprintOf(model: string): string {
  const folder = statSync(model, { throwIfNoEntry: false })?.isDirectory() === true ? model : dirname(model);
  const files = readdirSync(folder).map((name) => {
    const { size, mtimeMs } = statSync(join(folder, name), { throwIfNoEntry: false }) ?? { size: 0, mtimeMs: 0 };
    return [name, size, mtimeMs];
  });
  const key = JSON.stringify([folder, files]);
  const fingerprint = known.get(key) ?? fingerprintOfFolder(folder);
  known.set(key, fingerprint);
  return fingerprint;
}

/** What a plan, a report and a picture need of a file. */
export function fidelityFrom(f: FidelityFile, file: string): Fidelity {
  const teacher = f.rows.find((row) => isUncompressed(row.codec) && row.eviction === null && row.storage === 'f16');
  const lengths = f.rows.flatMap(({ items }) => items.map(({ context, scored }) => context + (scored ?? 0)));
  const rollouts = f.rows.flatMap(({ items }) =>
    items.flatMap((i) => (i.kind === 'rollout' ? [i.scored ?? i.agreed] : [])),
  );
  return {
    file,
    model: f.model,
    device: f.device,
    contextTokens: lengths.reduce((a, b) => Math.max(a, b), 0),
    rolloutTokens: rollouts.reduce((a, b) => Math.max(a, b), 0),
    rows: f.rows.map((row) => rowFrom(row, teacher)),
  };
}

function rowFrom(row: FidelityFileRow, teacher: FidelityFileRow | undefined): MeasuredRow {
  return {
    id: row.id,
    codec: defined(row.codec) as Codec,
    ratio: row.ratio,
    path: row.path,
    storage: row.storage,
    eviction: row.eviction,
    initialisation: row.initialisation,
    codecFingerprint: row.codecFingerprint,
    kl: row.kl,
    top1: row.top1,
    perplexity: row.perplexity,
    agreedTokens: row.agreedTokens,
    passkey: row.passkey,
    recall: row.recall,
    sums: row.sums,
    attentionError: row.attentionError,
    scores: scoresOf(row, teacher),
    retrieval: retrievalOf(row),
    rollouts: row.items.flatMap((item) => (item.kind === 'rollout' ? [item.agreed] : [])),
  };
}

const TASKS = [
  ['passkey', 'passkey', 'passkey'],
  ['recall', 'recall', 'recall'],
  ['sums', 'sums', 'sum'],
] as const;

/**
 * Scores as shares of the uncompressed model's. A task is compared answer by answer, as both had the same questions:
 * the share is that of the low end of the difference. A task that the uncompressed model cannot do is left out.
 */
function scoresOf(row: FidelityFileRow, teacher: FidelityFileRow | undefined): Score[] {
  const common = { source: HERE, contextTokens: null };
  const scores: Score[] = row.top1
    ? [{ ...common, metric: 'top-1', share: row.top1.low, value: row.top1.estimate, teacher: 1, interval: row.top1 }]
    : [];
  for (const [metric, field, kind] of TASKS) {
    const interval = row[field];
    const whole = teacher?.[field]?.estimate ?? 1;
    if (!interval || !(whole > 0)) continue;
    const [own, its] = [row, teacher].map((r) => r?.items.filter((i) => i.kind === kind).map((i) => i.exact) ?? []);
    const paired = own && its && own.length > 0 && own.length === its.length;
    const low = paired
      ? whole +
        bootstrapMean(
          own.map((exact, i) => exact - (its[i] as number)),
          SEED,
        ).low
      : interval.low;
    scores.push({ ...common, metric, share: low / whole, value: interval.estimate, teacher: whole, interval });
  }
  return scores.sort((a, b) => a.share - b.share || (a.metric < b.metric ? -1 : 1));
}

/** Passkeys by context, shortest first. */
function retrievalOf({ passkeyCells }: FidelityFileRow): Retrieved[] {
  const asked = passkeyCells.filter(({ count }) => count > 0).sort((a, b) => a.context - b.context);
  return [...group(asked, ({ context }) => context)].map(([contextTokens, cells]) => ({
    contextTokens,
    depths: cells.map(({ depth, count, score }) => ({ depth, count, score })),
    score: sum(cells.map((c) => c.count * c.score)) / sum(cells.map((c) => c.count)),
  }));
}
