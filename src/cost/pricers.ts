/** The two sources of prices: a device's calibration, or its datasheet. */
import { CONSTANTS } from './constants.js';
import type { Calibration, Predictor } from '../schema/calibration.js';
import { KERNELS, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import type { Interval, Price } from './evidence.js';
import { exchange, type Link } from './exchange.js';
import type { Pricer } from './latency.js';
import { explainSamples, leftOutOf, type Because, type CallExplanation, type LeftOut } from './explain.js';
import { classOf, makePredictor, predictFrom, type Predict } from './predictor.js';
import { explainRoofline, rooflinePrice, ROOFLINE, type Rates } from './roofline.js';

/** The parts of a calibration that price. */
export type PricedParts = Pick<Calibration, 'overheads' | 'ceilings'> & {
  readonly kernels: readonly Pick<Calibration['kernels'][number], 'kernel' | 'samples' | 'predictors'>[];
};

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
