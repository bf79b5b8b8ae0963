/**
 * Whatever the model, the device and the context: no plan is recommended, named an upside, an alternative or a fleet
 * while a published score of the checkpoint that it names lies below --keep; of a codec that is not trained, while any
 * published score of it does. The scores are read from the tables here, not from what the planner says of them.
 */
import { describe, expect, it } from 'vitest';
import { codecSpec } from '../../src/codecs/registry.js';
import { DEVICES } from '../../src/devices/catalogue.js';
import { PRESET_NAMES } from '../../src/geometry/presets.js';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { planFleet } from '../../src/plan/decide/fleet.js';
import type { Choice } from '../../src/plan/answer-types.js';
import type { Plan, PlanReport } from '../../src/plan/types.js';
import { byCheckpoint } from '../../src/quality/checkpoints.js';
import { pathClassOf, type QualityFigure } from '../../src/quality/figure.js';
import { FIGURES, publishedFor, qualityOf, teacherOf } from '../../src/quality/quality.js';
import type { Scenario } from '../../src/schema/settings.js';
import { SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { row } from './requests.js';

const KEEP = 0.9;
/** Accuracies of tasks; agreement and errors are none. */
const isAccuracy = (f: QualityFigure): boolean =>
  f.unit === 'fraction' && f.higherIsBetter && !['top-1', 'svd-top-1'].includes(f.metric);

/** The uncompressed model's value: of the same table, or the best of any. */
const baseOf = (f: QualityFigure): number =>
  teacherOf(f)?.value ??
  Math.max(
    // A passkey is found or not: where nobody asked the uncompressed model, all of them count.
    f.metric === 'passkey' ? 1 : -Infinity,
    ...FIGURES.filter(
      (t) => t.isTeacher && t.model === f.model && t.metric === f.metric && t.contextTokens === f.contextTokens,
    ).map((t) => t.value),
  );

type Named = Pick<Choice, 'planId' | 'checkpoint'>;

/** Published scores of a plan that count at a context, by the checkpoint that a choice names. */
function scoresOf(report: PlanReport, p: Plan, { checkpoint }: Named): QualityFigure[] {
  const figures = qualityOf({
    model: report.model.name,
    codec: p.codec.kind,
    ratio: p.codec.ratio,
    shared: p.codec.shared,
    windowTokens: p.codec.windowTokens,
    pathClass: pathClassOf(p.codec.kind, p.path),
    eviction: p.eviction,
  });
  const own = codecSpec(p.codec).untrained ? figures : (byCheckpoint(figures).get(checkpoint) ?? []);
  return own.filter(isAccuracy).filter((f) => {
    if (f.contextTokens === null) return true;
    const cells = own.filter((g) => g.metric === f.metric && g.source === f.source).map((g) => g.contextTokens ?? 0);
    return f.contextTokens === Math.min(...cells.filter((t) => t >= report.contextTokens));
  });
}

function expectKept(report: PlanReport, named: readonly (Named | null)[]): void {
  for (const choice of named) {
    if (!choice) continue;
    const p = row(report, choice.planId);
    if (codecSpec(p.codec).uncompressed) continue;
    const scores = scoresOf(report, p, choice);
    expect(scores.length, `${p.id}, ${choice.checkpoint}`).toBeGreaterThan(0);
    for (const f of scores)
      expect(f.value / baseOf(f), `${report.device.name}: ${p.id}: ${f.metric} of ${f.source}`).toBeGreaterThanOrEqual(
        KEEP,
      );
  }
}

const named = ({ answer }: PlanReport): (Choice | null)[] => [
  answer.deploy,
  answer.upside,
  answer.unsure,
  ...answer.alternatives,
];

const MODELS = PRESET_NAMES.filter((name) => publishedFor(name).length > 0);
const QUESTIONS = MODELS.flatMap((model) =>
  DEVICES.flatMap(({ id }) => ['4k', '32k'].map((context): Scenario => ({ model, device: id, context }))),
);

describe(`no answer names a plan whose published scores lie below --keep (seed ${SEED})`, () => {
  it('of any model with published scores, on any device', async () => {
    expect(MODELS).toEqual(expect.arrayContaining(['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b']));
    for (const s of everyNth(QUESTIONS, 3)) {
      const report = await ask(s, { everyRow: false });
      expectKept(report, named(report));
    }
  });

  it.each([
    { model: 'ouro-2.6b', device: 'a100-80', context: '4k' },
    { model: 'ouro-2.6b', device: 'l40s', context: '4k' },
    { model: 'ouro-2.6b', device: 'h200', context: '4k' },
  ] as Scenario[])('nor a fleet of it: %j', async (s) => {
    const { fleet, reports } = planFleet({ ...s, users: 50 }, 50, await readSources(s));
    expect(fleet.deploy).not.toBeNull();
    for (const r of [fleet.deploy, fleet.upside]) {
      const report = reports.find((x) => x.settings.gpus === r?.tensorParallel);
      if (r && report)
        expectKept(report, [{ ...r, checkpoint: row(report, r.planId).qualityKept?.checkpoint ?? null }]);
    }
  });

  it('kv-quant-3bit of Ouro-2.6B, 42 % of GSM8K, fails where it was an upside', async () => {
    for (const device of ['a100-80', 'l40s', 'rtx-4090']) {
      const report = await ask({ model: 'ouro-2.6b', device, context: '4k' }, { everyRow: false });
      expect(named(report).map((c) => c?.planId)).not.toContain('kv-quant-3bit/full');
      expect(row(report, 'kv-quant-3bit/full').qualityKept).toMatchObject({ metric: 'gsm8k', value: 0.351 });
    }
  });

  it('mla-head-10.67x of Ouro-2.6B, 82 % of OpenBookQA, fails where 93 % of GSM8K was all that counted', async () => {
    const report = await ask({ model: 'ouro-2.6b', device: 'h200', context: '4k' }, { everyRow: false });
    const p = row(report, 'mla-head-10.67x/block-absorbed');
    expect(p.qualityKept).toMatchObject({ metric: 'openbook-qa', checkpoint: 'Tables scale and scale_mc' });
    expect(named(report).map((c) => c?.planId.split('/')[0])).not.toContain('mla-head-10.67x');
  });

  it('an eviction that keeps every token of the context has the scores of none', async () => {
    const codec = ['full', 'lla', 'cla'];
    const kept = async (s: Scenario): Promise<(Plan['qualityKept'] | undefined)[]> =>
      (await ask({ device: 'h200', codec, ...s }, { everyRow: true })).plans
        .filter((p) => p.path !== 'absorbed')
        .map((p) => p.qualityKept);
    const plain = await kept({ context: 512 });
    expect(plain.filter((k) => k !== null).length).toBeGreaterThan(2);
    expect(await kept({ context: 512, eviction: ['streaming:4+1020'] })).toEqual(plain);
    expect(await kept({ context: 2048, eviction: ['streaming:4+1020'] })).not.toEqual(await kept({ context: 2048 }));
  });
});
