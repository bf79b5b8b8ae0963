/** Quality from a file of `lla-sim fidelity`: which row holds for which plan, targets, and what is refused. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Codec, PathChoice } from '../../src/codecs/codec.js';
import { fingerprintOfFolder } from '../../src/io/fingerprint.js';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { pathLabel } from '../../src/plan/words/words.js';
import { knownStacks } from '../../src/plan/ask/stacks.js';
import type { Plan } from '../../src/plan/types.js';
import { randomFrom } from '../../src/numbers/random.js';
import { sourcesFor } from '../../src/report/html/sources.js';
import { fidelityPictures } from '../../src/report/pictures/index.js';
import { klLines } from '../../src/report/pictures/kl-against-ratio.js';
import { planTable } from '../../src/report/text/plan-table.js';
import type { PageData } from '../../src/report/page-data.js';
import type { Scenario } from '../../src/schema/settings.js';
import { TINY_CONFIG } from '../../src/tiny/model.js';
import { removeTemporary, temporaryFolder } from '../decoder/files.js';

const SEED = 20_261_122;
const folder = temporaryFolder();
removeTemporary();

writeFileSync(join(folder, 'config.json'), JSON.stringify(TINY_CONFIG));
writeFileSync(join(folder, 'model.safetensors'), 'weights');

interface Interval {
  estimate: number;
  low: number;
  high: number;
}

interface Row {
  id: string;
  codec: Codec;
  path: PathChoice;
  storage: string;
  eviction: string | null;
  initialisation: string;
  kl: Interval;
  recall: Interval;
}

const CONTEXT = 250;
const TEXTS = 4;
const random = randomFrom(SEED);

const three = (from: number, width: number): Interval => {
  const low = from + width * random();
  const estimate = low + width * random();
  return { low, estimate, high: estimate + width * random() };
};

function row(codec: Codec, path: PathChoice, storage = 'f16', eviction: string | null = null): Row {
  const recall = three(0.55, 0.15);
  const items = (['text', 'recall', 'rollout'] as const).flatMap((kind) =>
    Array.from({ length: TEXTS }, () => ({
      kind,
      context: CONTEXT,
      scored: 6,
      kl: 0,
      top1: random(),
      loss: 1,
      agreed: Math.floor(24 * random()),
      exact: random() < recall.estimate ? 1 : 0,
    })),
  );
  return {
    id: [codec.kind, codec.rankK ?? codec.bits ?? '', path, storage, eviction ?? ''].join('/'),
    codec,
    path,
    storage,
    eviction,
    initialisation: 'svd',
    ...{ ratio: 4, codecFingerprint: null, kl: three(0, 0.1), top1: three(0.8, 0.05), recall },
    ...{ perplexity: null, agreedTokens: three(4, 5), agreement: null, passkey: null, sums: null },
    ...{ passkeyCells: [{ context: 64, depth: 0.5, count: 2, score: 0.5 }], attentionError: null, items },
  } as Row;
}

const lla = (rankK: number, rankV: number): Codec => ({ kind: 'lla', rankK, rankV });
const ROWS = [
  { ...row({ kind: 'full' }, 'full'), recall: { estimate: 1, low: 1, high: 1 } },
  row({ kind: 'full' }, 'full', 'q8'),
  ...(['reconstruct', 'block-absorbed', 'absorbed'] as const).map((path) => row(lla(12, 20), path)),
  row(lla(12, 20), 'reconstruct', 'q8'),
  row(lla(12, 20), 'reconstruct', 'f16', 'streaming:4+60'),
  // Ranks of no published ratio.
  row(lla(10, 17), 'reconstruct'),
  row({ kind: 'kv-quant', bits: 4 }, 'full'),
  row({ kind: 'final-loop' }, 'full'),
];

const file = join(folder, 'fidelity.json');
const written = {
  schema: 'lla-sim/fidelity',
  schemaVersion: 1,
  model: { name: 'mine', fingerprint: fingerprintOfFolder(folder), trained: true },
  device: 'an adapter',
  weights: 'f16',
  fittedTokens: 1,
  seed: 0,
  inputs: '',
  rows: ROWS,
};
writeFileSync(file, JSON.stringify(written));

const asked: Scenario = { model: folder, device: 'h200', context: 256, fidelity: file };
/** Rows that no table shows need no price. */
const FEW = { everyRow: false };
const STORAGE: Readonly<Record<string, string>> = { f16: 'f16', int8: 'q8', int4: 'q4', f32: 'f32' };

/** The row that holds for a plan, found by comparing every field. */
const expected = (p: Plan, cacheType: string): Row | undefined =>
  ROWS.find(
    ({ codec, path, storage, eviction }) =>
      codec.kind === p.codec.kind &&
      (['rankK', 'rankV', 'bits', 'shareLayers'] as const).every((name) => codec[name] === p.codec[name]) &&
      (codec.kind !== 'final-loop' || (codec.shared ?? 'two-pass') === p.codec.shared) &&
      path === pathLabel(p) &&
      (codec.bits !== undefined || storage === STORAGE[cacheType]) &&
      eviction === (p.eviction === null ? null : 'streaming:4+60'),
  );

const refusal = async (scenario: Scenario): Promise<string> =>
  ask(scenario).then(
    () => 'not refused',
    (error: unknown) => String(error),
  );

describe(`plans by what was measured (seed ${SEED})`, () => {
  it('take the row of their codec, path, storage and eviction, and no other', async () => {
    const found = new Set<string>();
    for (const cacheType of ['f16', 'bf16', 'int8', 'int4', 'f32'])
      for (const eviction of cacheType === 'f16' ? ['none', 'streaming:4+60', 'streaming:4+61'] : ['none']) {
        const { plans } = await ask({ ...asked, cacheType, eviction: [eviction] }, FEW);
        for (const p of plans) {
          const row = eviction === 'streaming:4+61' ? undefined : expected(p, cacheType);
          expect([p.id, p.measured?.id ?? null]).toEqual([p.id, row?.id ?? null]);
          expect(p.measured?.kl).toEqual(row?.kl);
          expect(p.quality).toEqual([]);
          const whole = p.id === 'full/full' || p.id === 'full@f32/full';
          expect([p.id, p.qualityKept === null]).toEqual([p.id, !whole && row === undefined]);
          if (row) found.add(row.id);
        }
      }
    expect([...found].sort()).toEqual(ROWS.map(({ id }) => id).sort());
  });

  it('meet targets by the bad end of each interval', async () => {
    const ends = ROWS.flatMap(({ kl }) => [kl.low, kl.estimate, kl.high]);
    const recalls = ROWS.flatMap(({ recall }) => [recall.low, recall.estimate, recall.high]);
    const { plans: all } = await ask(asked, FEW);
    for (let i = 0; i < 6; i++) {
      const maxKl = ends[Math.floor(random() * ends.length)] as number;
      const minRecall = recalls[Math.floor(random() * recalls.length)] as number;
      const { plans, removed } = await ask({ ...asked, maxKl, minRecall }, FEW);
      for (const p of all) {
        const row = expected(p, 'f16');
        const meets = row && (row.codec.kind === 'full' || row.kl.high <= maxKl) && row.recall.low >= minRecall;
        expect([p.id, plans.some(({ id }) => id === p.id)]).toEqual([p.id, meets === true]);
        if (!meets)
          expect(removed.find(({ id }) => id === p.id)?.reason).toMatch(row ? /measured here is/ : /^unknown/);
      }
    }
  });

  it('judge scores by the low end, and say what was measured', async () => {
    const report = await ask({ ...asked, keep: 0, codec: ['lla'], path: ['reconstruct'], ratio: [4] });
    const [p] = report.plans;
    expect(p?.qualityKept?.scores.map(({ metric }) => metric).sort()).toEqual(['recall', 'top-1']);
    const top1 = p?.qualityKept?.scores.find(({ metric }) => metric === 'top-1');
    expect(top1?.share).toBe(p?.measured?.top1?.low);
    const text = planTable(report, { all: false, colour: false }).replace(/\s+/g, ' ');
    const { estimate, low, high } = p!.measured!.kl!;
    const shown = /measured here: KL ([\d.]+) \(([\d.]+)–([\d.]+)\), top-1 .* recall /.exec(text);
    for (const [i, value] of [estimate, low, high].entries()) expect(Number(shown?.[i + 1]) / value).toBeCloseTo(1, 0);
    // A checkpoint that was not measured as far is unknown, whatever it does before.
    const far = await ask({ ...asked, context: 257, keep: 0, codec: ['lla'], path: ['reconstruct'], ratio: [4] });
    expect(far.plans[0]?.measured?.kl).toEqual(p?.measured?.kl);
    expect(far.plans[0]?.qualityKept).toBeNull();
    expect(far.answer.upside).toBeNull();
  });

  it('are refused for a preset, for other weights, and without a file', async () => {
    expect(await refusal({ device: 'h200', fidelity: file })).toMatch(/measured on mine .* is a preset/);
    const other = join(folder, 'other.json');
    writeFileSync(other, JSON.stringify({ ...written, model: { ...written.model, fingerprint: 'a'.repeat(64) } }));
    expect(await refusal({ ...asked, fidelity: other })).toMatch(/has other weights/);
    const { fidelity: _file, ...without } = asked;
    expect(await refusal({ ...without, maxKl: 1 })).toMatch(/^UserError: --max-kl is about what lla-sim fidelity/);
    expect(await refusal({ ...asked, minRecall: 2 })).toMatch(/--min-recall/);
    const crossed = ROWS.map((r, i) => (i === 2 ? { ...r, kl: { estimate: 1, low: 2, high: 0 } } : r));
    writeFileSync(other, JSON.stringify({ ...written, rows: crossed }));
    expect(await refusal({ ...asked, fidelity: other })).toMatch(/rows\.2\.kl must have its low end/);
  });

  it('are drawn: every row of f16 without eviction is in the picture of KL', async () => {
    const { fidelity } = await readSources(asked);
    const lines = klLines(fidelity!);
    // Two paths are one line where they cost the same; these are random.
    expect(lines.map(({ label }) => label).sort()).toEqual(
      ['final-loop', 'kv-quant', 'lla (absorbed)', 'lla (block-absorbed)', 'lla (reconstruct)'].sort(),
    );
    const drawn = lines.flatMap(({ points }) => points.map(({ y, low, high }) => ({ low, estimate: y, high })));
    const plain = ROWS.filter((r) => r.codec.kind !== 'full' && r.storage === 'f16' && r.eviction === null);
    const sorted = (list: readonly Interval[]): number[] => list.map(({ estimate }) => estimate).sort();
    expect(sorted(drawn)).toEqual(sorted(plain.map(({ kl }) => kl)));
    expect(fidelityPictures(fidelity!).map(({ id }) => id)).toEqual([
      'kl-against-ratio',
      'retrieval-by-context',
      'rollout-agreement',
    ]);
  });

  it('end where a page is asked about another model', async () => {
    const sources = await readSources(asked);
    expect(sources.fidelity?.rows.length).toBe(ROWS.length);
    const data: PageData = { scenario: asked, sources, validation: null, known: await knownStacks() };
    const changed = sourcesFor(data, { ...asked, model: 'ouro-1.4b' }, new Set(['model', 'context']));
    expect(changed.fidelity).toBeUndefined();
    expect(sourcesFor(data, asked, new Set(['context'])).fidelity).toBe(sources.fidelity);
  });
});
