/**
 * Times of products whose weights a server keeps in fewer bits than measured kernels read: AWQ, GPTQ, bitsandbytes,
 * 8-bit floats with a scale a block. No table that is read has such kernels (AIConfigurator's have blocks, vLLM's with
 * the host's time). Estimates are physics, widths published ratios.
 */
import { FLOAT8_BLOCKS, storedIn, type StoredWeights } from '../../kernels/stored-weights.js';
import { STORAGE_BYTES, type OpShape, type OpWork, type Rates } from '../../kernels/op-class.js';
import { listed, reading, type TunedCall } from '../../kernels/tuned.js';
import type { KernelCall } from '../../kernels/registry.js';
import type { CallExplanation } from '../cost/explain.js';
import type { Floor, Price } from '../cost/evidence.js';
import type { Pricer } from '../cost/latency.js';
import { eachVariant } from '../cost/pricers.js';
import type { QuantisedWeights } from '../geometry/geometry.js';
import { attainableSeconds, type AttainableLaws } from './attainable.js';

/** Bits of the weights that products of the tables read. */
const TABLE_BITS = 8 * STORAGE_BYTES;

/**
 * Times the estimate that a product of packed weights may take. Marlin beside a product in 16 bits took 1 / 0.6 = 1.67
 * times as long from 2,048 rows on (vllm-project/vllm pull request 2497, 2024-01-24). At few rows it took 0.46 of it on
 * an H100, for a quarter of the bytes (inclusionAI/humming pull request 2, 8192 × 8192): 1.5 times what this rule says.
 */
const PACKED_SLOWER = 1.7;

/**
 * Times the slow end with one scale a tensor that a product with a scale a block may take: 1.29 to 1.38 at large sizes
 * on an H100 (pytorch/FBGEMM pull request 2546), 0.97 to 1.29 at 1 to 128 rows (vllm-project/vllm pull request 49363).
 * In AIConfigurator's tables of large matrices on an H200, median and 90th percentile: SGLang 0.9 to 1.2 and 1.3 to
 * 1.7, TRT-LLM 0.8 to 1.2 and 1.1 to 2.1.
 */
const BLOCKS_SLOWER = 1.4;

/** Tuned kernels of products in 8-bit floats on a GPU: none, those with a scale a tensor or row, or a block, too. */
export type Float8 = 'none' | 'rows' | 'blocks';

/** A call as a GPU does it: where its units do not multiply 8-bit floats, products widen them on the way. */
export const onUnits = (call: TunedCall, float8: Float8): TunedCall =>
  call.class === 'product-fp8' && float8 === 'none' ? reading({ as: 'packed', bits: 8 }, call.table!.shape) : call;

/** What prices calls of the tables, and bounds them. */
interface Bounds {
  readonly measured: (call: TunedCall) => Price;
  readonly laws: AttainableLaws;
  readonly rates: Rates;
  readonly float8: Float8;
  readonly floor: Floor;
  /** What no left-out error goes below. */
  readonly least: number;
}

/** The price of a call whose weights are stored otherwise than its table's call reads them. */
export function storedPrice({ stored, table, work }: TunedCall, b: Bounds): Price {
  const { shape } = table!;
  return stored === 'blocks' ? blocksPrice(shape, b) : packedPrice(stored!, shape, work, b);
}

/**
 * The time of 16 bits, times the law with the bytes as they are stored over the law with all: few rows wait for bytes,
 * many for operations, which stay those of 16 bits.
 */
function packedPrice({ as, bits }: StoredWeights, shape: OpShape, work: OpWork, b: Bounds): Price {
  const { laws, rates, floor, least } = b;
  const call = listed('product', shape);
  const whole = b.measured(call);
  const seconds = (of: OpWork): number => attainableSeconds(laws, { ...call, work: of }, rates).estimate;
  const isPacked = as === 'packed';
  const estimate = Math.max(least, isPacked ? (whole.estimate * seconds(work)) / seconds(call.work) : whole.estimate);
  // Another kernel reads them as they are stored, and writes 16 bits.
  const unpacked = ((bits + TABLE_BITS) / 8) * shape['inner']! * shape['columns']!;
  const unpacking = isPacked ? 0 : seconds({ bytes: unpacked, operations: 0 });
  return {
    ...whole,
    estimate,
    low: Math.max(least, Math.min(estimate, Math.max((bits / TABLE_BITS) * whole.low, floor.compute))),
    high: Math.max(whole.high + unpacking, PACKED_SLOWER * estimate),
    evidence: 'attainable',
    floor,
  };
}

/**
 * The time with one scale a tensor. Servers have tuned kernels with a scale a block for Hopper and Blackwell
 * (DeepGEMM); others, and older servers, took the time of 16 bits (vllm-project/vllm pull request 19085: a step of
 * Qwen3-32B-FP8 of 27 ms, and 14 with DeepGEMM).
 */
function blocksPrice(shape: OpShape, { measured, float8 }: Bounds): Price {
  const scaled = measured(listed('product-fp8', shape));
  const high = BLOCKS_SLOWER * scaled.high;
  return {
    ...scaled,
    high: float8 === 'blocks' ? high : Math.max(high, measured(listed('product', shape)).high),
    evidence: 'attainable',
  };
}

/** What a price of stored weights rests on, as its explanation says it. */
export function explainedStored(
  { stored }: TunedCall,
  why: CallExplanation,
  from: Price,
  price: Price,
): CallExplanation {
  const what = stored === 'blocks' ? BLOCKS_TOLD : stored!.as === 'packed' ? PACKED_TOLD : UNPACKED_TOLD;
  return {
    ...why,
    ...(price.estimate === from.estimate
      ? {}
      : { rule: { what: 'weights are read as stored, widened on the way', from: from.estimate, counted: true } }),
    leftOut: [...why.leftOut, { what, halfWidth: Math.log(price.high / price.estimate), enters: 'instead' }],
  };
}

const PACKED_TOLD =
  'such kernels were not measured here: the slow end is that of 16-bit weights, or ' +
  `${PACKED_SLOWER} times the estimate where that is more, and the fast end reads the stored bytes at best`;
const UNPACKED_TOLD =
  'such kernels were not measured here, and the estimate is a product with 16-bit weights: at the slow end another ' +
  'kernel writes those first, at the fast end none does';
const BLOCKS_TOLD =
  `the time is that of one scale a tensor; kernels with a scale a block were not measured here: published ones took ` +
  `up to ${BLOCKS_SLOWER} times as long, and servers without tuned ones as long as with 16-bit weights`;

/**
 * The weights that products of a plan's times have, where they are stored so, and what was not measured.
 * @param float8 null where a calibration prices, or nothing
 */
export function storedNote({ float8: isFloat, blocks, unpacked }: QuantisedWeights, float8: Float8 | null): string {
  if (float8 === null) return '16-bit weights; kernels that read fewer bits were not measured';
  if (isFloat && !blocks && float8 !== 'none') return 'such weights, which quantise activations on the way';
  if (blocks && float8 !== 'none')
    return (
      'one scale a tensor, which quantise activations on the way; kernels with a scale a block were not measured: ' +
      `the slow end is ${BLOCKS_SLOWER} times theirs` +
      (float8 === 'blocks' ? '' : ', or that of 16-bit weights')
    );
  if (unpacked) return '16-bit weights; to write those first was not measured, and takes as long as the slow end says';
  const widened = isFloat ? ', as this GPU’s units do not multiply 8-bit floats' : '';
  return (
    `weights that are read as stored and widened to 16 bits on the way${widened}; such kernels were not measured: ` +
    `the slow end is the time of 16-bit weights, or ${PACKED_SLOWER} times the estimate`
  );
}

/**
 * A calibration's prices: its kernels read 16 bits. The fast end reads the bits that are stored, as kernels that
 * multiply those may; none was measured.
 */
export function asSixteenBits(kernels: Pricer): Pricer {
  const own = (call: KernelCall): KernelCall => ({ ...call, variant: 'f16' });
  const isStored = ({ kernel, variant }: KernelCall): boolean => kernel === 'matmul' && bitsOf(variant) !== null;
  return {
    ...kernels,
    price: eachVariant((kernel, variant) => {
      const bits = kernel === 'matmul' ? bitsOf(variant) : null;
      if (bits === null) return (call) => kernels.price(call);
      const share = bits / TABLE_BITS;
      return (call) => {
        const price = kernels.price(own(call));
        const { floor, low, estimate, evidence } = price;
        return {
          ...price,
          low: Math.min(estimate, Math.max(share * low, floor?.compute ?? 0)),
          evidence: evidence === 'roofline' ? evidence : 'extrapolated',
          ...(floor ? { floor: { ...floor, memory: share * floor.memory } } : {}),
        };
      };
    }),
    ...(kernels.explain ? { explain: (call) => kernels.explain!(isStored(call) ? own(call) : call) } : {}),
  };
}

const bitsOf = (variant: string): number | null =>
  variant === 'f8' || variant === FLOAT8_BLOCKS ? 8 : (storedIn(variant)?.bits ?? null);
