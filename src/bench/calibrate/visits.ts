/**
 * In which order the points of a calibration are measured, and what is done about a machine that drifts. Noise on a
 * shared machine comes in phases of seconds and of minutes. So that no phase covers all repetitions of a point, several
 * points are open at once and measured round robin, one submission each, and every point is visited at two times far
 * apart. This module knows no device, so a test can give it a clock of its own.
 */
import { best } from '../../numbers/best.js';
import { Budget } from '../../io/budget.js';
import { GpuError } from '../../../kernels/host/errors.js';
import type { KernelName } from '../../../kernels/registry.js';
import type { Shape } from '../../../kernels/spec.js';
import { correctedSeconds, typicalSeconds, type Drift, type Drifted } from '../../schema/drift.js';
import type { KernelCalibration, Sample } from '../../schema/calibration.js';
import type { BatchTimer } from '../timing.js';
import { isBeyond, isQuiet, LEAST_REPETITIONS, MOST_REPETITIONS, spreadOf } from './repetitions.js';

/** New points are visited during this share of the budget; the rest is for coming back. */
const FIRST_VISITS_SHARE = 0.6;
/**
 * Repetitions that are made again take at most this share of the budget together: a machine that stays slow is measured
 * as it is.
 */
const RETRY_SHARE = 0.2;
/** Points that are measured round robin, as far as their operands fit the memory for them. */
const OPEN_POINTS = 16;
/** Repetitions that drifted too far end as well: three times as many as are wanted. */
const MOST_ATTEMPTS = 3;
/** Minimum weight of a rarely used shape, relative to the largest; it still informs interpolation. */
const LEAST_SHARE = 0.02;
/** Repetitions, of as many points, between two runs of the probe. */
const REPETITIONS_PER_PROBE = 3;
/**
 * Kinds of pieces of the budget: a point put on the device for the first time, one that was there before, a repetition.
 */
const [NEW, KNOWN, REPETITION] = ['new point', 'known point', 'repetition'];
/** Reason of the gap that the file holds while a point is prepared. The gap remains if the program dies then. */
export const UNFINISHED = 'the program ended while this point was being prepared';

/** Reason of the gap of a point that was on the device when it was lost begins so. */
const LOST = 'lost: ';

/** Whether a point was begun and may have ended the session: it is tried again, later than others. */
export const isUnfinished = ({ reason }: { readonly reason: string }): boolean =>
  reason === UNFINISHED || reason.startsWith(LOST);

/** A shape, and its weight in the steps of the model (bench/calibrate/anchors.ts); 0 where that is not known. */
export interface Candidate {
  readonly shape: Shape;
  readonly share: number;
}

/** One kernel and variant with what is left to measure of it. */
export interface Track {
  kernel: KernelName;
  variant: string;
  entry: KernelCalibration;
  candidates: Candidate[];
  /** Candidates that are measured once no track has others: their pipelines are not compiled. */
  later: Candidate[];
  /** Samples of an earlier session, likewise. */
  resumed: { sample: Sample; share: number }[];
  /** Seconds of each visit so far: preparing it and its repetitions. */
  visitSeconds: number[];
}

/** How a gap says that it stands for other shapes as well. */
export const likewise = (count: number, { kernel, variant }: Pick<Track, 'kernel' | 'variant'>): string =>
  ` (and ${count} more shapes of ${kernel} ${variant} likewise)`;

/** How many points of the track were begun and never measured: compiling its kernel may take longer than a session. */
export const unfinishedOf = (track: Pick<Track, 'entry' | 'variant'>): number =>
  track.entry.gaps.filter((g) => g.variant === track.variant && isUnfinished(g)).length;

/** A point whose operands are on the device, and is measured round robin with others. */
export interface OpenPoint {
  /** Without times. */
  readonly sample: Sample;
  /** On the device. */
  readonly bytes: number;
  readonly time: BatchTimer;
  free(): void;
}

export interface VisitTools {
  /** Seconds since the calibration began. */
  now(): number;
  readonly budgetSeconds: number;
  /** Repetitions of one visit, beyond the least of them. */
  readonly secondsPerVisit: number;
  /** Operands of all open points together, but for one point, which may be larger. */
  readonly openBytes: number;
  stopped(): boolean;
  /**
   * So many shapes of a track fail before one is measured, and its others are left out: a kernel that an adapter cannot
   * run is not tried at each shape. Unless given, all are tried.
   */
  readonly mostFailures?: number;
  /** One of DRIFT_RETRIED. */
  readonly driftRetried: number;
  /** How often measuring was disturbed from outside: repetitions beside which this grew do not count. */
  pauses?(): number;
  /** Prepares a point; `known`: it was verified before. Throws GpuError where it cannot be measured. */
  open(track: Track, shape: Shape, known: Sample | null): Promise<OpenPoint>;
  /** Runs the probe, which also records it. */
  probe(): Promise<number>;
  /** A stored sample's times and drifts. */
  read(sample: Sample): Drifted;
  /** The track whose turn it is, and index of its next candidate. */
  choose(tracks: readonly Track[]): { readonly track: Track; readonly index: number } | undefined;
  /** After each visit: null, or why there is no sample. */
  visited(track: Track, gap: string | null): void;
  /** Everything that was measured is consistent and may be saved. `must`: what comes next may end the program. */
  save(must: boolean): void;
  outliers(track: Track, samples: readonly Sample[]): readonly number[];
}

export const samplesOf = (track: Pick<Track, 'entry' | 'variant'>): Sample[] =>
  track.entry.samples.filter((s) => s.variant === track.variant);

interface Point {
  readonly track: Track;
  readonly sample: Sample;
  readonly share: number;
}

/** What is to be measured next. */
interface Job {
  readonly track: Track;
  readonly shape: Shape;
  /** Of a point that is new. */
  readonly share?: number;
  /** Sample that gets more repetitions, or is measured again. */
  readonly known?: Sample;
  readonly replaces?: Sample;
}

/** A visit under way. */
interface Visit {
  readonly track: Track;
  readonly point: OpenPoint;
  /** Sample that its repetitions join. */
  readonly sample: Sample;
  /** The sample that it replaces once it is complete. */
  readonly replaces: Sample | undefined;
  /** Its repetitions that count, seconds of a call. */
  readonly times: number[];
  /** All repetitions, those that do not count among them, and their seconds. */
  attempts: number;
  spent: number;
}

/** Visits points until the budget is spent or all is done. */
export class Visits {
  private readonly points: Point[] = [];
  private readonly open: Visit[] = [];
  private readonly failures = new Map<Track, number>();
  private readonly budget: Budget;
  private retrySeconds = 0;
  private lost = false;
  /** The probe just now: it also stands before the repetitions that follow at once. */
  private justNow: number | undefined;

  constructor(
    private readonly tracks: readonly Track[],
    private readonly drift: Drift,
    private readonly tools: VisitTools,
  ) {
    this.budget = new Budget(Math.max(0, tools.budgetSeconds - tools.now()), () => tools.now());
  }

  async run(): Promise<void> {
    const { tools, tracks } = this;
    // Ceilings have taken their part of the budget already.
    const begun = tools.now();
    const firstVisitsEnd = begun + FIRST_VISITS_SHARE * (tools.budgetSeconds - begun);
    const resumed = tracks.flatMap((track) => track.resumed.map((of): Point => ({ track, ...of })));
    // A session that was killed leaves points with fewer repetitions than they need.
    const incomplete = resumed.filter(({ sample }) => sample.seconds.length < LEAST_REPETITIONS);
    // One point at least, whatever the ceilings took.
    let asked = 0;
    await this.takeTurns(() =>
      asked++ === 0 || (tools.now() < firstVisitsEnd && this.hasTime(incomplete.length > 0 ? KNOWN : NEW))
        ? (jobOf(incomplete.shift()) ?? this.newJob())
        : undefined,
    );
    const again = [...this.points];
    this.points.push(...resumed);
    // Remaining time goes to the points on which the intervals of steps depend most.
    await this.takeTurns(() => (this.hasTime(KNOWN) ? jobOf(again.shift() ?? this.mostWorth()) : undefined));
    const wrong = tracks.flatMap((track): Job[] => {
      const own = samplesOf(track);
      return (own.length > 0 ? tools.outliers(track, own) : []).map((i) => ({
        track,
        shape: (own[i] as Sample).shape,
        replaces: own[i] as Sample,
      }));
    });
    await this.takeTurns(() => (this.hasTime(KNOWN) ? wrong.shift() : undefined));
    this.tools.save(false);
  }

  /** Whether a further point, and the repetitions that it and the open ones need, end in time. */
  private hasTime(kind: string): boolean {
    const owed = this.open.reduce((sum, { times }) => sum + Math.max(0, LEAST_REPETITIONS - times.length), 0);
    const seconds = this.budget.expected(kind) + (owed + LEAST_REPETITIONS) * this.budget.expected(REPETITION);
    return this.budget.left > 0 && seconds <= this.budget.left;
  }

  private newJob(): Job | undefined {
    const { tracks } = this;
    if (tracks.every((t) => t.candidates.length === 0)) for (const t of tracks) t.candidates.push(...t.later.splice(0));
    const next = this.tools.choose(tracks);
    const [chosen] = next?.track.candidates.splice(next.index, 1) ?? [];
    return next && chosen ? { track: next.track, ...chosen } : undefined;
  }

  /** The point whose next visit lowers the variance of steps most for its time. */
  private mostWorth(): Point | undefined {
    const { tools } = this;
    const largest = this.points.reduce((most, { share }) => Math.max(most, share), Number.MIN_VALUE);
    const free = this.points.filter((p) => !this.open.some((v) => v.sample === p.sample));
    return best(free, ({ sample, share }) => {
      const times = correctedSeconds(tools.read(sample));
      const each = typicalSeconds(times);
      const visitSeconds = Math.max(tools.secondsPerVisit, LEAST_REPETITIONS * each);
      const repetitions = Math.min(MOST_REPETITIONS, Math.max(LEAST_REPETITIONS, visitSeconds / each));
      const lowered = spreadOf(times) ** 2 * (1 / times.length - 1 / (times.length + repetitions));
      return (lowered * Math.max(LEAST_SHARE, share / largest)) / visitSeconds;
    });
  }

  /** Opens points as `next` names them and measures them round robin, until it names none and all are done. */
  private async takeTurns(next: () => Job | undefined): Promise<void> {
    const { open, tools } = this;
    const over = (): boolean => tools.stopped() || this.lost;
    try {
      while (!over()) {
        const job = this.hasRoom() ? next() : undefined;
        if (job) await this.begin(job);
        else if (open.length > 0) await this.turn();
        else return;
      }
    } finally {
      for (const visit of open.splice(0)) visit.point.free();
    }
  }

  private hasRoom(): boolean {
    return (
      this.open.length < OPEN_POINTS && this.open.reduce((sum, v) => sum + v.point.bytes, 0) < this.tools.openBytes
    );
  }

  /** Those that waited longest. */
  private turn(): Promise<void> {
    return this.repeat(this.open.splice(0, REPETITIONS_PER_PROBE));
  }

  /** Puts a point on the device and times it once. What cannot be measured becomes a gap. */
  private async begin(job: Job): Promise<void> {
    const { tools } = this;
    const { track, shape, share = 0, known, replaces } = job;
    const begun = tools.now();
    this.justNow = undefined;
    let point: OpenPoint;
    const marked = { variant: track.variant, shape: { ...shape }, reason: UNFINISHED };
    const { gaps } = track.entry;
    try {
      if (!known) {
        gaps.push(marked);
        this.tools.save(true);
      }
      point = await tools.open(track, shape, known ?? null);
    } catch (error) {
      gaps.splice(0, gaps.length, ...gaps.filter((gap) => gap !== marked));
      if (error instanceof GpuError && error.fault === 'out-of-memory' && this.open.length > 0) {
        // It may fit alone.
        while (this.open.length > 0) await this.turn();
        return this.begin(job);
      }
      track.visitSeconds.push(tools.now() - begun);
      return this.failed(track, shape, error);
    }
    // The kernel can be compiled here, so earlier gaps of unfinished preparation no longer apply.
    gaps.splice(0, gaps.length, ...gaps.filter((g) => g.variant !== track.variant || !isUnfinished(g)));
    const opened = tools.now();
    this.budget.note(known ? KNOWN : NEW, opened - begun);
    const sample = known ?? point.sample;
    const visit: Visit = { track, point, sample, replaces, times: [], attempts: 0, spent: 0 };
    await this.repeat([visit]);
    // A point of which not even one repetition ended is no point.
    if (visit.attempts === 0) return;
    track.visitSeconds.push(
      opened -
        begun +
        Math.max(LEAST_REPETITIONS * visit.spent, Math.min(MOST_REPETITIONS * visit.spent, tools.secondsPerVisit)),
    );
    if (!known && !replaces) this.points.push({ track, sample, share });
  }

  /** One repetition of each visit, between two runs of the probe. Those that are not done wait for their next turn. */
  private async repeat(visits: readonly Visit[]): Promise<void> {
    const { drift, tools } = this;
    const began = tools.now();
    const before = this.justNow ?? (await tools.probe());
    const pauses = tools.pauses?.();
    const times: ({ visit: Visit } & Awaited<ReturnType<OpenPoint['time']>>)[] = [];
    for (const visit of visits) {
      try {
        times.push({ visit, ...(await visit.point.time()) });
      } catch (error) {
        visit.point.free();
        this.failed(visit.track, visit.sample.shape, error);
      }
    }
    this.justNow = await tools.probe();
    this.budget.note(REPETITION, (tools.now() - began) / Math.max(1, visits.length));
    const far = isBeyond(drift.relative(Math.sqrt(before * this.justNow)), tools.driftRetried);
    if (tools.pauses?.() !== pauses) {
      this.open.push(...times.map(({ visit }) => visit));
      return;
    }
    for (const { visit, each, calls, total } of times) {
      this.keep(visit, each, calls);
      visit.attempts++;
      visit.spent += total;
      if (far && this.retrySeconds < RETRY_SHARE * tools.budgetSeconds) this.retrySeconds += total;
      else visit.times.push(each);
    }
    for (const { visit } of times) {
      if (this.isDone(visit)) this.end(visit);
      else this.open.push(visit);
    }
    this.tools.save(false);
  }

  /** A repetition joins its sample, and a new sample its kernel: from now on the file holds it. */
  private keep({ track, sample, replaces }: Visit, seconds: number, calls: number): void {
    sample.seconds.push(seconds);
    sample.calls?.push(calls);
    sample.probes?.push(this.drift.seconds.length - 2);
    if (!replaces && !track.entry.samples.includes(sample)) track.entry.samples.push(sample);
  }

  private isDone({ times, attempts, spent }: Visit): boolean {
    const { tools } = this;
    if (attempts >= MOST_ATTEMPTS * MOST_REPETITIONS) return true;
    return (
      times.length >= LEAST_REPETITIONS &&
      (times.length >= MOST_REPETITIONS ||
        isQuiet(times) ||
        spent >= tools.secondsPerVisit ||
        tools.now() >= tools.budgetSeconds)
    );
  }

  private end({ track, point, sample, replaces }: Visit): void {
    point.free();
    const { samples } = track.entry;
    if (replaces) samples[samples.indexOf(replaces)] = sample;
    this.tools.visited(track, null);
  }

  private failed(track: Track, shape: Shape, error: unknown): void {
    if (!(error instanceof GpuError)) throw error;
    // A lost device fails every further call; what was measured is kept.
    this.lost ||= error.fault === 'lost';
    const failures = (this.failures.get(track) ?? 0) + 1;
    this.failures.set(track, failures);
    const { mostFailures = Infinity } = this.tools;
    const others = failures >= mostFailures && samplesOf(track).length === 0 ? track.candidates.splice(0).length : 0;
    const { kernel, variant } = track;
    const reason = `${error.fault}: ${error.message}${others > 0 ? likewise(others, { kernel, variant }) : ''}`;
    track.entry.gaps.push({ variant, shape: { ...shape }, reason });
    this.tools.visited(track, reason);
  }
}

const jobOf = (point: Point | undefined): Job | undefined =>
  point && { track: point.track, shape: point.sample.shape, known: point.sample };
