/** The order of a layer's operations on every path, and what each is shaped by: what a decoder relies on. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { segmentsOf, type Eviction } from '../../src/eviction/policy.js';
import { findPreset } from '../../src/geometry/presets.js';
import { blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import { workOf } from '../../kernels/registry.js';
import { storedBytes } from '../../kernels/spec.js';
import { schedule, type Configuration, type Op } from '../../src/schedule/schedule.js';
import { configuration, lla, PER_HEAD } from '../contract/geometries.js';
import { H2O, runsOf, STREAMING, total } from './listed.js';

const LATENT = lla(96, 160);

/** Operations of a core layer. */
function layer(changes: Partial<Configuration>, batch = 2, context = 4096): readonly Op[] {
  const stage = schedule(configuration(changes), batch, context).stages.find(
    (s) => s.kind === 'stack' && s.block.name === 'core',
  );
  return stage?.kind === 'stack' ? stage.layer : [];
}
const find = (ops: readonly Op[], label: string): Op => {
  const found = ops.find((o) => o.label === label);
  if (!found) throw new Error(`no ${label} among ${ops.map((o) => o.label).join(', ')}`);
  return found;
};
/** Calls of an operation in a whole step. */
function calls(changes: Partial<Configuration>, label: string): number {
  const c = configuration(changes);
  return total(runsOf(c, schedule(c, 1, 4096)), label);
}

describe('order of a layer', () => {
  const MLP = ['attention-out', 'attention-residual', 'mlp-norm', 'gate-up', 'swiglu', 'down', 'mlp-residual'];
  const ENCODE = ['qkv', 'encode-k', 'encode-v'];
  const BRANCH = ['qkv', 'branch-key', 'encode-k', 'encode-v'];
  const LATER = ['value-up', 'attend-current'];
  const APPEND = ['append-k', 'append-v'];
  const everyLoop = (...labels: string[]): string[] => [1, 2, 3, 4].flatMap(() => labels);
  it.each([
    ['full', {}, ['qkv', 'rope', 'attend', 'merge', ...APPEND]],
    ['kv-quant', { codec: { kind: 'kv-quant', bits: 3 } }, ['qkv', 'rope', 'attend', 'merge', ...APPEND]],
    ['final-loop', { codec: { kind: 'final-loop' } }, ['qkv', 'rope', 'attend', 'merge', ...APPEND]],
    ['cla', { codec: { kind: 'cla', shareLayers: 6 } }, ['q', 'kv', 'rope', 'rope-k', 'attend', 'merge', ...APPEND]],
    ['full, streaming', { eviction: STREAMING }, ['qkv', 'rope-sinks', 'rope', 'attend', 'merge', ...APPEND]],
    ['full, H2O', { eviction: H2O }, ['qkv', 'rope', 'attend', 'merge', 'mass', 'evict', ...APPEND]],
    [
      'fast',
      { codec: LATENT, path: 'fast' },
      [
        ...ENCODE,
        'rope',
        'attend',
        'merge',
        ...everyLoop('restore-k'),
        ...everyLoop('restore-v'),
        'rope-write',
        ...everyLoop(...APPEND),
      ],
    ],
    [
      'materialised',
      { codec: LATENT, path: 'reconstruct', materialised: true },
      [...ENCODE, 'rope', 'rebuild-k', 'rebuild-v', 'attend', 'merge', ...APPEND],
    ],
    [
      'reconstruct',
      { codec: LATENT, path: 'reconstruct' },
      [...ENCODE, 'rope', 'attend', 'merge', ...LATER, ...APPEND],
    ],
    [
      'reconstruct, H2O',
      { codec: LATENT, path: 'reconstruct', eviction: H2O },
      [...ENCODE, 'rope', 'attend', 'merge', ...LATER, 'mass', 'evict', ...APPEND],
    ],
    [
      'reconstruct, streaming',
      { codec: LATENT, path: 'reconstruct', eviction: STREAMING },
      [...ENCODE, 'rope', 'attend', 'merge', ...LATER, ...APPEND],
    ],
    [
      'absorbed',
      { codec: LATENT, path: 'absorbed' },
      [
        ...BRANCH,
        'rope-branch',
        'rope-branch-key',
        'query-absorb',
        'attend',
        'merge',
        ...LATER,
        ...APPEND,
        'append-branch',
      ],
    ],
    [
      'absorbed, streaming',
      { codec: LATENT, path: 'absorbed', eviction: STREAMING },
      [
        ...BRANCH,
        'rope-sinks',
        'rope-branch',
        'rope-branch-key',
        'query-absorb',
        'query-absorb-sinks',
        'attend',
        'merge',
        ...LATER,
        ...APPEND,
        'append-branch',
      ],
    ],
    [
      'block-absorbed',
      { codec: LATENT, path: 'block-absorbed' },
      [...ENCODE, 'rope', 'block-vectors', 'block-basis', 'attend', 'merge', ...LATER, ...APPEND],
    ],
    [
      'block-absorbed, streaming',
      { codec: LATENT, path: 'block-absorbed', eviction: STREAMING },
      [...ENCODE, 'rope', 'block-vectors', 'block-basis', 'attend', 'attend-pinned', 'merge', ...LATER, ...APPEND],
    ],
  ] as [string, Partial<Configuration>, string[]][])('%s', (_name, changes, labels) => {
    expect(layer(changes).map((o) => o.label)).toEqual(['attention-norm', ...labels, ...MLP]);
  });
});

describe('the current token', () => {
  it('is folded into the merge where rows have full width', () => {
    for (const changes of [
      {},
      { codec: LATENT, path: 'fast' as const },
      { codec: LATENT, path: 'reconstruct' as const, materialised: true },
    ]) {
      const ops = layer(changes);
      expect(find(ops, 'merge')).toMatchObject({
        variant: 'current',
        shape: { rows: 32, splits: find(ops, 'attend').shape['splits'], width: 128, keyWidth: 128 },
      });
    }
  });

  it('is folded in after the value up-projection where rows are latents, in the absorbed path with its branch', () => {
    for (const path of ['reconstruct', 'block-absorbed', 'absorbed'] as const) {
      const ops = layer({ codec: LATENT, path });
      expect(find(ops, 'merge')).toMatchObject({ variant: 'f32', shape: { width: 160, keyWidth: 0 } });
      expect(find(ops, 'attend-current')).toMatchObject({
        variant: path === 'absorbed' ? 'absorbed' : 'f32',
        shape: { rows: 32, keyWidth: path === 'absorbed' ? 192 : 128, valueWidth: 128 },
      });
    }
  });

  it('enters the cache when no attention of the step reads it any more', () => {
    expect(find(layer({}), 'append-k').when).toBe('always');
    expect(find(layer({ codec: LATENT, path: 'absorbed' }), 'append-branch').when).toBe('last-loop');
    expect(find(layer({ codec: { kind: 'final-loop' } }), 'append-v').when).toBe('last-loop');
    // Sharing layers read the same ring: its oldest token may go only after the last of them.
    expect(find(layer({ codec: { kind: 'cla', shareLayers: 6 } }), 'append-v').when).toBe('closing-layer');
  });
});

describe('products', () => {
  it('have a group a KV head for the heads of one sequence, a group a query head for several sequences', () => {
    const geometry = findPreset('nanbeige4.2-3b');
    const one = layer({ geometry, codec: LATENT, path: 'absorbed' }, 1);
    const ops = layer({ geometry, codec: LATENT, path: 'absorbed' }, 3);
    const group = geometry.heads / geometry.kvHeads;
    expect(group).toBe(6);
    expect(find(one, 'query-absorb').shape).toEqual({ groups: 8, m: group, k: 128, n: 96 });
    expect(find(ops, 'query-absorb').shape).toEqual({ groups: 48, m: 3, k: 128, n: 96 });
    expect(find(ops, 'value-up').shape).toEqual({ groups: 48, m: 3, k: 160, n: 128 });
  });

  it('are followed by their biases, one row for all tokens, and by norms of their heads', () => {
    const huginn = findPreset('huginn-3.5b');
    const labels = (geometry: Configuration['geometry']) =>
      layer({ geometry }, 3)
        .map((o) => o.label)
        .slice(1, 4);
    expect(find(layer({ geometry: huginn }, 3), 'qkv-bias')).toMatchObject({
      kernel: 'rmsnorm',
      variant: 'add',
      shape: { rows: 3, width: 2 * 55 * 96 },
    });
    expect(calls({ geometry: huginn }, 'qkv-bias')).toBe(132);
    expect(labels(huginn)).toEqual(['qkv', 'qkv-bias', 'rope']);
    const withNorms = { ...huginn, extraParametersPerLayer: 2 * 96 };
    expect(labels(withNorms)).toEqual(['qkv', 'q-norm', 'k-norm']);
    expect(find(layer({ geometry: withNorms }, 3), 'k-norm').shape).toEqual({ rows: 3, heads: 55, headDim: 96 });
    const all = { ...huginn, extraParametersPerLayer: 3 * 55 * 96 + 2 * huginn.hidden + 2 * huginn.mlpHidden };
    expect(
      layer({ geometry: all }, 3)
        .filter((o) => o.label.endsWith('-bias'))
        .map((o) => [o.label, o.shape.width]),
    ).toEqual([
      ['qkv-bias', 3 * 55 * 96],
      ['attention-out-bias', huginn.hidden],
      ['gate-up-bias', 2 * huginn.mlpHidden],
      ['down-bias', huginn.hidden],
    ]);
    expect(labels({ ...huginn, extraParametersPerLayer: 7 })).toEqual(['qkv', 'rope', 'attend']);
  });

  it('make the rotary key once for the loops that share a latent, from the first of them', () => {
    expect([
      calls({ codec: LATENT, path: 'absorbed' }, 'branch-key'),
      calls({ codec: LATENT, path: 'absorbed' }, 'rope-branch-key'),
    ]).toEqual([24, 24]);
    expect(find(layer({ codec: LATENT, path: 'absorbed' }), 'branch-key')).toMatchObject({
      when: 'first-loop',
      shape: { n: 64 },
    });
    expect(find(layer({ codec: LATENT, path: 'absorbed', branch: PER_HEAD }), 'branch-key').shape['n']).toBe(16 * 64);
    expect(calls({ codec: { kind: 'mla-head', rankK: 96, rankV: 160 }, path: 'absorbed' }, 'branch-key')).toBe(96);
  });

  it('project K and V only in the layers that own a cache', () => {
    const shared = { codec: { kind: 'cla', shareLayers: 6 } } as const;
    expect([calls(shared, 'q'), calls(shared, 'kv'), calls(shared, 'rope-k')]).toEqual([96, 16, 16]);
    expect(find(layer(shared), 'kv').shape).toEqual({ groups: 1, m: 2, k: 2048, n: 2 * 2048 });
    expect(calls({ codec: { kind: 'final-loop' } }, 'qkv')).toBe(96);
  });
});

describe('block-absorbed', () => {
  const attend = (context: number) => find(layer({ codec: LATENT, path: 'block-absorbed' }, 512, context), 'attend');
  it('works on whole blocks: 260 tokens cost the scores of 512, but read 260', () => {
    const [short, exact, long] = [260, 256, 512].map((n) => ({ op: attend(n), work: workOf(attend(n)) }));
    const key = (x: typeof short) => x?.work.matrixFlops ?? 0;
    expect(short?.op.shape['blockTokens']).toBe(256);
    expect(key(short)).toBe(key(long));
    expect(key(short)).toBeCloseTo(2 * key(exact), 0);
    const bytes = (x: typeof short, tokens: number) => (x?.work.readBytes ?? 0) - 512 * 16 * tokens * 2 * 256;
    expect(bytes(short, 260)).toBe(bytes(long, 512));
  });

  it('counts what the plan counts where blocks are full, set-up included', () => {
    const ops = layer({ codec: LATENT, path: 'block-absorbed' }, 512, 4096);
    const macs = (label: string): number => workOf(find(ops, label)).matrixFlops / 2 / (512 * 16 * 4096 * 96);
    expect(macs('attend') + macs('block-basis')).toBeCloseTo(blockPlan(1e6, 128).macsPerRank, 9);
  });

  it('writes a basis of every block: 37 vectors of 25 quads, once a layer and loop', () => {
    const ops = layer({ codec: LATENT, path: 'block-absorbed' }, 2, 1000);
    expect(workOf(find(ops, 'block-basis')).writeBytes).toBe(2 * 16 * 4 * 25 * 37 * 16);
    expect(calls({ codec: LATENT, path: 'block-absorbed' }, 'block-basis')).toBe(96);
  });

  it('writes its vectors once a layer and loop, odd ranks with one component of padding', () => {
    const ops = layer({ codec: lla(27, 45), path: 'block-absorbed' });
    expect(find(ops, 'block-vectors').shape).toEqual({ heads: 32, kvHeads: 16, rankK: 27, headDim: 128 });
    expect(workOf(find(ops, 'block-vectors')).writeBytes).toBe(32 * 128 * 28 * 4);
    expect(workOf(find(layer({ codec: LATENT, path: 'block-absorbed' }), 'block-vectors')).writeBytes).toBe(
      32 * 128 * 98 * 4,
    );
    expect(calls({ codec: LATENT, path: 'block-absorbed' }, 'block-vectors')).toBe(96);
  });

  it('attends to the pinned tokens beside the ring; the merge counts both', () => {
    for (const [eviction, pinned, ring] of [
      [STREAMING, 4, 256],
      [H2O, 128, 132],
    ] as const) {
      const ops = layer({ codec: LATENT, path: 'block-absorbed', eviction });
      const [over, beside] = [find(ops, 'attend'), find(ops, 'attend-pinned')];
      expect(over).toMatchObject({ kernel: 'attend_block_absorbed', shape: { context: ring } });
      expect(beside).toMatchObject({ kernel: 'attend_rebuild', shape: { context: pinned } });
      expect(find(ops, 'merge').shape['splits']).toBe(
        (over.shape['splits'] as number) + (beside.shape['splits'] as number),
      );
    }
    // A prompt shorter than the sinks has no ring yet.
    expect(
      layer({ codec: LATENT, path: 'block-absorbed', eviction: STREAMING }, 1, 3).map((o) => o.label),
    ).not.toContain('attend');
  });
});

describe('eviction', () => {
  it('segments hold what is kept, the pinned ones first', () => {
    const policy: fc.Arbitrary<Eviction | null> = fc
      .tuple(
        fc.constantFrom('streaming', 'h2o', 'budget', null),
        fc.integer({ min: 1, max: 500 }),
        fc.integer({ min: 1, max: 500 }),
      )
      .map(([kind, a, b]) =>
        kind === 'streaming'
          ? { policy: kind, sinkTokens: a, windowTokens: b, budgetTokens: a + b }
          : kind === 'h2o'
            ? { policy: kind, heavyTokens: a, recentTokens: b, budgetTokens: a + b }
            : kind && { policy: kind, budgetTokens: a },
      );
    fc.assert(
      fc.property(policy, fc.integer({ min: 1, max: 2000 }), (eviction, context) => {
        const { pinned, ring } = segmentsOf(eviction, context);
        expect(pinned + ring).toBe(eviction ? Math.min(context, eviction.budgetTokens) : context);
        expect(Math.min(pinned, ring)).toBeGreaterThanOrEqual(0);
        if (eviction?.policy === 'streaming') expect(ring).toBeLessThanOrEqual(eviction.windowTokens);
        if (eviction?.policy === 'h2o') expect(pinned).toBeLessThanOrEqual(eviction.heavyTokens);
        if (!eviction || eviction.policy === 'budget') expect(pinned).toBe(0);
      }),
    );
  });

  it('H2O gathers mass in every loop from the scores that attention writes', () => {
    const changes = { codec: LATENT, path: 'reconstruct', eviction: H2O } as const;
    const ops = layer(changes);
    expect(find(ops, 'attend')).toMatchObject({ variant: 'f16+scores', shape: { context: 260 } });
    expect(workOf(find(ops, 'attend')).writeBytes - workOf({ ...find(ops, 'attend'), variant: 'f16' }).writeBytes).toBe(
      2 * 16 * 260 * 4,
    );
    expect(find(ops, 'mass').shape).toEqual({ rows: 32, group: 1, context: 260 });
    expect([calls(changes, 'mass'), calls(changes, 'evict')]).toEqual([96, 24]);
    expect(find(ops, 'evict').shape).toEqual({ rows: 32, context: 128, width: 256, groupSize: 0 });
  });

  it.each([
    ['full: every loop and layer', {}, 96, { rows: 32, width: 256 }, { rows: 32, group: 1 }],
    [
      'final-loop: the last loop',
      { codec: { kind: 'final-loop' } },
      24,
      { rows: 32, width: 256 },
      { rows: 32, group: 1 },
    ],
    [
      'cla: once for the layers that share',
      { codec: { kind: 'cla', shareLayers: 6 } },
      16,
      { rows: 32, width: 256 },
      { rows: 32, group: 1 },
    ],
    [
      'lla-2d: heads pooled',
      { codec: { kind: 'lla-2d', rankK: 96, rankV: 160 }, path: 'reconstruct' },
      24,
      { rows: 2, width: 256 },
      { rows: 2, group: 16 },
    ],
    [
      'mla-head: heads pooled, each loop',
      { codec: { kind: 'mla-head', rankK: 96, rankV: 160 }, path: 'reconstruct' },
      96,
      { rows: 2, width: 256 },
      { rows: 2, group: 16 },
    ],
    [
      'absorbed: a shared rotary key goes for all heads',
      { codec: LATENT, path: 'absorbed' },
      24,
      { rows: 2, width: 16 * 256 + 64 },
      { rows: 2, group: 16 },
    ],
    [
      'absorbed: rotary keys of their own',
      { codec: LATENT, path: 'absorbed', branch: PER_HEAD },
      24,
      { rows: 32, width: 256 + 64 },
      { rows: 32, group: 1 },
    ],
    [
      'fast: the rows of all loops, in the last one',
      { codec: LATENT, path: 'fast' },
      96,
      { rows: 32, width: 256 },
      { rows: 32, group: 1 },
    ],
  ] as [string, Partial<Configuration>, number, object, object][])(
    'H2O evicts row sets: %s',
    (_name, changes, evictions, evict, mass) => {
      const ops = layer({ ...changes, eviction: H2O });
      expect(calls({ ...changes, eviction: H2O }, 'evict')).toBe(evictions);
      expect(find(ops, 'evict').shape).toMatchObject(evict);
      expect(find(ops, 'mass').shape).toMatchObject(mass);
    },
  );

  it('streaming turns the query a second time where keys are cached rotated', () => {
    expect(find(layer({ eviction: STREAMING }), 'rope-sinks').shape).toEqual({ rows: 2, heads: 16, headDim: 128 });
    expect(find(layer({ codec: LATENT, path: 'absorbed', eviction: STREAMING }), 'rope-sinks').shape).toEqual({
      rows: 2,
      heads: 16,
      headDim: 64,
    });
  });
});

describe('group size', () => {
  const read = (groupSize: number, changes: Partial<Configuration>) =>
    workOf(find(layer({ ...changes, choice: { storage: 'q4', groupSize } }), 'attend')).readBytes;
  it('reaches the reads that are priced', () => {
    // Two rows (K and V) of 128 scalars: four scales of two bytes less each time the groups double.
    for (const changes of [
      {},
      { codec: LATENT, path: 'reconstruct' as const },
      { codec: LATENT, path: 'block-absorbed' as const },
    ])
      expect(read(32, changes)).toBeGreaterThan(read(64, changes));
    expect(read(32, {}) - read(64, {})).toBe(
      2 * 16 * 4096 * 2 * (storedBytes('q4', 128, 32) - storedBytes('q4', 128, 64)),
    );
  });
  it('is no axis of storages without scales', () => {
    for (const groupSize of [32, 128])
      expect(find(layer({ choice: { storage: 'f16', groupSize } }), 'attend').shape['groupSize']).toBe(0);
  });
  it('rebuild reads latents in their own storage', () => {
    const op = find(
      layer({ codec: LATENT, path: 'reconstruct', materialised: true, choice: { storage: 'q8', groupSize: 64 } }),
      'rebuild-k',
    );
    expect(op.variant).toBe('q8+rope');
    expect(workOf(op).readBytes).toBe(2 * 16 * 4096 * (96 + 4) + 16 * 128 * (96 * 2 + 4));
  });
});
