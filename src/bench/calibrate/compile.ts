/**
 * Compiles pipelines before anything is timed. A software adapter compiles a pipeline when it is first run, on one core
 * and for up to half a minute, and keeps it on disk for every device of the machine. So several devices, one a core,
 * run the pipelines that the calibration needs most; the measurements find them compiled, and keep to them.
 */
import { clockNow } from '../../io/clock.js';
import { pipelineKey, type Device } from '../../gpu/device.js';
import { GpuError } from '../../../kernels/host/errors.js';
import type { Buffer } from '../../gpu/passes.js';
import type { OperationPlan } from '../../../kernels/host/plan.js';
import { deviceOptions, planOperation } from '../../../kernels/launches.js';
import { median } from '../../numbers/statistics.js';
import { LEAST_SHARE, lightestUsed } from './choose.js';
import { tuningOptions } from '../measure.js';
import { mostTelling } from './spread.js';
import type { Track } from './visits.js';

/** Assumed time of a track's second pipeline while its first is being compiled. */
const UNKNOWN_SECONDS = 3;
/** A pipeline is run once, by one workgroup, over buffers of at most so many bytes: reads beyond them are clamped. */
const MOST_BYTES = 65_536;

/** Candidates of a track that run the same pipelines. */
interface Group {
  readonly plan: OperationPlan;
  readonly candidates: Track['candidates'];
  share: number;
}

/** A track's groups: those that are compiled or being compiled, and the others. */
interface Pipelines {
  readonly track: Track;
  readonly begun: Group[];
  readonly left: Group[];
  readonly seconds: number[];
}

export interface CompileRules {
  /** Of the same adapter; all are used at once. */
  readonly devices: readonly Device[];
  /** Seconds since the calibration began, and until when a pipeline may be begun. */
  now(): number;
  readonly untilSeconds: number;
  /** Most pipelines. */
  readonly most: number;
  stopped(): boolean;
  onPipeline?(track: Track): void;
}

/**
 * Compiles pipelines of the tracks until all are, or the time is over. Candidates whose pipelines are not compiled then
 * are put behind those whose are.
 */
export async function compileAhead(tracks: readonly Track[], rules: CompileRules): Promise<void> {
  const [first] = rules.devices;
  if (!first) return;
  const all = tracks.map((track): Pipelines => ({ track, begun: [], left: groupsOf(first, track), seconds: [] }));
  let begun = 0;
  await Promise.all(
    rules.devices.map(async (device) => {
      while (!rules.stopped() && rules.now() < rules.untilSeconds && begun++ < rules.most) {
        const next = mostWanted(all, rules.untilSeconds - rules.now());
        if (!next) return;
        const group = takeNext(next);
        const began = clockNow();
        try {
          await runOnce(device, group.plan);
        } catch (error) {
          if (!(error instanceof GpuError)) throw error;
          // The point's own visit says why it cannot be run.
          if (error.fault === 'lost') return;
        }
        next.seconds.push(clockNow() - began);
        rules.onPipeline?.(next.track);
      }
    }),
  );
  for (const { track, begun: compiled, left } of all) {
    if (compiled.length === 0) continue;
    track.later.push(...left.flatMap((group) => group.candidates));
    const later = new Set(track.later);
    track.candidates.splice(0, Infinity, ...track.candidates.filter((c) => !later.has(c)));
  }
}

/** A track's candidates by their pipelines; their buffers are those of one of them. */
function groupsOf(device: Device, { kernel, variant, candidates, entry }: Track): Group[] {
  const groups = new Map<string, Group>();
  const options = { ...deviceOptions(device), ...tuningOptions(entry.tuning) };
  for (const candidate of candidates) {
    const plan = planOperation({ kernel, variant, shape: candidate.shape }, options);
    const key = plan.steps.map(pipelineKey).join('\n');
    const group = groups.get(key) ?? { plan, candidates: [], share: 0 };
    groups.set(key, group);
    group.candidates.push(candidate);
    group.share += candidate.share;
  }
  return [...groups.values()];
}

/**
 * The track whose next pipeline is compiled: first each has one, those of the default table before the others, then by
 * the same rule as points (choose.ts). None that would take longer than there is time.
 */
function mostWanted(all: readonly Pipelines[], secondsLeft: number): Pipelines | undefined {
  const largest = all.reduce((most, { track }) => Math.max(most, track.share), Number.MIN_VALUE);
  const rank = ({ track, begun }: Pipelines): number => (begun.length > 0 ? 2 : track.inTable ? 0 : 1);
  const expected = ({ seconds }: Pipelines): number => (seconds.length > 0 ? median(seconds) : UNKNOWN_SECONDS);
  const served = (p: Pipelines): number =>
    ((p.begun.length + 0.5) ** 2 * expected(p)) / Math.max(LEAST_SHARE, p.track.share / largest);
  return all
    .filter((p) => p.left.length > 0 && (p.begun.length === 0 || expected(p) <= secondsLeft))
    .reduce<Pipelines | undefined>(
      (best, p) => (!best || rank(p) < rank(best) || (rank(p) === rank(best) && served(p) < served(best)) ? p : best),
      undefined,
    );
}

/** The pipeline that the next point needs (choose.ts): second that of a light shape, else the most telling one. */
function takeNext({ track, begun, left }: Pipelines): Group {
  const weighed = ({ candidates, share }: Group) => ({ shape: candidates[0]!.shape, share });
  const light = track.candidates[lightestUsed(track)]!;
  const second = begun.length === 1 ? left.findIndex(({ candidates }) => candidates.includes(light)) : -1;
  const at =
    second >= 0
      ? second
      : mostTelling(
          begun.map((group) => weighed(group).shape),
          left.map(weighed),
        );
  const [group] = left.splice(at, 1) as [Group];
  begun.push(group);
  return group;
}

/** One workgroup of each step, over buffers of zeros. */
async function runOnce(device: Device, plan: OperationPlan): Promise<void> {
  const buffers = new Map<string, Buffer>();
  try {
    for (const { name, bytes } of plan.buffers)
      buffers.set(name, await device.buffer(name, Math.min(bytes, MOST_BYTES)));
    for (const step of plan.steps) {
      const bound = await device.bind({ ...step, workgroups: [1, 1, 1] }, buffers);
      try {
        await device.run([bound]);
      } finally {
        device.free(bound.uniforms);
      }
    }
  } finally {
    device.free(...buffers.values());
  }
}
