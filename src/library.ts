/**
 * The library's functions behind a check of their arguments: whoever calls from JavaScript gets a UserError that names
 * the argument. The command line calls the functions themselves.
 */
import { UserError } from './errors.js';
import { z } from 'zod';
import * as registry from './codecs/registry.js';
import * as cacheLayout from './codecs/layout.js';
import * as explain from './cost/explain.js';
import * as latency from './cost/latency.js';
import * as memory from './cost/memory.js';
import * as pricers from './cost/pricers.js';
import * as devices from './devices/find.js';
import * as geometries from './geometry/geometry.js';
import type { Geometry } from './geometry/geometry.js';
import * as presets from './geometry/presets.js';
import * as paperModel from './paper/model.js';
import * as paper from './paper/report.js';
import { ask } from './plan/ask/on-disk.js';
import { listCandidates as list } from './plan/ask/candidates.js';
import { makePlan as make } from './plan/plan.js';
import { readQuestion as read } from './plan/ask/settings.js';
import type { PlanReport } from './plan/types.js';
import * as quality from './quality/quality.js';
import { planCsv as csv, planMarkdown as markdown } from './report/plan-csv.js';
import { planTable as table } from './report/text/plan-table.js';
import { workOf as work } from '../kernels/registry.js';
import { forEachOp as forEveryOp } from './schedule/expand.js';
import * as schedules from './schedule/schedule.js';
import type { Configuration, Op, Schedule } from './schedule/schedule.js';
import { checkScenario } from './schema/scenario.js';
import type { Calibration } from './schema/calibration.js';
import { readCalibration } from './schema/drift.js';
import type { Scenario } from './schema/settings.js';
import { check, checked, type Rule } from './library/checked.js';
import {
  finite,
  count,
  text,
  tokens,
  pageTokens,
  bytes,
  made,
  path,
  choice,
  branch,
  layout,
  call,
  rates,
  link,
  device,
  query,
  filter,
  aCodec,
  aConfiguration,
  aGeometry,
  aReport,
  aRequest,
} from './library/arguments.js';

/**
 * Plans a scenario: what fits, how fast, how good. Fields are those of a scenario file; files that it names are read
 * relative to the working directory. It plans one replica: users are those of the command and of MCP.
 * @throws UserError naming the field that is wrong
 */
export async function plan(scenario: Scenario): Promise<PlanReport> {
  const { users, ...one } = checkScenario(scenario, 'plan: the scenario');
  if (users !== undefined)
    throw new UserError(
      'plan: the scenario has users, and the library plans one replica',
      `leave users out, or run lla-sim plan --users ${users}`,
    );
  return ask(one);
}

/** Plans every candidate of a request (`plan` makes one from a scenario). */
export const makePlan = checked(make, aRequest);
/** Reads a scenario's settings for a model, in base units. */
export const readQuestion: typeof read = checked(
  function readQuestion(scenario: Scenario, ...of: readonly [g: Geometry, serverOn?: Parameters<typeof read>[2]]) {
    return read(checkScenario(scenario, 'readQuestion: the scenario'), ...of);
  },
  ['scenario', z.unknown()],
  aGeometry,
);
/** Every combination of codec, ratio, path and eviction that a filter allows and that can exist. */
export const listCandidates = checked(list, aGeometry, ['filter', filter]);
/** A report as the terminal shows it; the width is in columns. */
export const planTable = checked(table, aReport, ['options', z.object({ all: z.boolean(), colour: z.boolean() })]);
/** Reports as CSV, one row a plan. */
export function planCsv(...reports: readonly PlanReport[]): string {
  const rules = Array.from({ length: Math.max(1, reports.length) }, (_, i): Rule => [`report ${i + 1}`, aReport[1]]);
  return checked(csv, ...rules)(...reports);
}
/** A report as a Markdown table. */
export const planMarkdown = checked(markdown, aReport);

/** Bytes by kind of a configuration at a context (tokens) and page size (tokens). */
export const memoryModel = checked(memory.memoryModel, aConfiguration, ['context', tokens], ['pageTokens', pageTokens]);
/** The largest batch (sequences) that fits into so many bytes. */
export const maxBatch = checked(memory.maxBatch, ['memory', made], ['usableBytes', bytes]);
/** The largest of 1, 2, 3, 4, 6, 8, 12, … that is at most `batch`. */
export const onGrid = checked(memory.onGrid, ['batch', finite.min(0).max(2 ** 53)]);
/** Working bytes of prefilling one prompt of so many tokens, by kind. */
export const prefillPeaks = checked(
  memory.prefillPeaks,
  aConfiguration,
  ['context', tokens],
  ['chunkTokens', tokens.optional()],
);
/** Bytes that a batch needs on a GPU, without the reserve. */
export const totalBytes = checked(memory.totalBytes, ['memory', made], ['batch', count(2 ** 40, 0)]);

/** Why that step takes its time: laws, data near them, what was left out to find its width. */
export const explainStep = checked(
  explain.explainStep,
  aConfiguration,
  ['pricer', made],
  ['batch', count(2 ** 24)],
  ['context', tokens],
);
/** Seconds of one decode step of `batch` sequences, each with `context` tokens cached. */
export const priceStep = checked(
  latency.priceStep,
  aConfiguration,
  ['pricer', made],
  ['batch', count(2 ** 24)],
  ['context', tokens],
);
/** Seconds of one prompt's prefill. */
export const pricePrompt = checked(
  latency.pricePrompt,
  aConfiguration,
  ['pricer', made],
  ['plan', z.object({ method: z.enum(memory.PREFILL_KINDS), promptTokens: tokens, chunkTokens: tokens.optional() })],
);
/** Prices from a datasheet's rates (bytes and operations a second). */
export const datasheetPricer = checked(pricers.datasheetPricer, ['rates', rates], ['link', link]);
/** Prices of the device that a calibration was measured on. */
export const calibrationPricer = checked(
  function calibrationPricer(
    calibration: pricers.PricedParts,
    options: Parameters<typeof pricers.calibrationPricer>[1],
  ) {
    // A whole file holds what was measured.
    const read = 'clock' in calibration ? readCalibration(calibration as Calibration) : calibration;
    return pricers.calibrationPricer(read, options);
  },
  ['calibration', z.looseObject({ overheads: made, ceilings: made, kernels: z.array(made) })],
  ['options', z.looseObject({ stale: z.set(z.string()), link, source: text })],
);

/** The operations of one decode step of `batch` sequences, each with `context` tokens cached. */
export const schedule = checked(
  schedules.schedule,
  aConfiguration,
  ['batch', count(2 ** 24)],
  ['context', tokens],
  ['slots', tokens.optional()],
);

/** Visits every operation with the number of times that it runs in one step. */
export function forEachOp(c: Configuration, s: Schedule, visit: (op: Op, calls: number) => void): void {
  check(
    z.custom((x) => typeof x === 'function', 'must be a function'),
    visit,
    'forEachOp: visit',
  );
  const found: [Op, number][] = [];
  checked(forEveryOp, aConfiguration, ['schedule', made])(c, s, (op, calls) => {
    found.push([op, calls]);
  });
  // What a visitor throws is its caller's own.
  for (const [op, calls] of found) visit(op, calls);
}

/** Bytes and operations of one call of a kernel. */
export const workOf = checked(work, ['call', call]);

/** The cache that a codec and path keep. */
export const layoutOf = checked(registry.layoutOf, ...aCodec, ['path', path], ['choice', choice], ['branch', branch]);
/** Scalars of the full cache over those of the codec, in the looped core. */
export const coreRatio = checked(registry.coreRatio, ...aCodec);
/** `lla-4x`, `kv-quant-4bit`, `full`. */
export const codecLabel = checked(registry.codecLabel, ...aCodec);
/** Bytes that one cached token takes, group scales included. */
export const bytesPerToken = checked(cacheLayout.bytesPerToken, ['layout', layout]);
/** The rows of a sequence's cache in the order in which they are stored. */
export const slotsOf = checked(cacheLayout.slotsOf, ['layout', layout], ['tokens', tokens]);

/** A model by its name. @throws UserError for a name that is not known, with the nearest one */
export const findPreset = checked(presets.findPreset, ['name', text]);
/** All parameters of a model (scalars). */
export const parameterCount = checked(geometries.parameterCount, aGeometry);
/** (layer, loop) pairs that each hold a cache of their own. */
export const cacheSlots = checked(geometries.cacheSlots, aGeometry);
/** Prelude, core and coda, where they have layers. */
export const blocksOf = checked(geometries.blocksOf, aGeometry);

/** A device of the catalogue by id or name. @throws UserError for one that is not known */
export const findDevice = checked(devices.findDevice, ['name', text]);
/** Devices with so many bytes of memory, within 2 %, the nearest first. */
export const devicesByVram = checked(devices.devicesByVram, ['bytes', bytes]);

/** Published figures of exactly this configuration. */
export const qualityOf = checked(quality.qualityOf, ['query', query]);
/** How far back a key can be found, where it was published. */
export const reliableRetrieval = checked(quality.reliableRetrieval, ['query', query]);

/** A device by its datasheet, with the memory that its driver reports, for the comparison with the paper. */
export const datasheetDevice = checked(paperModel.datasheetDevice, ['device', device]);
/** The planner as the comparison with the paper asks it, on one device. */
export class PaperModel extends paperModel.PaperModel {
  constructor(device: paperModel.PaperDevice) {
    check(z.looseObject({ choice: made, spec: made, pricer: made }), device, 'PaperModel: device');
    super(device);
  }
}
/** The comparison with the paper. */
export const paperReport = checked(paper.paperReport, [
  'model',
  z.instanceof(paperModel.PaperModel, { error: 'must be a PaperModel' }),
]);
