/** Calibrations in made-up worlds: loads, noise, failures and pauses of a machine. */
import { DRIFT_RETRIED } from '../../src/bench/calibrate/repetitions.js';
import { randomFrom } from '../../src/numbers/random.js';
import { Visits, type OpenPoint, type Track } from '../../src/bench/calibrate/visits.js';
import { GpuError } from '../../kernels/host/errors.js';
import { type Sample } from '../../src/schema/calibration.js';
import { SEED as seed } from '../gpu/random.js';
import { trackOf } from './made-up.js';
import { Drift, readSample, typicalSeconds } from '../../src/schema/drift.js';

export const PROBE_SECONDS = 0.01;
const POINT_BYTES = 10;
export const truth = (width: number): number => 1e-3 * width;

/** A point of an earlier session. */
export const sampleOf = (width: number, seconds: number[]): Sample => ({
  ...{ variant: 'f32', shape: { rows: 1, width }, tuning: {}, readBytes: 1, writeBytes: 1, flops: 1 },
  ...{ seconds, relativeError: 0 },
});

interface World {
  /** Times of everything over the quiet machine's, at a moment. */
  load?: (at: number) => number;
  budgetSeconds?: number;
  points?: number;
  /** Noise of single runs. */
  noise?: number;
  /** `held`: bytes of the points that are open. */
  fail?: (width: number, held: number) => GpuError | null;
  openBytes?: number;
  /** How much steps hang on a width. */
  share?: (width: number) => number;
  /** Measured in an earlier session. */
  resumed?: Sample[];
  /** Samples that are taken for wrong at the end. */
  outliers?: (samples: readonly Sample[]) => number[];
  /** Every state that is saved; `ended`: repetitions so far. */
  onSave?: (entry: Track['entry'], must: boolean, ended: number) => void;
  mostFailures?: number;
  /** That putting a point on the device takes, and a repetition. */
  openSeconds?: number;
  turnSeconds?: number;
  /** How often the machine was left by a moment. */
  pauses?: (at: number) => number;
  driftRetried?: number;
}

/** A calibration in a world; `starts`: when which width was measured. */
export async function calibrateIn({
  load = () => 1,
  budgetSeconds = 20,
  points = 1000,
  noise = 0.01,
  fail = () => null,
  openBytes = 100 * POINT_BYTES,
  share = () => 0,
  resumed = [],
  outliers = () => [],
  onSave = () => undefined,
  mostFailures = Infinity,
  openSeconds = 0.05,
  turnSeconds = 0.02,
  pauses = () => 0,
  driftRetried = DRIFT_RETRIED.usual,
}: World) {
  const random = randomFrom(seed);
  const jitter = (): number => 1 + noise * (random() - 0.5);
  const shapes = Array.from({ length: points }, (_, i) => ({ shape: { rows: 1, width: i + 1 }, share: share(i + 1) }));
  const track = trackOf('swiglu', 'f32', shapes);
  for (const sample of resumed) {
    track.entry.samples.push(sample);
    track.resumed.push({ sample, share: share(sample.shape['width'] as number) });
  }
  const drift = new Drift();
  const starts: { width: number; at: number; known: boolean }[] = [];
  /** Widths in the order of their repetitions. */
  const turns: number[] = [];
  let held = 0;
  let at = 0;
  const probe = (): Promise<number> => {
    const seconds = PROBE_SECONDS * load(at) * jitter();
    at += seconds;
    drift.record(seconds);
    return Promise.resolve(seconds);
  };
  const open = (_: Track, shape: { readonly width?: number }, known: Sample | null): Promise<OpenPoint> => {
    const width = shape.width ?? 0;
    starts.push({ width, at, known: known !== null });
    at += openSeconds * jitter();
    const problem = fail(width, held);
    if (problem) return Promise.reject(problem);
    held += POINT_BYTES;
    const time = (): ReturnType<OpenPoint['time']> => {
      turns.push(width);
      const each = truth(width) * load(at) * jitter();
      at += turnSeconds;
      return Promise.resolve({ each, calls: 1, total: turnSeconds });
    };
    return Promise.resolve({
      sample: { ...sampleOf(width, []), calls: [], probes: [] },
      bytes: POINT_BYTES,
      time,
      free: () => {
        held -= POINT_BYTES;
      },
    });
  };
  const visits = new Visits([track], drift, {
    now: () => at,
    budgetSeconds,
    secondsPerVisit: 0.1,
    openBytes,
    stopped: () => false,
    mostFailures,
    pauses: () => pauses(at),
    driftRetried,
    open,
    probe,
    read: (sample) => readSample(sample, { submitSeconds: 0, drift }),
    choose: ([t]) => (t && t.candidates.length > 0 ? { track: t, index: 0 } : undefined),
    visited: () => undefined,
    save: (must) => onSave(track.entry, must, turns.length),
    outliers: (_, samples) => outliers(samples),
  });
  for (let i = 0; i < 7; i++) await probe();
  await visits.run();
  /** As they are read. */
  const samples = track.entry.samples.map((sample) => readSample(sample, { submitSeconds: 0, drift }));
  return { track, samples, drift, starts, turns, held, end: at };
}

export const errorOf = (samples: readonly Sample[], times: (s: Sample) => readonly number[]): number =>
  Math.sqrt(
    samples.reduce((sum, s) => sum + Math.log(typicalSeconds(times(s)) / truth(s.shape['width'] as number)) ** 2, 0) /
      samples.length,
  );
