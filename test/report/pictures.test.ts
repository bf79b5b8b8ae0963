/** Pictures: their numbers are the planner's, their looks say the evidence, and their PNGs show something. */
import { loadImage, createCanvas } from '@napi-rs/canvas';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ask } from '../../src/plan/ask/on-disk.js';
import { row } from '../plan/requests.js';
import { budgetLines } from '../../src/report/pictures/eviction-budget.js';
import { picturesOf } from '../../src/report/pictures/index.js';
import { memoryParts } from '../../src/report/pictures/memory-breakdown.js';
import type { Picture } from '../../src/report/pictures/picture.js';
import { HEIGHT, png, WIDTH } from '../../src/report/pictures/png.js';
import { decades, powersOfTwo } from '../../src/report/pictures/scales.js';
import { qualityTasks } from '../../src/report/pictures/quality-by-task.js';
import { evidenceStyle, LIGHT } from '../../src/report/pictures/theme.js';
import { allCrossings, crossingsOf, timeLines } from '../../src/report/pictures/time-against-context.js';
import { speedLines } from '../../src/report/pictures/users-against-speed.js';
import { commonBatch, decisionRows, drawnPlans, lossTable } from '../../src/report/decision.js';
import type { Scenario } from '../../src/schema/settings.js';
import { SCENARIOS, scenarioOf, viewOfScenario } from './reports.js';

const H200 = { device: 'h200', context: 4096 } as const;

describe('numbers', () => {
  it('speeds are those of plans at that batch; lines pass the operating point and end at the largest', async () => {
    const { view } = await viewOfScenario(H200);
    const lines = speedLines(view);
    expect(lines.length).toBeGreaterThan(1);
    expect(lines.length).toBeLessThanOrEqual(3);
    const at8 = await ask({ ...H200, batch: 8 });
    for (const line of lines) {
      const p = row(view.report, line.id);
      expect(line.points.at(-1)?.x).toBe(p.maxBatch.exact);
      expect(line.at).toEqual({ x: p.knee?.batch, y: 1 / (p.knee?.secondsPerStep?.estimate ?? NaN) });
      expect(line.points.find((q) => q.x === line.at.x)?.y).toBe(line.at.y);
      const eight = row(at8, line.id).decode.secondsPerStep;
      const near = line.points.find((q) => q.x === 8);
      if (near)
        expect([near.low, near.y, near.high]).toEqual(
          [eight?.high, eight?.estimate, eight?.low].map((t) => 1 / (t ?? NaN)),
        );
      for (const q of line.points) expect(q.low <= q.y && q.y <= q.high).toBe(true);
    }
  });

  it('times are those of plans at that context and the decided batch; lines end where memory does', async () => {
    const { view } = await viewOfScenario(H200);
    const data = timeLines(view);
    expect(data?.batch).toBe(view.report.answer.deploy?.batch);
    expect(data?.lines.map((l) => l.id)).toEqual(drawnPlans(view.report).map((p) => p.id));
    for (const context of [4096, 8192, 65_536]) {
      const report = await ask({ ...H200, context, batch: data?.batch ?? 0 });
      for (const line of data?.lines ?? []) {
        const p = report.plans.find((q) => q.id === line.id);
        const at = line.points.find((q) => q.x === context);
        // A plan that does not fit the batch asked for is removed.
        const fits = p !== undefined && p.maxBatch.exact >= (data?.batch ?? 0);
        expect(at === undefined, `${line.label} at ${context}`).toBe(!fits);
        if (fits) expect(at?.y).toBe((p.decode.secondsPerStep?.estimate ?? 0) * 1e3);
      }
    }
  });

  it('at most three plans are drawn, the deployed and the upside first', async () => {
    for (const name of SCENARIOS) {
      const { report } = (await viewOfScenario(scenarioOf(name))).view;
      const drawn = drawnPlans(report).map((p) => p.id);
      expect(drawn.length, name).toBeLessThanOrEqual(3);
      const named = [report.answer.deploy, report.answer.upside].flatMap((c) => (c ? [c.planId] : []));
      expect(drawn.slice(0, named.length).sort(), name).toEqual(named.sort());
      expect(commonBatch(report), name).toBeGreaterThan(0);
    }
  });

  it('memory parts add up to the total and the device', async () => {
    for (const name of SCENARIOS) {
      const { view } = await viewOfScenario(scenarioOf(name));
      for (const { plan } of view.all) {
        const parts = memoryParts(plan, view.report.device.vramBytes);
        const used = Object.entries(parts).reduce((sum, [part, bytes]) => sum + (part === 'free' ? 0 : bytes), 0);
        if (plan.decode.batch > 0) {
          expect(used, plan.id).toBe(plan.memory.totalBytes);
          expect(used + parts.free, plan.id).toBe(view.report.device.vramBytes);
        }
        for (const bytes of Object.values(parts)) expect(bytes).toBeGreaterThanOrEqual(0);
      }
    }
  });

  it('eviction budgets are those of plans with that budget', async () => {
    const { view } = await viewOfScenario({ ...H200, codec: ['full', 'lla'], ratio: [4] });
    const report = await ask({ ...H200, codec: ['full', 'lla'], ratio: [4], budget: 1024 });
    for (const line of budgetLines(view)) {
      const at = line.points.find((p) => p.budget === 1024);
      const found = report.plans.filter((p) => p.codec.label === line.label);
      expect(found.map((p) => [p.memory.kvBytesPerSequence, p.maxBatch.exact])).toContainEqual([at?.bytes, at?.batch]);
    }
  });

  it('losses are the published scores of the plans that the answer names, worst first', async () => {
    const { view } = await viewOfScenario(H200);
    const { report } = view;
    const table = qualityTasks(view);
    expect(table?.rows.length).toBeGreaterThan(1);
    expect(lossTable(report, 1)?.more).toBe((table?.rows.length ?? 0) - 1);
    const worst = table?.rows.map((r) => Math.min(...r.scores.map((x) => x?.share ?? Infinity))) ?? [];
    expect(worst).toEqual([...worst].sort((x, y) => x - y));
    for (const [i, name] of (table?.plans ?? []).entries()) {
      const plan = decisionRows(report).find((r) => r.choice.name === name)?.plan;
      for (const r of table?.rows ?? []) {
        const score = r.scores[i];
        if (score) expect(plan?.quality.some((q) => q.metric === score.metric && q.value === score.value)).toBe(true);
      }
    }
    expect(lossTable((await viewOfScenario({ ...H200, codec: ['full'] })).view.report)).toBeNull();
  });

  it('memory of a plan at another batch is that of a plan asked at that batch', async () => {
    const { view } = await viewOfScenario({ ...H200, codec: ['full', 'lla'], ratio: [4] });
    const seven = await ask({ ...H200, codec: ['full', 'lla'], ratio: [4], batch: 7 });
    for (const p of view.report.plans) {
      const { free, ...parts } = memoryParts(p, view.report.device.vramBytes, 7);
      const used = Object.values(parts).reduce((x, y) => x + y, 0);
      expect(used, p.id).toBe(row(seven, p.id).memory.totalBytes);
      expect(free + used, p.id).toBe(view.report.device.vramBytes);
    }
  });
});

describe('crossings', () => {
  it('are found where straight lines in log-log cross, and named by who is lower afterwards', () => {
    const xs = [1, 2, 4, 8, 16, 32, 64];
    fc.assert(
      fc.property(
        fc.double({ min: 1.1, max: 60, noNaN: true }),
        fc.double({ min: 0.2, max: 2, noNaN: true }),
        fc.double({ min: 0.1, max: 1, noNaN: true }),
        (at, slope, gap) => {
          const flat = { label: 'flat', points: xs.map((x) => ({ x, y: (x / at) ** slope })) };
          const steep = { label: 'steep', points: xs.map((x) => ({ x, y: (x / at) ** (slope + gap) })) };
          const [found, ...more] = crossingsOf(flat, steep);
          if (xs.includes(at)) return;
          expect(more).toEqual([]);
          expect(found?.x).toBeCloseTo(at, 6);
          expect([found?.lower, found?.upper]).toEqual(['flat', 'steep']);
        },
      ),
    );
  });
  it('are none for lines that touch, coincide or share no point', () => {
    const line = (label: string, ys: number[], from = 0) => ({
      label,
      points: ys.map((y, i) => ({ x: 2 ** (i + from), y })),
    });
    expect(allCrossings([line('a', [1, 2, 4]), line('b', [1, 2, 4])])).toEqual([]);
    expect(allCrossings([line('a', [1, 2, 1]), line('b', [2, 2, 2])])).toEqual([]);
    expect(allCrossings([line('a', [1, 2]), line('b', [2, 1], 8)])).toEqual([]);
    expect(allCrossings([line('a', [1, 4]), line('b', [2, 2])]).map((c) => Number(c.x.toFixed(3)))).toEqual([1.414]);
  });
});

describe('axes', () => {
  it('have from two to nine ticks inside their range, whatever it is', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 1e-3, max: 1e12, noNaN: true }),
        fc.double({ min: 30, max: 1e9, noNaN: true }),
        (min, times) => {
          for (const ticks of [powersOfTwo(min, min * times), decades(min, min * times)]) {
            expect(ticks.length).toBeGreaterThanOrEqual(1);
            expect(ticks.length).toBeLessThanOrEqual(10);
            for (const t of ticks) expect(t >= min * 0.998 && t <= min * times * 1.002).toBe(true);
          }
        },
      ),
    );
  });
});

describe('evidence', () => {
  it('roofline is dashed, thin and hollow; measured is solid, thick and filled', () => {
    const [roofline, measured] = (['roofline', 'measured'] as const).map((of) =>
      evidenceStyle(of, '#0072B2', '#ffffff'),
    );
    expect(roofline!.borderDash.length).toBeGreaterThan(0);
    expect(measured!.borderDash).toEqual([]);
    expect(roofline!.pointBackgroundColor).toBe('#ffffff');
    expect(measured!.pointBackgroundColor).toBe('#0072B2');
    expect(roofline!.borderWidth).toBeLessThan(measured!.borderWidth);
  });
  it('kernels that nobody has measured give attainable pictures, and say so in words', async () => {
    const { view } = await viewOfScenario({ ...H200, stack: 'attainable' });
    const byId = new Map(picturesOf(view).map((p) => [p.id, p]));
    for (const id of ['time-against-context', 'users-against-speed']) expect(byId.get(id)?.evidence).toBe('attainable');
    expect(byId.get('memory-breakdown')?.evidence).toBe('exact');
    expect(byId.get('quality-by-task')?.evidence).toBe('published');
    expect(byId.get('time-against-context')?.source).toMatch(/attainable on NVIDIA H200/);
  });
});

/** Pixels of a PNG as [r, g, b]. */
async function pixels(
  picture: Picture,
): Promise<{ at: (x: number, y: number) => [number, number, number]; data: Uint8ClampedArray }> {
  const image = await loadImage(png(picture));
  expect([image.width, image.height]).toEqual([WIDTH, HEIGHT]);
  const canvas = createCanvas(WIDTH, HEIGHT);
  canvas.getContext('2d').drawImage(image, 0, 0);
  const { data } = canvas.getContext('2d').getImageData(0, 0, WIDTH, HEIGHT);
  return {
    at: (x, y) => [
      data[4 * (y * WIDTH + x)] ?? 0,
      data[4 * (y * WIDTH + x) + 1] ?? 0,
      data[4 * (y * WIDTH + x) + 2] ?? 0,
    ],
    data,
  };
}

/** Share of the pixels of a rectangle that satisfy a test. */
function share(
  p: Awaited<ReturnType<typeof pixels>>,
  [x0, y0, x1, y1]: readonly [number, number, number, number],
  test: (rgb: [number, number, number]) => boolean,
): number {
  let hits = 0;
  for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) if (test(p.at(x, y))) hits++;
  return hits / ((x1 - x0) * (y1 - y0));
}

/** Shares of the pixels of a rectangle that are near each colour. */
function sharesOf(
  p: Awaited<ReturnType<typeof pixels>>,
  [x0, y0, x1, y1]: readonly [number, number, number, number],
  colours: readonly string[],
): number[] {
  const counts = new Map<number, number>();
  for (let y = y0; y < y1; y++)
    for (let x = x0; x < x1; x++) {
      const i = 4 * (y * WIDTH + x);
      const key = ((p.data[i] ?? 0) << 16) + ((p.data[i + 1] ?? 0) << 8) + (p.data[i + 2] ?? 0);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  return colours.map(
    (colour) =>
      [...counts].reduce((sum, [key, n]) => sum + (near(colour)([key >> 16, (key >> 8) & 255, key & 255]) ? n : 0), 0) /
      ((x1 - x0) * (y1 - y0)),
  );
}

const dark = ([r, g, b]: [number, number, number]): boolean => r + g + b < 200;
const near =
  (hex: string) =>
  ([r, g, b]: [number, number, number]): boolean =>
    Math.abs(r - parseInt(hex.slice(1, 3), 16)) +
      Math.abs(g - parseInt(hex.slice(3, 5), 16)) +
      Math.abs(b - parseInt(hex.slice(5, 7), 16)) <
    24;

describe('PNG', () => {
  it('has a title, axis words, a source, and its series in their colours', async () => {
    const { view } = await viewOfScenario(H200);
    for (const picture of picturesOf(view)) {
      const p = await pixels(picture);
      expect(p.at(2, 2), picture.id).toEqual([255, 255, 255]);
      expect(share(p, [18, 12, 300, 40], dark), `${picture.id}: title`).toBeGreaterThan(0.02);
      expect(
        share(p, [18, HEIGHT - 36, 400, HEIGHT - 6], (c) => c[0] < 160),
        `${picture.id}: source`,
      ).toBeGreaterThan(0.02);
      expect(
        share(p, [18, 76, 300, 98], (c) => c[0] < 160),
        `${picture.id}: legend`,
      ).toBeGreaterThan(0.01);
      const { data } = picture.chart(LIGHT);
      // A part of a bar that is thinner than a few pixels shows no colour.
      const wide = data.datasets.filter(
        (d) => picture.id !== 'memory-breakdown' || Math.max(...(d.data as number[])) > 2,
      );
      const colours = wide
        .map((d) =>
          d.label === ''
            ? undefined
            : (d as { borderColor?: unknown }).borderColor === LIGHT.paper
              ? d.backgroundColor
              : (d as { borderColor?: unknown }).borderColor,
        )
        .filter((c): c is string => typeof c === 'string' && /^#[0-9a-f]{6}$/i.test(c));
      // One compressed plan may be all that a decision compares.
      expect(colours.length, picture.id).toBeGreaterThan(picture.id === 'quality-by-task' ? 0 : 1);
      const shares = sharesOf(p, [80, 100, WIDTH - 20, HEIGHT - 60], colours);
      // Lines may lie on each other, so a colour may be rare, but each is there, and most are plain to see.
      for (const [i, s] of shares.entries()) expect(s, `${picture.id}: ${colours[i]}`).toBeGreaterThan(0);
      expect(shares.filter((s) => s > 0.0001).length, picture.id).toBeGreaterThanOrEqual(colours.length / 2);
      // The plot is no flood of one colour.
      expect(share(p, [120, 110, WIDTH - 120, HEIGHT - 110], near('#ffffff')), picture.id).toBeGreaterThan(0.05);
    }
  });

  it('has hollow marks and dashes where times are attainable, neither where kernels were measured', async () => {
    interface Drawn {
      readonly pointBackgroundColor: readonly string[];
      readonly segment: { readonly borderDash: (of: { p1DataIndex: number }) => number[] };
    }
    const linesOf = async (more: Scenario): Promise<Drawn[]> => {
      const { view } = await viewOfScenario({ ...H200, ...more });
      const picture = picturesOf(view).find((p) => p.id === 'time-against-context') as Picture;
      return picture.chart(LIGHT).data.datasets.filter((d) => d.label !== '') as unknown as Drawn[];
    };
    const looks = ({ pointBackgroundColor: fills, segment }: Drawn): string[] =>
      fills.map((fill, i) => {
        const dashed = segment.borderDash({ p1DataIndex: i }).length > 0;
        return `${fill === LIGHT.paper ? 'hollow' : 'filled'} ${dashed ? 'dashed' : 'solid'}`;
      });
    const attainable = await linesOf({ stack: 'attainable' });
    expect(attainable.length).toBeGreaterThan(1);
    expect(new Set(attainable.flatMap(looks))).toEqual(new Set(['hollow dashed']));
    // Of one line some points may be known better than others.
    const [full] = (await linesOf({ codec: ['full'] })).map(looks);
    expect(new Set(full)).toEqual(new Set(['hollow dashed', 'filled solid']));
  });

  it('shows other numbers as other pixels', async () => {
    const drawn = async (more: Scenario): Promise<Buffer> =>
      png(picturesOf((await viewOfScenario({ ...H200, codec: ['full', 'lla'], ...more })).view)[0]!);
    expect(Buffer.compare(await drawn({}), await drawn({ vram: '80GB' }))).not.toBe(0);
  });
});
