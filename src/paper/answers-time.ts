/** The model's answers to figures of time: steps, throughput, attention of one layer. */
import { scalarsPerToken } from '../codecs/layout.js';
import { isUncompressed, layoutOf } from '../codecs/registry.js';
import { over, type Interval } from '../cost/evidence.js';
import { formatBytes, formatDecimalBytes, formatMilliseconds, formatNumber } from '../numbers/units.js';
import { FULL_DECODING as FULL } from './figures/figure.js';
import type { PaperModel } from './model.js';
import { flopText, microseconds, percent, rateText, ratioText, timeText } from './text.js';
import type { Answer, Of } from './types.js';

export type TimeSubject = Of<'step-seconds' | 'step-ratio' | 'throughput' | 'layer-seconds' | 'layer-ratio'>;

/**
 * Most that an eager framework can plausibly add to each operation of the schedule: one of ours is five to ten of its
 * kernels (a norm, a rotation), each of which the host takes about 10 µs to launch.
 */
const EAGER_SECONDS_AN_OPERATION = 100e-6;
/** Two attention kernels that read the same bytes may differ so much in the bandwidth that they reach. */
const KERNEL_DIFFERENCE = 0.15;

export function timeAnswer(m: PaperModel, s: TimeSubject): Answer {
  switch (s.of) {
    case 'step-seconds':
      return stepSeconds(m, s);
    case 'step-ratio':
      return stepRatio(m, s);
    case 'throughput':
      return throughput(m, s);
    case 'layer-seconds':
      return layerSeconds(m, s);
    case 'layer-ratio':
      return layerRatio(m, s);
    default:
      return s satisfies never;
  }
}

const interval = (i: Interval, text: string, reason: string, explain: NonNullable<Answer['explain']>): Answer => ({
  value: i.estimate,
  low: i.low,
  high: i.high,
  text,
  reason,
  explain,
});

/** Three decimals: the paper's 1.16× is 74.1 / 63.6 = 1.165. */
const ratioText3 = (ratio: number): string => `${ratio.toFixed(3)}×`;

const source = (m: PaperModel): string =>
  m.device.choice.calibration ? 'priced from the calibration' : 'roofline bracket from the datasheet';

function stepSeconds(m: PaperModel, s: Of<'step-seconds'>): Answer {
  const step = m.step(s.model, s.decoding, s.batch, s.contextTokens);
  const { operations } = m.count(s.model, s.decoding, s.batch, s.contextTokens);
  const hostTime = (published: number): number => (published - step.estimate) / operations;
  const answer = interval(step, timeText(step), `${source(m)}, batch ${s.batch}`, (published) => {
    const each = hostTime(published);
    if (published <= step.high || each > EAGER_SECONDS_AN_OPERATION) return null;
    return (
      `eager framework floor: ${microseconds(each)} of host time for each of ${operations} operations; compiled ` +
      `kernels need ${formatMilliseconds(step.low)} ms or more (batch ${s.batch} assumed)`
    );
  });
  // Host time that every step pays bounds the throughput of any batch, too.
  const most = m.plan(s.model, FULL, { contextTokens: s.contextTokens }).maxBatch.onGrid;
  const fullOperations = m.count(s.model, FULL, most, s.contextTokens).operations;
  return {
    ...answer,
    undecided: (published) => {
      const host = hostTime(published) * fullOperations;
      if (host <= most / s.fullPeak) return null;
      return (
        `${rateOf(s.fullPeak)} of the same table, at any batch up to ${most}, is a step of at most ` +
        `${formatMilliseconds(most / s.fullPeak)} ms, and so much host time alone takes the teacher ` +
        `${formatMilliseconds(host)} ms: the two figures are of two implementations or batches, and the paper ` +
        'states neither'
      );
    },
  };
}

const rateOf = (tokensPerSecond: number): string => `${formatNumber(tokensPerSecond)} tok/s`;

/**
 * True when a published ratio is that of two published times, up to their rounding: reasons for the times then hold for
 * it.
 */
const isQuotient = (ratio: number, a: number, b: number): boolean => Math.abs((ratio * b) / a - 1) < 0.01;

/** Ratio of two intervals that share one unknown efficiency: end by end. */
function quotient(a: Interval, b: Interval): Interval {
  const ends = [a.estimate / b.estimate, a.low / b.low, a.high / b.high];
  return { estimate: ends[0] as number, low: Math.min(...ends), high: Math.max(...ends) };
}

const quotientText = (q: Interval): string => `${ratioText(q.estimate)} (${ratioText(q.low)}–${ratioText(q.high)})`;

function stepRatio(m: PaperModel, s: Of<'step-ratio'>): Answer {
  const q = quotient(
    m.step(s.model, s.decoding, s.batch, s.contextTokens),
    m.step(s.model, FULL, s.batch, s.contextTokens),
  );
  const more =
    m.count(s.model, s.decoding, s.batch, s.contextTokens).operations -
    m.count(s.model, FULL, s.batch, s.contextTokens).operations;
  const extra = s.published.seconds - s.published.fullSeconds;
  return interval(q, quotientText(q), 'both ends of the bracket are compared with their like', (published) => {
    if (!isQuotient(published, s.published.seconds, s.published.fullSeconds)) return null;
    if (published <= q.high || extra / more > EAGER_SECONDS_AN_OPERATION) return null;
    return (
      `framework floor again: ${more} more operations (encode, reconstruct) take ${formatMilliseconds(extra)} ms, ` +
      `${microseconds(extra / more)} each (the two latencies are ` +
      `${ratioText3(s.published.seconds / s.published.fullSeconds)} apart)`
    );
  });
}

/**
 * Throughput at the largest batch of the grid. The paper does not state the batch of its peak; throughput grows with
 * the batch until memory ends.
 */
function throughput(m: PaperModel, s: Of<'throughput'>): Answer {
  const batch = m.plan(s.model, s.decoding, { contextTokens: s.contextTokens }).maxBatch.onGrid;
  const step = m.step(s.model, s.decoding, batch, s.contextTokens);
  const rate = over(batch, step);
  const work = m.count(s.model, s.decoding, batch, s.contextTokens);
  const { matrixFlopsPerSecond: matrix, memoryBytesPerSecond: bandwidth } = m.device.spec;
  return interval(rate, rateText(rate), `${source(m)}, at batch ${batch}; the paper states no batch`, (published) => {
    const steps = published / batch;
    const share = (steps * work.matrixFlops) / matrix;
    // Slower than the slow end, and nowhere near a limit of the chip: the implementation, not the method.
    if (published >= rate.low || share > 0.1 || (steps * work.bytes) / bandwidth > 0.5) return null;
    return (
      `eager framework, below the slow end: at batch ${batch} it is ${percent(share)} of the matrix rate and ` +
      `${percent((steps * work.bytes) / bandwidth)} of the bandwidth; rebuilding K and V moves ` +
      `${formatDecimalBytes(work.bytes)} and computes ${flopText(work.matrixFlops)} a step`
    );
  });
}

function layerSeconds(m: PaperModel, s: Of<'layer-seconds'>): Answer {
  const { seconds, counted } = m.layer(s.model, s.decoding, s.contextTokens);
  const { loops } = m.geometry(s.model);
  const bandwidth = m.device.spec.memoryBytesPerSecond;
  const full = isUncompressed(s.decoding.codec);
  const scope =
    `one layer × ${loops} loops, one sequence: ${formatDecimalBytes(counted.bytes)} ` +
    `moved${full ? '' : `, ${flopText(counted.flops)}`}`;
  const answer = interval(seconds, timeText(seconds), scope, (published) => {
    const each = (published - seconds.estimate) / counted.operations;
    return published > seconds.high && each <= EAGER_SECONDS_AN_OPERATION
      ? `${scope}; framework floor: ${microseconds(each)} for each of ${counted.operations} operations`
      : null;
  });
  // The table does not say what its times are of; the whole model's cache could not even be read in them.
  const whole = m.plan(s.model, FULL, { contextTokens: s.contextTokens }).memory.kvBytesPerSequence;
  const reading = (published: number): string =>
    full && whole / bandwidth > published
      ? `; the whole model’s ${formatBytes(whole)} take ${formatMilliseconds(whole / bandwidth)} ms to read`
      : '';
  return {
    ...answer,
    remark: (published) =>
      `the paper reaches ${percent(counted.bytes / published / bandwidth)} of the bandwidth${reading(published)}`,
  };
}

function layerRatio(m: PaperModel, s: Of<'layer-ratio'>): Answer {
  const own = m.layer(s.model, s.decoding, s.contextTokens);
  const full = m.layer(s.model, FULL, s.contextTokens);
  const q = quotient(full.seconds, own.seconds);
  const reads = readShare(m, s);
  const reason =
    `reads are T/ρ of the full cache’s: parity at ρ = T is structural (${formatNumber(1 / reads)}× with the rotary ` +
    'branch)';
  return interval(q, quotientText(q), reason, (published) => {
    if (!isQuotient(published, s.published.fullSeconds, s.published.seconds)) return null;
    if (Math.abs(published * reads - 1) <= KERNEL_DIFFERENCE)
      return `${reason}; the rest is the efficiency of two kernels`;
    const each = (s.published.seconds - own.seconds.estimate) / own.counted.operations;
    return published < q.low && each > 0 && each <= EAGER_SECONDS_AN_OPERATION
      ? `framework floor: ${own.counted.operations} operations of the absorbed path at ${microseconds(each)} each, ` +
          'which a short context does not hide'
      : null;
  });
}

/** Cache bytes that a step reads for each cached token, over those of the full cache. */
function readShare(m: PaperModel, s: Of<'layer-ratio'>): number {
  const c = m.configuration(s.model, s.decoding);
  const own = scalarsPerToken(layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch));
  const full = scalarsPerToken(layoutOf(c.geometry, { kind: 'full' }, 'full', c.choice, c.branch));
  return (own * c.geometry.loops) / full;
}
