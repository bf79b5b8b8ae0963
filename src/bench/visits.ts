/**
 * In which order the points of a calibration are measured, and what is done about a machine that drifts. Each point is visited
 * at two times far apart: noise on a shared machine comes in phases of minutes, so that a second visit tells more than more
 * repetitions of the first. Knows no device, so that a test can give it a clock of its own.
 */
import { GpuError } from '../gpu/errors.js';
import type { KernelName, Shape } from '../schedule/kernels.js';
import { correctedSeconds } from '../schema/drift.js';
import type { KernelCalibration, Sample } from '../schema/calibration.js';
import type { Drift } from './probe.js';
import { median } from './timing.js';

/** New points are visited during this share of the budget; the rest is for coming back. */
const FIRST_VISITS_SHARE = 0.6;
/** Drift beyond this fraction: the visit is repeated. */
export const DRIFT_RETRIED = 0.2;
const MOST_ATTEMPTS = 3;
/** All waiting and repeating together take at most this share of the budget: a machine that stays slow is measured as it is. */
const RETRY_SHARE = 0.2;
const REST_SECONDS = 0.25;
/** Rests before an attempt. */
const MOST_RESTS = 4;

/** One kernel and variant with what is left to measure of it. */
export interface Track {
  kernel: KernelName;
  variant: string;
  entry: KernelCalibration;
  /** `share`: how much the steps of the model hang on the shape (bench/anchors.ts); 0 where nobody says. */
  candidates: { shape: Shape; share: number }[];
  /** The same of all its shapes together. */
  share: number;
  /** Seconds of each visit so far. */
  visitSeconds: number[];
}

/** What one visit measured: a sample whose times are raw, and the probe's seconds beside each of them. */
export interface Visit {
  readonly sample: Sample;
  readonly probes: readonly number[];
}

export interface VisitTools {
  /** Seconds since the calibration began. */
  now(): number;
  readonly budgetSeconds: number;
  stopped(): boolean;
  /** Measures a point; `known`: it was verified before. Throws GpuError where it cannot be measured. */
  measure(track: Track, shape: Shape, known: Sample | null): Promise<Visit>;
  /** Runs the probe, which also records it. */
  probe(): Promise<number>;
  pause(seconds: number): Promise<void>;
  /** The track whose turn it is, and index of its next candidate. */
  chooseTrack(tracks: readonly Track[]): Track | undefined;
  chooseCandidate(track: Track): number;
  /** After each visit: the sample, or why there is none. */
  visited(track: Track, gap: string | null): Promise<void>;
  outliers(track: Track, samples: readonly Sample[]): readonly number[];
}

export const samplesOf = (track: Pick<Track, 'entry' | 'variant'>): Sample[] => track.entry.samples.filter((s) => s.variant === track.variant);

interface Point {
  readonly track: Track;
  readonly sample: Sample;
  visits: number;
}

/** Visits points until the budget is spent or all is done. */
export class Visits {
  private readonly points: Point[] = [];
  /** Probe times beside each repetition: the drift of all samples is told anew while the reference still moves. */
  private readonly probes = new Map<Sample, number[]>();
  private retrySeconds = 0;
  private lost = false;

  constructor(
    private readonly tracks: readonly Track[],
    private readonly drift: Drift,
    private readonly tools: VisitTools,
  ) {}

  /** Takes over a sample of an earlier session, whose drift refers to that session's probe: from now on it refers to this one's. */
  adopt(sample: Sample, referenceSeconds: number): void {
    if (sample.drift) this.probes.set(sample, sample.drift.map((d) => d * referenceSeconds));
  }

  async run(): Promise<void> {
    const { tools } = this;
    const running = (): boolean => !tools.stopped() && !this.lost && tools.now() < tools.budgetSeconds;
    // Ceilings have taken their part of the budget already.
    const begun = tools.now();
    const firstVisitsEnd = begun + FIRST_VISITS_SHARE * (tools.budgetSeconds - begun);
    while (running() && tools.now() < firstVisitsEnd && (await this.visitNew()));
    for (const point of [...this.points]) if (running()) await this.visitAgain(point);
    // Time that is left makes the least certain points surer.
    for (let point = leastCertain(this.points); running() && point && (await this.visitAgain(point)); point = leastCertain(this.points));
    for (const track of this.tracks) {
      const own = samplesOf(track);
      for (const index of own.length > 0 ? tools.outliers(track, own) : []) if (!tools.stopped() && !this.lost) await this.replace(track, own[index] as Sample);
    }
  }

  private async visitNew(): Promise<boolean> {
    const track = this.tools.chooseTrack(this.tracks);
    if (!track) return false;
    const [chosen] = track.candidates.splice(this.tools.chooseCandidate(track), 1);
    const visit = await this.visit(track, (chosen as Track['candidates'][number]).shape, null);
    if (visit) {
      track.entry.samples.push(visit.sample);
      this.points.push({ track, sample: visit.sample, visits: 1 });
      this.keep(visit.sample, visit.probes);
    }
    await this.tools.visited(track, visit ? null : this.reason(track));
    return true;
  }

  private async visitAgain(point: Point): Promise<boolean> {
    const { track, sample } = point;
    const visit = await this.visit(track, sample.shape, sample);
    if (visit) {
      point.visits++;
      sample.seconds.push(...visit.sample.seconds);
      if (visit.sample.flag !== undefined) sample.flag = visit.sample.flag;
      this.keep(sample, visit.probes);
    }
    await this.tools.visited(track, visit ? null : this.reason(track));
    return visit !== null;
  }

  /** A sample that looks wrong is measured anew and replaced. */
  private async replace(track: Track, old: Sample): Promise<void> {
    const visit = await this.visit(track, old.shape, null);
    if (!visit) return;
    track.entry.samples[track.entry.samples.indexOf(old)] = visit.sample;
    this.probes.delete(old);
    this.keep(visit.sample, visit.probes);
    await this.tools.visited(track, null);
  }

  /** Notes the probes of repetitions that were just added, and tells the drift of all samples. */
  private keep(sample: Sample, probes: readonly number[]): void {
    this.probes.set(sample, [...(this.probes.get(sample) ?? []), ...probes]);
    for (const [each, times] of this.probes) each.drift = times.map((seconds) => this.drift.relative(seconds));
  }

  private reason(track: Track): string | null {
    return track.entry.gaps.at(-1)?.reason ?? null;
  }

  /** One visit, repeated while the machine drifts and there is time for it; null where it became a gap. */
  private async visit(track: Track, shape: Shape, known: Sample | null): Promise<Visit | null> {
    const { tools } = this;
    const begun = tools.now();
    try {
      let best: Visit | undefined;
      let attempts = 0;
      const most = (): number => (this.retrySeconds < RETRY_SHARE * tools.budgetSeconds ? MOST_ATTEMPTS : 1);
      do {
        await this.rest();
        const started = tools.now();
        const visit = await tools.measure(track, shape, known);
        if (!best || this.worst(visit) < this.worst(best)) best = visit;
        // The last attempt is the visit itself; what came before it was for nothing.
        if (attempts++ > 0) this.retrySeconds += tools.now() - started;
      } while (this.worst(best) > Math.log1p(DRIFT_RETRIED) && attempts < most() && !tools.stopped());
      if (this.worst(best) > Math.log1p(DRIFT_RETRIED)) {
        const factor = median(best.probes.map((p) => this.drift.relative(p)));
        best.sample.flag = `the probe took ${factor.toPrecision(2)} times its reference, in the best of ${attempts} attempt${attempts === 1 ? '' : 's'}`;
      }
      return best;
    } catch (error) {
      if (!(error instanceof GpuError)) throw error;
      // A lost device fails every further call; what was measured is kept.
      this.lost = error.fault === 'lost';
      track.entry.gaps.push({ variant: track.variant, shape: { ...shape }, reason: `${error.fault}: ${error.message}` });
      return null;
    } finally {
      track.visitSeconds.push(tools.now() - begun);
    }
  }

  /** Waits, within bounds, while the machine is slower than it was: repeating at once would meet the same phase. */
  private async rest(): Promise<void> {
    const { tools } = this;
    for (let i = 0; i < MOST_RESTS && this.retrySeconds < RETRY_SHARE * tools.budgetSeconds && !tools.stopped(); i++) {
      const started = tools.now();
      if (this.drift.relative(await tools.probe()) <= 1 + DRIFT_RETRIED) return;
      await tools.pause(REST_SECONDS);
      this.retrySeconds += tools.now() - started;
    }
  }

  /** Drift of a visit as a whole, log units: one disturbed probe is not a phase. */
  private worst(visit: Visit): number {
    return Math.abs(Math.log(median(visit.probes.map((p) => this.drift.relative(p)))));
  }
}

/** The point whose corrected median is least certain: spread of its repetitions over the root of their number. */
function leastCertain(points: readonly Point[]): Point | undefined {
  let worst: Point | undefined;
  let worstDoubt = 0;
  for (const point of points) {
    const sorted = correctedSeconds(point.sample).sort((x, y) => x - y);
    const at = (share: number): number => sorted[Math.floor(share * (sorted.length - 1))] as number;
    const doubt = (at(0.75) - at(0.25)) / at(0.5) / Math.sqrt(sorted.length);
    if (doubt > worstDoubt) [worst, worstDoubt] = [point, doubt];
  }
  return worst;
}
