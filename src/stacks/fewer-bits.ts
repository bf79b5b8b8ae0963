/** Weights in fewer bits than kernels of the tables read: AWQ, GPTQ, bitsandbytes. */
import { eachVariant } from '../cost/pricers.js';
import type { Pricer } from '../cost/latency.js';
import type { QuantisedWeights } from '../geometry/geometry.js';

/** Bits of the weights that products of the tables read. */
const TABLE_BITS = 16;

/**
 * Prices of products with 16-bit weights, whose fast end reads the bits that are stored: kernels that multiply those as
 * they are may reach it, and were not measured. Arithmetic stays that of 16 bits.
 */
export function readingFewerBits(kernels: Pricer, { layerBits, name }: QuantisedWeights): Pricer {
  const share = layerBits / TABLE_BITS;
  return {
    ...kernels,
    price: eachVariant((kernel) => (call) => {
      const price = kernels.price(call);
      if (kernel !== 'matmul') return price;
      const { floor, low, estimate } = price;
      return {
        ...price,
        low: Math.min(estimate, Math.max(share * low, floor?.compute ?? 0)),
        evidence: price.evidence === 'measured' || price.evidence === 'interpolated' ? 'extrapolated' : price.evidence,
        ...(floor ? { floor: { ...floor, memory: share * floor.memory } } : {}),
      };
    }),
    ...(kernels.explain
      ? {
          explain: (call) => {
            const why = kernels.explain!(call);
            if (call.kernel !== 'matmul') return why;
            const { estimate, high } = kernels.price(call);
            const what =
              `the time is that of 16-bit weights; kernels that read ${name} as it is stored were not measured, and ` +
              'the fast end is theirs at best';
            return {
              ...why,
              leftOut: [...why.leftOut, { what, halfWidth: Math.log(high / estimate), enters: 'instead' }],
            };
          },
        }
      : {}),
  };
}
