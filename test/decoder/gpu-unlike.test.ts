/** The GPU decoder on models unlike Ouro, of random sizes, a third in a run: full caches, and a codec. */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { everyNth, FULL } from '../gpu/sample.js';
import { label, onFewThreads, singles } from './gpu-list.js';
import { expectRagged, expectWhole } from './gpu-prompts.js';
import { expectSteps } from './gpu-steps.js';
import { casesOf, UNLIKE } from './unlike-models.js';

describeGpu(`GPU decoder, models unlike Ouro (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const g of everyNth(UNLIKE, 3)) {
    const [full, ...others] = casesOf(g).filter(onFewThreads);
    const random = randomOf(mix(SEED + g.name.length));
    for (const of of [full!, ...(FULL ? others : [random.pick(others)])]) {
      test(`${label(of)}: steps`, () => expectSteps(device, singles(of)));
      test(`${label(of)}: prompts`, () =>
        g.laterLoopsWindow === undefined ? expectWhole(device, singles(of)) : expectRagged(device, singles(of)));
    }
  }
});
