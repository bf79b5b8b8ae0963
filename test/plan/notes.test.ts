/** Settings that were given and change no row are named; those that change one are not. */
import { expect, it } from 'vitest';
import type { Scenario } from '../../src/schema/settings.js';
import { planOf } from './requests.js';

it.each([
  ['--group-size', { groupSize: 32 }, { codec: ['full'] }, { codec: ['kv-quant'] }],
  ['--group-size', { groupSize: 32 }, { codec: ['lla'] }, { codec: ['lla'], cacheType: 'int8' }],
  ['--rope-dim', { ropeDim: 32 }, { codec: ['full'] }, { codec: ['lla'], path: ['absorbed'] }],
  ['--rope-branch', { ropeBranch: 'per-head' }, { path: ['reconstruct'] }, { codec: ['lla'], path: ['absorbed'] }],
  ['--confidence', { confidence: 0.8 }, {}, { tpot: '80ms' }],
] as [string, Scenario, Scenario, Scenario][])('%s %j: idle for %j, not for %j', async (flag, set, idle, used) => {
  const named = async (s: Scenario): Promise<boolean> =>
    (await planOf({ ...set, ...s })).warnings.some(
      ({ code, message }) => code === 'input' && message.startsWith(`${flag} changes nothing: `),
    );
  expect([await named(idle), await named(used)]).toEqual([true, false]);
});
