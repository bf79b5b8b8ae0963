/**
 * Prices of a GPU that this project has no calibration of: kernels of a serving stack where others measured them, and
 * what a tuned kernel would reach where nobody did. Needs no Node module: the browser page uses it too.
 */
import { besidePrompts } from '../cost/beside-prompts.js';
import type { Floor, Interval, Price, ServerSpread } from '../cost/evidence.js';
import type { Pricer } from '../cost/latency.js';
import { eachVariant, remembering } from '../cost/pricers.js';
import { linkRate, throughHostSeconds, type HostEnds, type Link } from '../cost/exchange.js';
import type { Rates as Datasheet } from '../cost/roofline.js';
import { KERNELS, type KernelCall } from '../../kernels/registry.js';
import { STORAGE_BYTES, type OpShape, type Rates } from '../../kernels/op-class.js';
import { listed, type TunedCall } from '../../kernels/tuned.js';
import { classSpec, type OpClass } from '../../kernels/op-classes.js';
import type { CallExplanation, LeftOut } from '../cost/explain.js';
import type { CollectiveKind } from '../schedule/schedule.js';
import { attainableSeconds, exchangeClass, UNDIVIDED, type AttainableLaws } from './attainable.js';
import { explainAttainable } from './explain.js';
import { explainedStored, onUnits, storedPrice, type Float8 } from './fewer-bits.js';
import type { RuntimeSource } from './runtime.js';
import { StackPredictor, type StackPrice } from './predict.js';
import { onOtherCard, type RateRatio } from './same-chip.js';
import { coldShare, fromMemoryBytes } from './warm.js';
import { rotatesInAttention, stackName, type Fused, type ServerTime, type StackTables } from './serving.js';

/** Bytes of an f32 activation in our schedules; stacks exchange bf16. */
const F32_BYTES = 4;

export interface GpuSources {
  /** The GPU that is priced, by its id in the catalogue. */
  readonly device: string;
  /** The one whose kernels are its own (devices/device.ts, `chipOf`). */
  readonly chip: string;
  /** How much slower this card is than that GPU. */
  readonly ratio: RateRatio;
  /** Tables of the stack that serves; null: all is priced as attainable. */
  readonly stack: StackTables | null;
  readonly laws: AttainableLaws;
  readonly float8: Float8;
  /** What a server adds to its kernels. */
  readonly server: ServerTime;
  /** How far whole servers were from their predictions: first tokens alone where a runtime tells its steps. */
  readonly spread: ServerSpread | null;
  /** The same of a server that nobody measured. */
  readonly spreadOfOthers: ServerSpread;
  /** What those kernels do on the way for the model; absent where the model is not known. */
  readonly fused?: Fused | null;
  /** The program around the kernels, where it is known for more than seconds a step. */
  readonly runtime?: RuntimeSource;
}

const ATTAINABLE = 'attainable';
const HANDED = 'its rows come in 8 bits from the kernel before, so their quantisation is taken off';
/** Of a product's time, whatever is taken off. */
const LEAST_SHARE = 0.5;
/** Of what a neighbour's kernel does on the way, for nothing. */
const NOTHING_TO_EXPLAIN: CallExplanation = { law: { kind: 'sum', seconds: 0, parts: [] }, data: null, leftOut: [] };

/** Whether tables have attention that divides no sequence, of units that multiply tiles at the same rate. */
export const measuresUndivided = ({ stack, ratio }: Pick<GpuSources, 'stack' | 'ratio'>): boolean =>
  ratio.tile === 1 && stack !== null && stack.file.tables.some(({ op }) => op === UNDIVIDED);

/** Prices of a GPU from a stack's tables and from laws. */
export function gpuPricer(sources: GpuSources, datasheet: Datasheet, link: Link | null): Pricer {
  const { stack, laws, float8 } = sources;
  const tables = stack && new StackPredictor(stack.file);
  const named = stack ? stackName(stack.file) : ATTAINABLE;
  const rates = ratesOf(datasheet, linkRate(link, 2));
  // One with the same chip, a faster link and other rates.
  const otherCard = stack !== null && stack.file.device !== sources.device;
  const free = asPrice({ estimate: 0, low: 0, high: 0 }, 'measured', 0, named, { memory: 0, compute: 0 }, 0);
  const walksByLaw = laws.undivided !== undefined && !measuresUndivided(sources);
  /** A time of these tables, here. */
  const here = (
    found: StackPrice,
    { device, rates: at }: StackTables['file'],
    op: OpClass,
    shape: OpShape,
  ): StackPrice =>
    device === sources.device
      ? found
      : device === sources.chip
        ? onOtherCard(found, classSpec(op).work(shape), at, sources.ratio)
        : { ...found, evidence: 'extrapolated' };
  const predicted = (op: OpClass, shape: OpShape): StackPrice | null => {
    if (op === UNDIVIDED && walksByLaw) return null;
    const own = tables?.predict(op, shape);
    return own && stack ? here(own, stack.file, op, shape) : null;
  };
  const floorOf = ({ work }: TunedCall): Floor => ({
    memory: work.onLink ? 0 : work.bytes / rates.memoryBytesPerSecond,
    compute: work.operations / rates.operationsPerSecond + (work.vectorOperations ?? 0) / datasheet.f32FlopsPerSecond,
  });
  // A runtime may run a prompt's tokens as rows, which read one cache together.
  const cached = sources.runtime || !datasheet.l2Bytes ? Infinity : datasheet.l2Bytes / rates.memoryBytesPerSecond;
  /**
   * Weights and a decoding cache come from memory, whatever left-out errors allow; of what else a call reads, all that
   * the last cache cannot have kept.
   */
  const leastOf = (call: TunedCall, floor: Floor): number => {
    if (cached === Infinity) return -Infinity;
    const { class: of, table, work } = call;
    if (of === 'small' && table) return coldShare(table.op, work.bytes, datasheet.l2Bytes!) * floor.memory;
    const streamed = fromMemoryBytes(call);
    return streamed === null ? floor.memory - cached : streamed / rates.memoryBytesPerSecond;
  };
  /**
   * A chunk's time: that of all tokens up to its end less that of those before it, as sure as the former, and no less
   * than that of its own tokens alone.
   */
  const chunkPrice = (whole: StackPrice, op: OpClass, shape: OpShape, before: OpShape): StackPrice => {
    const least = predicted(op, { ...shape, tokens: shape['tokens']! - before['tokens']! }) ?? whole;
    const seconds = whole.estimate - (predicted(op, before)?.estimate ?? 0);
    if (seconds <= least.estimate) return least;
    const share = seconds / whole.estimate;
    return { ...whole, ...times(whole, share), estimate: seconds, evidence: unlike(whole.evidence) };
  };
  const measured = (call: TunedCall, at = rates): Price => {
    const floor = floorOf(call);
    const { table } = call;
    const whole = table && predicted(table.op, table.shape);
    const least = leastOf(call, floor);
    if (!whole) return asPrice(attainableSeconds(laws, call, at), 'attainable', 0, ATTAINABLE, floor, least);
    const chunk = table.before ? chunkPrice(whole, table.op, table.shape, table.before) : whole;
    const found = chunk.octavesOutside > 0 ? noWider(chunk, attainableSeconds(laws, call, at)) : chunk;
    return asPrice(found, found.evidence, found.octavesOutside, named, floor, least);
  };
  /** Share of a product's time that is left where its rows come quantised from the kernel before. */
  const handedShare = ({ table }: TunedCall, whole: Price): number => {
    if (!sources.fused || table?.op !== 'product-fp8') return 1;
    const { rows = 1, columns = 1, inner = 1 } = table.shape;
    if (columns !== sources.fused.handedColumns && !sources.fused.inReduces) return 1;
    const quantised = predicted('quantise', { tokens: rows, width: inner });
    return quantised ? Math.max(LEAST_SHARE, 1 - quantised.estimate / whole.estimate) : 1;
  };
  const handed = (call: TunedCall, whole: Price): Price => {
    const share = handedShare(call, whole);
    if (share === 1) return whole;
    const floor = floorOf(call);
    const { evidence, octavesOutside, by } = whole;
    return asPrice(times(whole, share), unlike(evidence), octavesOutside, by, floor, leastOf(call, floor));
  };
  const priced = (asked: TunedCall | null, at = rates): Price => {
    if (!asked) return free;
    const call = onUnits(asked, float8);
    if (!call.stored) return handed(call, measured(call, at));
    const floor = floorOf(call);
    return storedPrice(call, { measured, laws, rates, float8, floor, least: leastOf(call, floor) });
  };
  /** An exchange as a call, and the longest that it takes through a host; null where the link is unknown. */
  const exchangeOf = (kind: CollectiveKind, bytes: number, gpus: number) => {
    const rate = linkRate(link, gpus);
    if (rate === null) return null;
    const sent = (bytes * STORAGE_BYTES) / F32_BYTES;
    const sum = listed('all-reduce', { gpus, bytes: sent });
    // Tables are of GPUs that one link joins; no table has a gather, which sends no more than a sum.
    const joined = !otherCard && (link === null || link.mostGpus === null || gpus <= link.mostGpus);
    const call: TunedCall = {
      ...(kind === 'all-reduce' && joined ? sum : { work: sum.work }),
      class: exchangeClass(link, gpus),
    };
    const own = ratesOf(datasheet, rate);
    const byLaw = priced(call, own);
    const faster = otherCard && kind === 'all-reduce' ? priced({ ...sum, class: call.class }, own) : null;
    const throughHost = throughHostSeconds(kind, sent, gpus, link);
    // A slower link takes no less at any end than a faster one did.
    const price = faster ? endsOf(byLaw, faster, Math.max) : byLaw;
    return { call, rates: own, throughHost, byLaw, price };
  };
  type Exchange = NonNullable<ReturnType<typeof exchangeOf>>;
  /** Its price where it goes through a host, of which there are others. */
  const onAnyHost = (
    { price, throughHost: ends }: Exchange,
    kind: CollectiveKind,
    bytes: number,
    gpus: number,
  ): Price => {
    if (!ends) return price;
    const own = onHosts(price, ends);
    // A gather sends half of what a sum does, which the tables of a machine have.
    const sum = kind === 'all-gather' ? exchangeOf('all-reduce', bytes, gpus) : null;
    return sum?.throughHost && sum.price.evidence !== 'attainable'
      ? endsOf(own, onHosts(sum.price, sum.throughHost), Math.min)
      : own;
  };
  const rotates = stack !== null && rotatesInAttention(stack.file.stack);
  const tunedOf = ({ kernel, variant, shape }: KernelCall): TunedCall | null => {
    const call = KERNELS[kernel].tuned(shape, variant);
    const fused = (rotates && call?.table?.op === 'rope') || (sources.fused?.inReduces && kernel === 'rmsnorm');
    return fused ? null : call;
  };
  const explained = (call: TunedCall): CallExplanation => {
    const { table } = call;
    const own = table ? predicted(table.op, table.shape) : null;
    const found = own && table && tables?.explain(table.op, table.shape);
    const there = own && table && tables?.predict(table.op, table.shape);
    const floor = floorOf(call);
    const least = leastOf(call, floor);
    const { low, estimate, high, octavesOutside } = measured(call);
    const byMemory = low === least;
    const moved = there && own ? movedFrom(sources.chip, there, own) : [];
    const capped =
      own !== null && octavesOutside > 0 && noWider(own, attainableSeconds(laws, call, rates)).high < own.high;
    return {
      ...(found ?? explainAttainable(laws, call, rates)),
      ...(found ? { leftOut: [...found.leftOut, ...moved, ...(capped ? [noWiderThan(high / estimate)] : [])] } : {}),
      ...(byMemory ? { fastEnd: { memorySeconds: floor.memory, cachedSeconds: floor.memory - least } } : {}),
    };
  };
  const told = (call: TunedCall, why: CallExplanation): CallExplanation => {
    const whole = measured(call);
    return handedShare(call, whole) === 1
      ? why
      : { ...why, rule: { what: HANDED, from: whole.estimate, counted: true } };
  };
  return {
    price: eachVariant((kernel, variant) => {
      const remembered = remembering(kernel, (shape) => priced(tunedOf({ kernel, variant, shape })));
      return (asked) => {
        const call = tunedOf(asked);
        // A law costs no more than looking a price up, a table does.
        return call?.table ? remembered(asked.shape) : priced(call);
      };
    }),
    explain: (of) => {
      const asked = tunedOf(of);
      if (!asked) return NOTHING_TO_EXPLAIN;
      const call = onUnits(asked, float8);
      if (!call.stored) return told(call, explained(call));
      const from = listed(call.table!.op, call.table!.shape);
      return explainedStored(call, explained(from), measured(from), priced(call));
    },
    stepOverhead: { ...sources.server.secondsPerStep, evidence: 'interpolated', by: named },
    sequenceOverhead: { ...sources.server.secondsPerSequence, evidence: 'interpolated', by: named },
    requestOverhead: sources.server.secondsPerRequest,
    spread: sources.spread,
    ...(laws.undivided
      ? { besidePrompts: (group, sequences, bytes) => besidePrompts(laws.undivided!, group, sequences, bytes) }
      : {}),
    units: stack && datasheet.units ? datasheet.units : null,
    collective: (kind, bytes, gpus) => {
      const exchange = exchangeOf(kind, bytes, gpus);
      return exchange && onAnyHost(exchange, kind, bytes, gpus);
    },
    explainCollective: (kind, bytes, gpus) => {
      const exchange = exchangeOf(kind, bytes, gpus);
      if (!exchange) return null;
      const { call, throughHost, byLaw, price } = exchange;
      const { estimate, high } = price;
      const found = call.table && tables?.explain(call.table.op, call.table.shape);
      const explained = found ?? explainAttainable(laws, call, exchange.rates);
      const instead = (what: string, slow: number, middle = estimate): CallExplanation => {
        const leftOut: LeftOut = { what, halfWidth: Math.log(slow / middle), enters: 'instead' };
        return { ...explained, leftOut: [...explained.leftOut, leftOut] };
      };
      if (throughHost) {
        const onAny = onAnyHost(exchange, kind, bytes, gpus);
        return instead(
          onAny.estimate === estimate
            ? 'hosts differ: it may be as slow, or as fast, as the exchanges through one that were published'
            : price.evidence === 'attainable'
              ? 'hosts differ: no end lies beyond what published machines, and this GPU’s all-reduces, took'
              : 'hosts differ: this table’s machine is slower than most that were published, and the estimate is the ' +
                'geometric mean of both',
          onAny.high,
          onAny.estimate,
        );
      }
      if (high === byLaw.high && estimate === byLaw.estimate) return explained;
      return instead('by law, and no faster than the same chip was measured with a faster link', high);
    },
    source: named,
  };
}

const times = ({ estimate, low, high }: Interval, share: number): Interval => ({
  estimate: share * estimate,
  low: share * low,
  high: share * high,
});

/** The word for a time that was worked out from measured ones. */
const unlike = <E extends Price['evidence']>(evidence: E): E | 'interpolated' =>
  evidence === 'measured' ? 'interpolated' : evidence;

/** Outside the sizes that were measured a table's interval is no wider than the law's for GPUs without tables. */
const noWider = (found: StackPrice, law: Interval): StackPrice => ({
  ...found,
  low: Math.max(found.low, found.estimate * Math.min(1, law.low / law.estimate)),
  high: Math.min(found.high, found.estimate * Math.max(1, law.high / law.estimate)),
});

/** What a card adds to the width of a time that was measured on another one with its chip; nothing on that one. */
function movedFrom(chip: string, there: StackPrice, here: StackPrice): LeftOut[] {
  const factor = here.estimate / there.estimate;
  const halfWidth = Math.log(here.high / here.estimate) - Math.log(there.high / there.estimate);
  const moved = `measured on the ${chip}, and moved × ${factor.toFixed(2)} to the rates of this card`;
  return halfWidth > 1e-9 ? [{ what: `${moved}: half of the move, and 5 %`, halfWidth, enters: 'added' }] : [];
}

const noWiderThan = (factor: number): LeftOut => ({
  what: 'outside the sizes that were measured the law for GPUs without tables is surer',
  halfWidth: Math.log(factor),
  enters: 'instead',
});

/**
 * An exchange through a host, of which nobody knows which it is. A table is of one machine: where that is slower than
 * most that were published, the estimate is the geometric mean of both. Without a table no end lies beyond those, and
 * the law's estimate is not later than the middle of the range.
 */
function onHosts(price: Price, { slowest, slow, fastest }: HostEnds): Price {
  const low = Math.min(price.low, fastest);
  if (price.evidence === 'attainable') {
    const latest = Math.min(slow, Math.sqrt(fastest * slowest));
    return { ...price, low, estimate: Math.min(latest, Math.max(fastest, price.estimate)), high: slowest };
  }
  const estimate = price.estimate > slow ? Math.sqrt(price.estimate * slow) : price.estimate;
  return { ...price, low, estimate, high: Math.max(price.high, slow) };
}

/** A price of which each end is that of two. */
const endsOf = (price: Price, other: Price, choose: (a: number, b: number) => number): Price => ({
  ...price,
  estimate: choose(price.estimate, other.estimate),
  low: choose(price.low, other.low),
  high: choose(price.high, other.high),
});

const ratesOf = (d: Datasheet, linkBytesPerSecond: number | null): Rates => ({
  memoryBytesPerSecond: d.bytesPerSecond,
  linkBytesPerSecond: linkBytesPerSecond ?? d.bytesPerSecond,
  operationsPerSecond: d.matrixFlopsPerSecond ?? d.f32FlopsPerSecond,
  vectorOperationsPerSecond: d.f32FlopsPerSecond,
});

/** One layout for all prices: thousands of them are added up. */
const asPrice = (
  { estimate, low, high }: Interval,
  evidence: Price['evidence'],
  octavesOutside: number,
  by: string,
  floor: Floor,
  least: number,
): Price => {
  const at = Math.max(estimate, least);
  return { estimate: at, low: Math.max(low, least), high: Math.max(at, high), evidence, octavesOutside, by, floor };
};
