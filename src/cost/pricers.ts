/** The two sources of prices: a device's calibration, or its datasheet. */
import { CONSTANTS } from './constants.js';
import type { Calibration, Predictor } from '../schema/calibration.js';
import { KERNELS, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import type { Interval, Price } from './evidence.js';
import type { CollectiveKind } from '../schedule/schedule.js';
import type { Pricer } from './latency.js';
import { explainSamples, leftOutOf, type Because, type CallExplanation, type LeftOut } from './explain.js';
import { classOf, makePredictor, predictFrom, type Predict } from './predictor.js';
import { explainRoofline, rooflinePrice, ROOFLINE, type Rates } from './roofline.js';

/** The parts of a calibration that price. */
export type PricedParts = Pick<Calibration, 'overheads' | 'ceilings'> & {
  readonly kernels: readonly Pick<Calibration['kernels'][number], 'kernel' | 'samples' | 'predictors'>[];
};

/** What joins GPUs: bytes per second and direction of one of them. */
export interface Link {
  readonly bytesPerSecondPerDirection: number;
  /** Where the rate is a sum over links to single neighbours: that of one of them. */
  readonly perPeerBytesPerSecond: number | null;
  /** Most GPUs that are joined so (bridges join two or four); null where any server's are. */
  readonly mostGpus: number | null;
  /** What joins more than that, bytes per second and direction; null where nothing is known. */
  readonly beyondBytesPerSecond: number | null;
  /** It goes through the server's board and processor, which differ. */
  readonly throughHost: boolean;
}

/**
 * Exchanges through a host. NCCL on machines with RTX PRO 6000 over PCIe 5.0 moved 22 to 41 of 64 GB/s, and took 24 to
 * 48 µs for 32 KB (voipmonitor/rtx6kpro 29f3863, hardware/pcie-bandwidth.md and optimization/nccl-tuning.md); vLLM's
 * own exchange takes 5 µs where GPUs reach each other's memory. Slower was only the machine of the tables of L40S, from
 * three GPUs on: 3.7 of 32 GB/s among four, 1.4 and up to 90 µs among eight (AIConfigurator).
 */
const HOSTS = {
  slowest: (gpus: number) => ({ seconds: 90e-6, shareOfRate: gpus <= 2 ? 22.2 / 64 : gpus <= 4 ? 3.7 / 32 : 1.4 / 32 }),
  slow: (_: number) => ({ seconds: 48e-6, shareOfRate: 22.2 / 64 }),
  fastest: (_: number) => ({ seconds: 5e-6, shareOfRate: 41 / 64 }),
};

/** Seconds of an exchange at the ends of what was published, and on the slowest machine but one. */
export type HostEnds = Readonly<Record<keyof typeof HOSTS, number>>;

/** Whether GPUs that exchange are joined by the server's board, not by links of their own. */
export const throughHost = (link: Pick<Link, 'throughHost' | 'mostGpus'> | null, gpus: number): boolean =>
  link !== null && (link.throughHost || (link.mostGpus !== null && gpus > link.mostGpus));

/** Ends of such an exchange; null where no host is in the way. @param bytes of the result, as sent */
export function throughHostSeconds(
  kind: CollectiveKind,
  bytes: number,
  gpus: number,
  link: Link | null,
): HostEnds | null {
  const rate = linkRate(link, gpus);
  if (rate === null || !throughHost(link, gpus)) return null;
  const of = (host: keyof typeof HOSTS): number => {
    const { seconds, shareOfRate } = HOSTS[host](gpus);
    return seconds + sentBytes(kind, bytes, gpus) / rate / shareOfRate;
  };
  return { slowest: of('slowest'), slow: of('slow'), fastest: of('fastest') };
}

/**
 * Bytes that each GPU sends: a ring's all-gather moves (n−1)/n of the result over each link, an all-reduce twice that.
 */
const sentBytes = (kind: CollectiveKind, bytes: number, gpus: number): number =>
  ((kind === 'all-reduce' ? 2 : 1) * (gpus - 1) * bytes) / gpus;

/**
 * Rate at which `gpus` exchange, bytes per second and direction of each: with links to single neighbours, only those to
 * the GPUs that take part carry anything.
 */
export function linkRate(link: Link | null, gpus: number): number | null {
  if (!link) return null;
  if (link.mostGpus !== null && gpus > link.mostGpus) return link.beyondBytesPerSecond;
  const { bytesPerSecondPerDirection: all, perPeerBytesPerSecond: each } = link;
  return each === null ? all : Math.min(all, each * (gpus - 1));
}

/**
 * Start-up latency of an all-reduce, seconds: servers' own take 3 to 4.4 µs over NVLink (tables of vLLM, SGLang and
 * TRT-LLM), NCCL's 10 to 30.
 */
const COLLECTIVE_LATENCY: Interval = { estimate: 6e-6, low: 3e-6, high: 30e-6 };

/** An exchange by a ring: 70 % of the link's rate assumed, 100 % and 40 % bracket it. */
function exchange(kind: CollectiveKind, bytes: number, gpus: number, link: Link | null): Price | null {
  const rate = linkRate(link, gpus);
  if (rate === null) return null;
  const seconds = sentBytes(kind, bytes, gpus) / rate;
  return {
    estimate: COLLECTIVE_LATENCY.estimate + seconds / 0.7,
    low: COLLECTIVE_LATENCY.low + seconds,
    high: Math.max(COLLECTIVE_LATENCY.high + seconds / 0.4, throughHostSeconds(kind, bytes, gpus, link)?.slowest ?? 0),
    evidence: 'roofline',
    octavesOutside: 0,
    by: 'roofline',
  };
}

/** Places for the remembered prices of one kernel and variant: at first, and at most. */
const PLACES = { first: 2 ** 8, most: 2 ** 17 } as const;

/**
 * Remembers prices by the sizes of their shapes: candidates of one plan share most of their operations. Sizes lie side
 * by side in one array, in or after the place that their hash names: objects that lie apart take longer to find than
 * most prices to compute. Half of the places stay free. When there would be too many, all is forgotten.
 */
export function remembering(kernel: KernelName, price: (shape: Shape) => Price): (shape: Shape) => Price {
  const { dims } = KERNELS[kernel];
  const count = dims.length;
  const sizes = new Float64Array(count);
  let keys = new Float64Array(PLACES.first * count);
  let prices = new Array<Price | undefined>(PLACES.first).fill(undefined);
  let free = PLACES.first / 2;
  /** The place of `sizes`: theirs, or a free one. */
  const placeOf = (): number => {
    let hash = 0;
    for (let i = 0; i < count; i++) hash = (Math.imul(hash, 31) + sizes[i]!) | 0;
    // Most sizes are multiples of a power of two: the low bits must depend on the high ones.
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
    hash ^= hash >>> 13;
    for (; ; hash++) {
      const place = hash & (prices.length - 1);
      if (prices[place] === undefined) return place;
      let i = 0;
      while (i < count && keys[place * count + i] === sizes[i]) i++;
      if (i === count) return place;
    }
  };
  const put = (place: number, found: Price): void => {
    keys.set(sizes, place * count);
    prices[place] = found;
    free--;
  };
  const makeRoom = (): void => {
    const before = { keys, prices };
    const places = prices.length < PLACES.most ? 2 * prices.length : PLACES.first;
    keys = new Float64Array(places * count);
    prices = new Array<Price | undefined>(places).fill(undefined);
    free = places / 2;
    if (places === PLACES.first) return;
    before.prices.forEach((kept, i) => {
      if (!kept) return;
      sizes.set(before.keys.subarray(i * count, (i + 1) * count));
      put(placeOf(), kept);
    });
  };
  return (shape) => {
    for (let i = 0; i < count; i++) sizes[i] = shape[dims[i]!]!;
    const known = prices[placeOf()];
    if (known) return known;
    const found = price(shape);
    if (free === 0) makeRoom();
    for (let i = 0; i < count; i++) sizes[i] = shape[dims[i]!]!;
    put(placeOf(), found);
    return found;
  };
}

/** What prices a kernel's variant, found once for all calls. */
export function eachVariant(find: (kernel: KernelName, variant: string) => Pricer['price']): Pricer['price'] {
  // A dozen of them: comparing names in turn is faster than a map.
  const known: { kernel: KernelName; variant: string; price: Pricer['price'] }[] = [];
  return (call) => {
    const { kernel, variant } = call;
    for (const one of known) if (one.kernel === kernel && one.variant === variant) return one.price(call);
    const price = find(kernel, variant);
    known.push({ kernel, variant, price });
    return price(call);
  };
}

/** Prices from a datasheet's rates. */
export function datasheetPricer(rates: Rates, link: Link | null): Pricer {
  return {
    price: (call) => rooflinePrice(call, rates),
    explain: (call) => explainRoofline(call, rates),
    // A step is one submission: tens of microseconds on drivers in use.
    stepOverhead: { estimate: 30e-6, low: 0, high: 200e-6, evidence: 'roofline', by: 'roofline' },
    collective: (kind, bytes, gpus) => exchange(kind, bytes, gpus, link),
    source: 'datasheet',
  };
}

/** Prices a shape; `because` takes the parts of its half-width. */
type PriceShape = (shape: Shape, because?: Because) => Price;

/** Kernel times measured elsewhere replace or join a device's own. */
export type Predictors = ReadonlyMap<string, PriceShape>;

export const predictorKey = (kernel: KernelName, variant: string): string => `${kernel}/${variant}`;

/** A prediction as a source of prices. */
const pricesOf =
  (predict: Predict): PriceShape =>
  (shape, because) => {
    const p = predict(shape, because);
    const widen = Math.exp(p.halfWidthLog);
    return {
      estimate: p.seconds,
      low: p.seconds / widen,
      high: p.seconds * widen,
      evidence: p.evidence,
      octavesOutside: p.octavesOutside,
      by: 'lla-sim',
    };
  };

/**
 * The predictors of a calibration.
 * @param stale kernels whose source has changed since they were measured; they are left out
 */
export function predictorsOf(calibration: Pick<PricedParts, 'kernels'>, stale: ReadonlySet<string>): Predictors {
  const predictors = new Map<string, PriceShape>();
  for (const k of calibration.kernels) {
    if (stale.has(k.kernel)) continue;
    for (const [variant, predictor] of Object.entries(k.predictors)) {
      const kernel = k.kernel as KernelName;
      const samples = k.samples.filter((s) => s.variant === variant);
      if (samples.length === 0) continue;
      predictors.set(predictorKey(kernel, variant), pricesOf(makePredictor(kernel, variant, samples, predictor)));
    }
  }
  return predictors;
}

/** What the kernels of its class tell of a variant without points; null where none was measured. */
export type Unmeasured = (call: KernelCall) => { readonly predict: Predict; readonly shared: Predictor } | null;

function unmeasuredOf({ kernels }: Pick<PricedParts, 'kernels'>, stale: ReadonlySet<string>): Unmeasured {
  const known = kernels
    .filter((k) => !stale.has(k.kernel))
    .flatMap((k) =>
      Object.entries(k.predictors).flatMap(([variant, shared]) => {
        const shape = k.samples.find((s) => s.variant === variant)?.shape;
        const kernel = k.kernel as KernelName;
        return shape ? [{ kernel, class: classOf({ kernel, variant, shape }), shared }] : [];
      }),
    );
  return (call) => {
    const alike = known.filter((one) => one.class === classOf(call));
    const shared = (alike.find(({ kernel }) => kernel === call.kernel) ?? alike[0])?.shared;
    if (!shared) return null;
    const termScales = alike.some(({ kernel }) => kernel === call.kernel) ? shared.termScales : [];
    return { shared, predict: predictFrom(call.kernel, call.variant, [], { ...shared, termScales }) };
  };
}

/**
 * Widening of the interval of attention that also writes its scores, by which H2O weighs tokens, either way. It is the
 * same kernel; over pinned tokens and a ring it took 0 to 15 % longer than over a plain cache (docs/experiments.md).
 */
const SCORES_WIDENING = CONSTANTS.scores.value;

/** Another variant of the kernel whose times hold for this one, and how much less surely. */
function alike(kernel: KernelName, variant: string): { readonly variant: string; readonly widening: number } | null {
  if (kernel === 'rope') return { variant: variant === 'adjacent' ? 'half-split' : 'adjacent', widening: 1 };
  const [plain, scores] = variant.split('+');
  return scores === 'scores' ? { variant: plain!, widening: SCORES_WIDENING } : null;
}

/** What prices a variant: its own points, or those of one that is alike. */
function predictorOf(predictors: Predictors, kernel: KernelName, variant: string): PriceShape | null {
  const own = predictors.get(predictorKey(kernel, variant));
  const other = own ? null : alike(kernel, variant);
  const lent = other && predictors.get(predictorKey(kernel, other.variant));
  if (!other || !lent || other.widening === 1) return own ?? lent ?? null;
  return (shape, because) => {
    const { low, high, evidence, ...price } = lent(shape, because);
    because?.(`it is priced as ${kernel} ${other.variant}, which was measured`, Math.log(other.widening), 'added');
    return {
      ...price,
      low: low / other.widening,
      high: high * other.widening,
      evidence: evidence === 'measured' ? 'interpolated' : evidence,
    };
  };
}

/** Prices from measured kernels; what was not measured falls back to a roofline over the measured ceilings. */
export function measuredPricer(options: {
  predictors: Predictors;
  rates: Rates;
  launchSeconds?: number;
  /** What the kernels of its class tell of a variant without points. */
  unmeasured?: Unmeasured;
  stepOverhead: Pricer['stepOverhead'];
  link: Link | null;
  source: string;
}): Pricer {
  const { predictors, rates, launchSeconds, unmeasured, stepOverhead, link, source } = options;
  return {
    price: eachVariant((kernel, variant) => {
      const predict = predictorOf(predictors, kernel, variant);
      if (predict) {
        const remembered = remembering(kernel, predict);
        return (call) => remembered(call.shape);
      }
      let ofClass: PriceShape | null | undefined;
      return (call) => {
        if (ofClass === undefined) {
          const found = unmeasured?.(call);
          ofClass = found ? remembering(kernel, pricesOf(found.predict)) : null;
        }
        return ofClass
          ? ofClass(call.shape)
          : rooflinePrice(call, rates, launchSeconds === undefined ? {} : { launchSeconds });
      };
    }),
    stepOverhead,
    collective: (kind, bytes, gpus) => exchange(kind, bytes, gpus, link),
    source,
  };
}

/** Rates measured by a calibration. */
const measuredRates = (c: Pick<PricedParts, 'ceilings'>): Rates => ({
  bytesPerSecond: c.ceilings.readBytesPerSecond,
  f32FlopsPerSecond: c.ceilings.f32FlopsPerSecond,
  matrixFlopsPerSecond: c.ceilings.matrixFlopsPerSecond,
});

/** Prices of the device that a calibration was measured on. */
export function calibrationPricer(
  calibration: PricedParts,
  options: { stale: ReadonlySet<string>; link: Link | null; source: string },
): Pricer {
  const { submitSeconds, dispatchSeconds } = calibration.overheads;
  const unmeasured = unmeasuredOf(calibration, options.stale);
  const predictors = predictorsOf(calibration, options.stale);
  const rates = measuredRates(calibration);
  const pricer = measuredPricer({
    predictors,
    rates,
    launchSeconds: dispatchSeconds,
    unmeasured,
    stepOverhead: {
      estimate: submitSeconds,
      low: submitSeconds / 2,
      high: submitSeconds * 2,
      evidence: 'measured',
      by: 'lla-sim',
    },
    link: options.link,
    source: options.source,
  });
  const explain = (call: KernelCall): CallExplanation => {
    const { kernel, variant, shape } = call;
    const price = predictorOf(predictors, kernel, variant);
    const k = calibration.kernels.find((one) => one.kernel === kernel);
    const of = k && (k.predictors[variant] ? variant : alike(kernel, variant)?.variant);
    const fitted = of === undefined ? undefined : k!.predictors[of];
    const ofClass = unmeasured(call);
    if ((!price || !fitted) && ofClass)
      return {
        ...explainSamples(call, [], ofClass.shared),
        leftOut: leftOutOf((because) => ofClass.predict(shape, because)),
      };
    if (!price || !fitted) return explainRoofline(call, rates, { launchSeconds: dispatchSeconds });
    const leftOut = leftOutOf((because) => price(shape, because));
    return { ...explainSamples({ kernel, variant: of!, shape }, k!.samples, fitted), leftOut };
  };
  return { ...pricer, explain };
}

/**
 * Widening of a calibration's intervals on another machine with such an adapter, either way. Measured once: 90 % of 61
 * shapes took at most 5.6 times as long, or as short, on a second machine with llvmpipe (docs/experiments.md).
 */
export const OTHER_MACHINE = CONSTANTS.otherMachine.value;

/** The prices of another machine, as far as they hold for the one at hand. */
export function elsewhere(pricer: Pricer): Pricer {
  const wider = <P extends Interval>(price: P): P => ({
    ...price,
    low: price.low / OTHER_MACHINE,
    high: price.high * OTHER_MACHINE,
  });
  const why: LeftOut = {
    what: 'a second machine with such an adapter',
    halfWidth: Math.log(OTHER_MACHINE),
    enters: 'added',
  };
  const explain = (call: KernelCall): CallExplanation => {
    const { leftOut, ...rest } = pricer.explain!(call);
    return { ...rest, leftOut: [...leftOut, why] };
  };
  return {
    ...pricer,
    price: (call) => wider(pricer.price(call)),
    ...(pricer.explain ? { explain } : {}),
    stepOverhead: wider(pricer.stepOverhead),
  };
}

/** What the roofline interval assumes, in a sentence for people. */
export const ROOFLINE_NOTE =
  `from the datasheet alone: ${ROOFLINE.estimate.bandwidth * 100} % of the bandwidth (interval: ` +
  `100 % to ${ROOFLINE.high.bandwidth * 100} %), half of the arithmetic rates, ` +
  `${ROOFLINE.estimate.launchSeconds * 1e6} µs a launch; an eager framework is slower than the slow end`;
