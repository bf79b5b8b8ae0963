/** Devices for tests of the comparison: the datasheet, and one whose times are all so many times longer. */
import { findDevice } from '../../src/devices/find.js';
import { datasheetDevice, type PaperDevice } from '../../src/paper/model.js';
import { PAPER_DEVICE } from '../../src/paper/pricing.js';

export const H200: PaperDevice = datasheetDevice(findDevice(PAPER_DEVICE));

export function slower(factor: number): PaperDevice {
  const { pricer } = H200;
  return {
    ...H200,
    pricer: {
      ...pricer,
      price: (call) => {
        const p = pricer.price(call);
        return { ...p, estimate: p.estimate * factor, low: p.low * factor, high: p.high * factor };
      },
    },
  };
}
