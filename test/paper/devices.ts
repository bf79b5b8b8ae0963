/** Devices for tests of the comparison: the datasheet, and one whose times are all so many times longer. */
import { datasheetDevice, type PaperDevice } from '../../src/paper/model.js';
import { findDevice } from '../../src/devices/find.js';

export const H200: PaperDevice = datasheetDevice(findDevice('h200'));

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
