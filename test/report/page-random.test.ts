/// <reference lib="dom" />
/** The page's planner against the command line's, for random settings of every control, in Chromium. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEVICES, memoryOf } from '../../src/devices/catalogue.js';
import type { PlanReport } from '../../src/plan/types.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import type { PlannedFleet } from '../../src/plan/decide/fleet.js';
import { randomFrom } from '../../src/numbers/random.js';
import { fleetJson } from '../../src/report/plan-json.js';
import { viewOf, type View } from '../../src/report/view.js';
import { UserError } from '../../src/errors.js';
import type { Scenario } from '../../src/schema/settings.js';
import { pageProgram, scratch } from '../cli/program.js';
import { SEED } from '../gpu/random.js';
import { noBrowser, open, startBrowser } from './browser.js';
import { filesOf, textOf } from './reports.js';

/** Others by each seed. */
const SETTINGS = Number(process.env['LLA_SIM_CASES'] ?? 2);

const CHOICES: Readonly<Record<string, readonly string[]>> = {
  model: ['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b', 'nanbeige4.2-3b'],
  device: DEVICES.map((d) => d.id),
  gpus: ['', '', '2', '4'],
  users: ['', '', '7', '300'],
  stack: ['', '', '', 'vllm', 'sglang', 'trtllm', 'attainable'],
  usdPerHour: ['', '3.5', '10'],
  batch: ['', '', '', '1', '30', '400'],
  context: ['2k', '4096', '32k', '200k'],
  tpot: ['', '', '40ms', '200ms'],
  ttft: ['', '', '2s'],
  min: ['', '', 'gsm8k=0.7'],
  retrieval: ['', '', '32k'],
  keep: ['', '', '0.7'],
};

/** Another V8 may round exp and log otherwise: nine digits are compared. */
const rounded = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, v: unknown) => (typeof v === 'number' ? Number(v.toPrecision(9)) : v)));

/** What page and program must agree on. */
const essence = (r: PlanReport): unknown =>
  rounded({
    device: r.device.name,
    vram: r.device.vramBytes,
    stack: r.device.stack,
    answer: r.answer,
    warnings: r.warnings,
    removed: r.removed,
    plans: r.plans.map((p) => [p.id, p.maxBatch, p.memory.totalBytes, p.knee?.batch, p.knee?.secondsPerStep]),
  });

/** What the page saves: a report, or where users are asked for a fleet. */
type Saved = PlanReport | { readonly schema: 'lla-sim/fleet' };

describe.skipIf(noBrowser !== null)(`the page against the command line (${noBrowser ?? 'in Chromium'})`, () => {
  const folder = scratch();
  let browser: Browser;
  let script: string;
  beforeAll(async () => {
    [browser, script] = await Promise.all([startBrowser(), pageProgram()]);
  });
  afterAll(async () => {
    await browser?.close();
    folder.remove();
  });

  /** Sets controls at once and reads the plans that the page then saves. */
  const askPage = (page: Page, values: Readonly<Record<string, string>>): Promise<Saved | string> =>
    page.evaluate(async (given) => {
      const form = document.getElementById('controls') as HTMLFormElement;
      for (const [name, value] of Object.entries(given))
        (form.elements.namedItem(name) as HTMLInputElement).value = value;
      form.requestSubmit();
      const status = document.getElementById('status')?.textContent ?? '';
      if (status.startsWith('Not changed')) return status;
      let blob: Blob | null = null;
      const create = URL.createObjectURL.bind(URL);
      URL.createObjectURL = (b: Blob) => {
        blob = b;
        return create(b);
      };
      document.getElementById('save')?.click();
      URL.createObjectURL = create;
      return JSON.parse(await (blob as unknown as Blob).text()) as Saved;
    }, values);

  it(`agrees for ${SETTINGS} random settings (seed ${SEED})`, async () => {
    const random = randomFrom(SEED);
    const first: Scenario = { device: 'h200', context: 4096 };
    const file = join(folder.path, 'page.html');
    writeFileSync(file, textOf(await filesOf(first, { script }), 'report.html'));
    const o = await open(browser, file);
    let compared = 0;
    let fleets = 0;
    for (let i = 0; i < SETTINGS; i++) {
      const values = Object.fromEntries(
        Object.entries(CHOICES).map(([name, list]) => [name, list[Math.floor(random() * list.length)] as string]),
      );
      // One of them asks for a fleet in any case.
      if (i === 1) Object.assign(values, { users: '7', batch: '', gpus: '', stack: '' });
      const given = Object.entries(values).filter(([, v]) => v !== '');
      const scenario = Object.fromEntries(
        given.map(([name, v]) => [name, name === 'min' ? { gsm8k: Number(v.split('=')[1]) } : v]),
      ) as Scenario;
      const about = `seed ${SEED}, ${i}: ${JSON.stringify(values)}`;
      const page = await askPage(o.page, values);
      let wanted: View | null = null;
      try {
        wanted = viewOf(scenario, await readSources(scenario));
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
        expect(page, about).toContain('Not changed');
        compared++;
        continue;
      }
      if (typeof page === 'string') throw new Error(`${about}: ${page}`);
      const command = (await o.page.locator('#command').textContent()) ?? '';
      // The model that the report began with goes without saying.
      for (const [name, v] of given) if (name !== 'min' && v !== 'ouro-1.4b') expect(command, about).toContain(` ${v}`);
      compared++;
      if (page.schema === 'lla-sim/fleet') {
        expect(wanted.fleet, about).not.toBeNull();
        expect(rounded(page), about).toEqual(rounded(fleetJson(wanted.fleet ? [wanted.fleet] : [])));
        const { deploy } = (wanted.fleet as PlannedFleet).fleet;
        if (deploy) expect(await o.page.locator('#answer').textContent(), about).toContain(`${deploy.gpus} `);
        fleets++;
        continue;
      }
      expect(wanted.fleet, about).toBeNull();
      expect(essence(page), about).toEqual(essence(wanted.report));
      // No device that does not exist: name and memory are those of the catalogue.
      const spec = DEVICES.find((d) => d.id === values['device']);
      expect([page.device.name, page.device.vramBytes], about).toEqual([spec?.name, spec && memoryOf(spec)]);
    }
    expect(compared, `seed ${SEED}`).toBe(SETTINGS);
    expect(fleets, `seed ${SEED}`).toBeGreaterThan(0);
    expect(o.incidents).toEqual([]);
    await o.close();
  });
});
