/** The operations of one-shot and by-layer prefill, and how many rows of full width are alive at once. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isLatent } from '../../src/codecs/registry.js';
import { planSlots } from '../../src/schedule/bind/kept-slots.js';
import {
  CAPTURING_KINDS as KINDS,
  PREFILL_CHUNK_TOKENS,
  prefillSchedule,
  type CapturingKind,
} from '../../src/schedule/prefill/prefill.js';
import type { Visit } from '../../src/schedule/configuration.js';
import { expand } from '../../src/schedule/expand.js';
import type { Configuration, Schedule } from '../../src/schedule/schedule.js';
import { asData, configuration, HUGINN, lla, smallGeometry } from '../contract/geometries.js';
import { expectKnown, rowsOf, runsOf, total } from './listed.js';

describe('prefill by captures', () => {
  const tokens = 5000; // two whole chunks and a rest
  const c = configuration({ codec: lla(96, 160), path: 'reconstruct' });

  it('encodes what accumulation encodes, once every loop, and writes each latent once', () => {
    const accumulated = runsOf(c, prefillSchedule(c, tokens));
    for (const kind of KINDS) {
      const captured = runsOf(c, prefillSchedule(c, tokens, PREFILL_CHUNK_TOKENS, kind));
      for (const label of [
        'encode-k',
        'encode-v',
        'append-k',
        'append-v',
        'reconstruct-k',
        'reconstruct-v',
        'qkv',
        'down',
        'lm-head',
      ])
        expect(total(captured, label, rowsOf), `${kind} ${label}`).toBe(total(accumulated, label, rowsOf));
      expect(total(captured, 'capture-k', rowsOf), kind).toBe(96 * tokens);
    }
  });

  it('one-shot reads each latent back once and keeps rows in 32 bits; by layer pass 2 accumulates', () => {
    const oneShot = runsOf(c, prefillSchedule(c, tokens, PREFILL_CHUNK_TOKENS, 'one-shot'));
    const rows = ['load-k', 'keep-k', 'keep-reconstructed-v'].map((label) => total(oneShot, label, rowsOf));
    expect(rows).toEqual([24 * tokens, 96 * tokens, 96 * tokens]);
    const attends = oneShot.filter(({ op }) => op.kernel === 'attend_prefill');
    expect([...new Set(attends.map(({ op }) => op.variant))]).toEqual(['f32']);
    const secondPass = (list: Schedule) =>
      asData(list.stages.slice(list.stages.findLastIndex((s) => s.kind === 'once' && s.ops[0]?.label === 'embedding')));
    expect(secondPass(prefillSchedule(c, tokens, PREFILL_CHUNK_TOKENS, 'by-layer'))).toEqual(
      secondPass(prefillSchedule(c, tokens)),
    );
  });

  it('(T − 1)·D + 1 rows are alive by layer, twice all of them at once', () => {
    const slots = (of: Configuration, kind: CapturingKind): number =>
      planSlots([...expand(of, prefillSchedule(of, tokens, PREFILL_CHUNK_TOKENS, kind))], kind === 'one-shot').count;
    expect(KINDS.map((kind) => slots(c, kind))).toEqual([2 * 24 * 4, 3 * 24 + 1]);
    const { layers, loops } = HUGINN;
    const huginn = configuration({ geometry: HUGINN, codec: lla(128, 256), path: 'reconstruct' });
    expect(KINDS.map((kind) => slots(huginn, kind))).toEqual([2 * layers * loops, (loops - 1) * layers + 1]);
    expect(
      slots(configuration({ codec: { kind: 'mla-head', rankK: 96, rankV: 160 }, path: 'reconstruct' }), 'by-layer'),
    ).toBe(1);
  });

  it('no buffer is given away before the last operation on its rows', () => {
    const visits = [...expand(c, prefillSchedule(c, tokens, PREFILL_CHUNK_TOKENS, 'by-layer'))];
    const { of } = planSlots(visits, false);
    const writers = new Map<number, string>();
    const whose = ({ op, place }: Visit): string => `${place?.layer}.${op.loop ?? place?.loop}`;
    for (const visit of visits) {
      const slot = of.get(visit);
      if (slot === undefined) continue;
      if (visit.op.label === 'keep-k') writers.set(slot, whose(visit));
      expect(writers.get(slot), visit.op.label).toBe(whose(visit));
    }
  });

  it('every operation has its dimensions, a known variant and finite work', () => {
    fc.assert(
      fc.property(
        smallGeometry,
        fc.constantFrom(...KINDS),
        fc.constantFrom('lla', 'lla-2d', 'mla-head'),
        fc.constantFrom('fast', 'reconstruct', 'absorbed'),
        fc.integer({ min: 1, max: 100 }),
        (geometry, kind, codec, path, length) => {
          const of = configuration({ geometry, codec: { kind: codec, rankK: 3, rankV: 5 }, path });
          expect(isLatent(of.codec)).toBe(true);
          runsOf(of, prefillSchedule(of, length, 32, kind)).forEach(expectKnown);
        },
      ),
      { numRuns: 40 },
    );
  });
});
