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
import { best } from '../../numbers/best.js';
import { median } from '../../numbers/statistics.js';
import type { Shape } from '../../../kernels/spec.js';
import { mostTelling } from './choose.js';
import type { Lawful } from '../../cost/predictor.js';
import { runStep } from '../inputs.js';
import { tuningOptions } from '../measure.js';
import type { Track } from './visits.js';

/** Assumed time of a track's second pipeline while its first is being compiled. */
const UNKNOWN_SECONDS = 3;
/** A pipeline is run once, by one workgroup, over buffers of at most so many bytes: reads beyond them are clamped. */
const MOST_BYTES = 65_536;

/** Candidates of a track that run the same pipelines. */
interface Group {
  readonly plan: OperationPlan;
  readonly candidates: Track['candidates'];
}

/** A track's groups: those that are compiled or being compiled, and the others. */
interface Pipelines {
  readonly track: Track;
  readonly begun: Group[];
  readonly left: Group[];
  readonly seconds: number[];
  /** Shapes that pipelines were begun for; the next group, and how much its point tells (choose.ts). */
  readonly shapes: Shape[];
  next: { readonly group: Group; readonly shape: Shape; readonly lowered: number } | undefined;
}

export interface CompileRules {
  /** Of the same adapter; all are used at once. */
  readonly devices: readonly Device[];
  /** Seconds since the calibration began, and until when a pipeline may be begun. */
  now(): number;
  readonly untilSeconds: number;
  /** Most pipelines. */
  readonly most: number;
  readonly reach: Lawful;
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
  const all = tracks.map((track): Pipelines => {
    const one = { track, begun: [], left: groupsOf(first, track), seconds: [], shapes: [] };
    return { ...one, next: nextOf(one, rules.reach) };
  });
  let begun = 0;
  await Promise.all(
    rules.devices.map(async (device) => {
      while (!rules.stopped() && rules.now() < rules.untilSeconds && begun++ < rules.most) {
        const wanted = mostWanted(all, rules.untilSeconds - rules.now());
        if (!wanted?.next) return;
        const { group, shape } = wanted.next;
        wanted.left.splice(wanted.left.indexOf(group), 1);
        wanted.begun.push(group);
        wanted.shapes.push(shape);
        wanted.next = nextOf(wanted, rules.reach);
        const began = clockNow();
        try {
          await runOnce(device, group.plan);
        } catch (error) {
          if (!(error instanceof GpuError)) throw error;
          // The point's own visit says why it cannot be run.
          if (error.fault === 'lost') return;
        }
        wanted.seconds.push(clockNow() - began);
        rules.onPipeline?.(wanted.track);
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
    const group = groups.get(key) ?? { plan, candidates: [] };
    groups.set(key, group);
    group.candidates.push(candidate);
  }
  return [...groups.values()];
}

/** The pipeline of the point that tells most, of those that are left. */
function nextOf({ track, left, shapes }: Omit<Pipelines, 'next'>, reach: Lawful): Pipelines['next'] {
  const candidates = left.flatMap((group) => group.candidates.map((candidate) => ({ ...candidate, group })));
  if (candidates.length === 0) return undefined;
  const { index, lowered } = mostTelling(track, shapes, candidates, reach);
  return { ...candidates[index]!, lowered };
}

/** The track whose next pipeline lowers the variance of steps most for its time; none that would take too long. */
function mostWanted(all: readonly Pipelines[], secondsLeft: number): Pipelines | undefined {
  const expected = ({ seconds }: Pipelines): number => (seconds.length > 0 ? median(seconds) : UNKNOWN_SECONDS);
  return best(
    all.filter((p) => p.next && (p.begun.length === 0 || expected(p) <= secondsLeft)),
    (p) => p.next!.lowered / expected(p),
  );
}

/** One workgroup of each step, over buffers of zeros. */
async function runOnce(device: Device, plan: OperationPlan): Promise<void> {
  const buffers = new Map<string, Buffer>();
  try {
    for (const { name, bytes } of plan.buffers)
      buffers.set(name, await device.buffer(name, Math.min(bytes, MOST_BYTES)));
    for (const step of plan.steps) await runStep(device, { ...step, workgroups: [1, 1, 1] }, buffers);
  } finally {
    device.free(...buffers.values());
  }
}
