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

it('products of one row that are slower in 8 bits than in 16 are told of, where tables have them so', async () => {
  const told = async (device: string): Promise<boolean> =>
    (await planOf({ device, weightType: 'fp8', codec: ['full'] })).notes.some((note) =>
      /products in 8-bit floats take [23]\.\d times as long as in 16 bits/.test(note),
    );
  expect([await told('b200'), await told('h200')]).toEqual([true, false]);
});

it('GPUs that have a link to each other exchange over those that take part alone', async () => {
  const note = async (gpus: number) =>
    (await planOf({ device: 'mi300x', gpus, codec: ['full'] })).notes.find((words) => words.includes('of their own'));
  expect(await note(2)).toContain('exchanges between 2 are priced at 64 of 448 GB/s');
  expect(await note(4)).toContain('at 192 of 448 GB/s');
  expect([await note(1), await note(8)]).toEqual([undefined, undefined]);
});
