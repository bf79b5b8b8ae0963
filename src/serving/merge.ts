/** Joins what shards of one question found: every candidate once, or an error that says what is missing. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UserError, show } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import { parseJson } from '../io/json.js';
import { sorted } from './answer.js';
import { frontEndOf } from './price/front-end.js';
import type { SimulationReport, SustainedRate } from './types.js';

const MAX_BYTES = 64 * 2 ** 20;
const MAX_VALUES = 4_000_000;

interface ShardFile {
  readonly file: string;
  readonly report: SimulationReport & { readonly candidates: readonly SustainedRate[] };
}

/**
 * Reads every JSON file of a folder and joins them.
 * @param partial accepts shards that were ended early
 * @throws UserError for files that are no shards, or of another question; for shards that are missing, twice or partial
 */
export function mergeFolder(folder: string, partial = false): SimulationReport {
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => name.endsWith('.json'));
  } catch {
    throw new UserError(`the folder ${show(displayPath(folder))} cannot be read`, 'name the folder of the shards');
  }
  if (names.length === 0)
    throw new UserError(`${show(displayPath(folder))} holds no JSON file`, 'name the folder that --output wrote to');
  return merge(
    names.sort().map((name) => readShard(join(folder, name))),
    partial,
  );
}

function readShard(path: string): ShardFile {
  const file = displayPath(path);
  const text = readTextFile(path, 'shard', MAX_BYTES);
  const report = parseJson(text, `shard ${show(file)}`, {
    maxValues: MAX_VALUES,
    hint: 'run the shard again',
  }) as Partial<SimulationReport> | null;
  const { schema, shard, candidates } = report ?? {};
  const whole =
    schema === 'lla-sim/simulation' &&
    Array.isArray(candidates) &&
    Number.isInteger(shard?.index) &&
    Number.isInteger(shard?.of) &&
    Array.isArray(shard?.all);
  if (!whole)
    throw new UserError(
      `${show(file)} is no shard of lla-sim simulate --find-rate`,
      'leave other files out of the folder',
    );
  // Rates were not judged by parts of a run before files said of which metrics there are few values.
  const rates = candidates as readonly SustainedRate[];
  if (rates.some(({ atEstimate }) => atEstimate && !Array.isArray(atEstimate.few)))
    throw new UserError(`${show(file)} is of an older version`, `run --shard ${shard!.index}/${shard!.of} again`);
  return { file, report: report as ShardFile['report'] };
}

/** What shards of one question have in common. */
function questionOf({ report }: ShardFile): string {
  const { schemaVersion, model, device, gpus, workload, server, targets, shard } = report;
  return JSON.stringify([schemaVersion, model, device, gpus, workload, server, targets, shard!.of, shard!.all]);
}

/** @throws UserError where shards do not make a whole */
export function merge(shards: readonly ShardFile[], partial = false): SimulationReport {
  const first = shards[0]!;
  const { of, all: ids } = first.report.shard!;
  const byIndex = new Map<number, ShardFile>();
  for (const shard of shards) {
    if (questionOf(shard) !== questionOf(first))
      throw new UserError(
        `${show(shard.file)} and ${show(first.file)} answer different questions`,
        'keep each sweep in a folder of its own',
      );
    const { index } = shard.report.shard!;
    const same = byIndex.get(index);
    if (same)
      throw new UserError(
        `${show(same.file)} and ${show(shard.file)} are both shard ${index}`,
        'leave one of them out',
      );
    if (shard.report.partial && !partial)
      throw new UserError(`${show(shard.file)} was ended early`, `run --shard ${index}/${of} again`);
    byIndex.set(index, shard);
  }
  const missing = Array.from({ length: of }, (_, i) => i + 1).filter((index) => !byIndex.has(index));
  if (missing.length > 0 && !partial)
    throw new UserError(
      `of ${of} shards ${missing.length} are missing: ${missing.slice(0, 20).join(', ')}`,
      `run --shard ${missing[0]}/${of} again`,
    );
  const found = shards.flatMap(({ report }) => report.candidates);
  for (const id of ids) {
    const times = found.filter((rate) => rate.id === id).length;
    if (times > 1 || (times === 0 && !partial))
      throw new UserError(
        `the shards have ${show(id)} ${times} times, not once`,
        'run all shards again with one version',
      );
  }
  const { shard: _shard, ...question } = first.report;
  return {
    ...question,
    candidates: sorted(found),
    notes: [...frontEndOf(found, question.server), ...question.notes],
    partial: shards.some(({ report }) => report.partial) || missing.length > 0,
  };
}
