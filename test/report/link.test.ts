/** Links: a plan's settings in an address, and the same plan from it; hostile addresses are one line of text. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { geometryFromConfig, neededFields } from '../../src/geometry/hf-config.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { runsOf } from '../../src/plan/ask/runs.js';
import { isLink, linkedModel, linkOf, readLink } from '../../src/report/link.js';
import { SETTINGS } from '../../src/schema/settings.js';
import { VERSION } from '../../src/version.js';
import { sensible } from '../cli/arbitraries.js';
import { expectBadInput, inProcess, ROOT, scratch, words } from '../cli/program.js';
import * as CONFIGS from '../geometry/configs.js';
import { randomOf, SEED, type Random } from '../gpu/random.js';

const folder = scratch();
mkdirSync(join(folder.path, 'mine'));
writeFileSync(join(folder.path, 'mine', 'config.json'), JSON.stringify(CONFIGS.OURO));
afterAll(() => folder.remove());

const linkFor = async (...argv: string[]): Promise<string> => {
  const o = await inProcess('plan', ...argv, '--link');
  expect(o.code, o.err).toBe(0);
  // A shell takes it as one word, and so does an address.
  expect(o.out).toMatch(/^plan\.html#v[A-Za-z0-9_@%+=:,./-]+\n$/);
  return o.out.trim();
};

describe(`links (LLA_SIM_SEED=${SEED})`, () => {
  it('give the bytes of plan --format json for any settings', async () => {
    let opened = 0;
    await fc.assert(
      fc.asyncProperty(sensible, async (argv) => {
        const planned = await inProcess('plan', ...argv, '--format', 'json');
        const linked = await inProcess('plan', ...argv, '--link');
        if (linked.code === 2) return expectBadInput(linked);
        expect(await inProcess('open', linked.out.trim(), '--format', 'json')).toEqual(planned);
        opened++;
      }),
      { numRuns: 60, seed: SEED },
    );
    expect(opened).toBeGreaterThan(3);
  });

  it('carry a scenario with its workload, server and words', async () => {
    const text = `name: "a/b #c = 100 %"
description: "two\\nlines, ümlauts ~!'()*"
device: h200
context: [4k]
`.replace('[4k]', '4k');
    const file = folder.file('s.yaml', `${text}workload: { rate: 3, promptTokens: 512 }\nserver: { maxNumSeqs: 64 }\n`);
    const planned = await inProcess('plan', file, '--format', 'json');
    const link = await linkFor(file);
    expect(await inProcess('open', link, '--format', 'json')).toEqual(planned);
    expect(readLink(link).scenario).toMatchObject({ workload: { rate: '3' }, server: { maxNumSeqs: '64' } });
  });

  it('carry several devices, prices and users', async () => {
    for (const argv of [
      ['--device', 'h100,h200', '--ctx', '4k,8k', '--usd-per-hour', 'h100=2.5,h200=3.6'],
      ['--device', 'h100', '--ctx', '32k', '--users', '200', '--tpot', '50ms'],
    ])
      expect(await inProcess('open', await linkFor(...argv), '--format', 'json')).toEqual(
        await inProcess('plan', ...argv, '--format', 'json'),
      );
  });

  it('carry the shape of a config.json in the fewest fields, and no other file', async () => {
    const { PHI_4: _, ...whole } = CONFIGS;
    const configs = Object.entries(whole).filter(([, c]) => typeof c === 'object' && !Array.isArray(c));
    expect(configs.length).toBeGreaterThan(5);
    for (const [name, config] of configs) {
      const fields = neededFields(config, name);
      expect(geometryFromConfig(fields, name)).toEqual(geometryFromConfig(config, name));
      expect(Object.keys(fields).length).toBeLessThan(Object.keys(config).length);
    }
    const argv = ['--model', join(folder.path, 'mine'), '--device', 'h200', '--ctx', '8k'];
    const link = await linkFor(...argv);
    expect(link.length).toBeLessThan(800);
    expect(await inProcess('open', link, '--format', 'json')).toEqual(
      await inProcess('plan', ...argv, '--format', 'json'),
    );
    const few = words('--requests 20 --codec full');
    expect(await inProcess('simulate', link, ...few)).toEqual(await inProcess('simulate', ...argv.slice(0, 4), ...few));
    expectBadInput(await inProcess('plan', link, '--link'));
    for (const files of [
      ['--calibration', join(ROOT, 'calibrations/mesa-llvmpipe.json')],
      ['--device', 'h200', '--stack', join(ROOT, 'calibrations/stacks/h200-vllm.json')],
    ]) {
      const o = await inProcess('plan', ...files, '--link');
      expectBadInput(o);
      expect(o.err).toMatch(/a link carries settings, not files/);
    }
  });

  it('carry the requests that simulate serves', async () => {
    const question = 'device: h200\ncodec: full\nworkload:\n  rate: 3\n  requests: 40\n';
    const file = folder.file('served.yaml', question);
    const simulated = await inProcess('simulate', file);
    expect(simulated.out).toContain('40');
    expect(await inProcess('simulate', await linkFor(file))).toEqual(simulated);
  });

  it('say what a later version answers otherwise', async () => {
    const link = (version: string, was: string): string => `x.html#v${version}/ctx=4096/device=h200/was=${was}`;
    const now = (await linkFor('--ctx', '4096', '--device', 'h200')).split('was=')[1] as string;
    const err = async (...argv: string[]): Promise<string> => (await inProcess('open', ...argv)).err;
    expect(await err(link(VERSION, now))).toBe('');
    expect(await err(link('0.0.9', now))).toMatch(/made by lla-sim 0\.0\.9; .* gives the same answer/);
    expect(await err(link('0.0.9', 'full:9:9ms'))).toMatch(
      /^the answer has changed: lla-sim 0\.0\.9 gave full at batch 9, 9ms; lla-sim .* full at batch \d+, [\d.]+ms\n$/,
    );
    expect(await err(link('0.0.9', 'full:9:9ms'), '--quiet')).toBe('');
    expect(await err('#v9.0.0/new-setting=1')).toMatch(/made by lla-sim 9\.0\.0: open it with that version/);
  });

  it('know every setting of the table', () => {
    for (const name of Object.keys(SETTINGS)) {
      const setting = SETTINGS[name as keyof typeof SETTINGS] as {
        kind: string;
        choices?: readonly string[];
        file?: string;
      };
      const value = setting.choices?.[0] ?? 'x';
      const scenario = { [name]: { list: [value], bounds: { gsm8k: 0.5 } }[setting.kind] ?? value };
      if (setting.file === 'always') expect(() => linkOf(scenario, null, null)).toThrow(UserError);
      else expect(readLink(linkOf(scenario, null, null)).scenario).toEqual(scenario);
    }
  });

  /** Some hundred in the suite; `npm run links:full` tries a hundred thousand. */
  const RUNS = Number(process.env['LLA_SIM_LINKS'] ?? 300);

  it(`are one line of text where they are hostile (${RUNS})`, { timeout: 60_000 + 40 * RUNS }, async () => {
    const random = randomOf(SEED);
    // One after the other: a run in this process takes all that is printed.
    const seeds: string[] = [];
    for (const argv of [
      ['--device', 'h100,h200', '--ctx', '4k,8k', '--usd-per-hour', 'h100=2.5,h200=3.6', '--cache-type', 'f16,int8'],
      ['--vram', '141GB', '--min', 'gsm8k@isocache=0.7', '--codec', 'lla,full', '--ratio', '4', '--gpus', '2'],
      ['--model', join(folder.path, 'mine'), '--device', 'b300', '--eviction', 'streaming:4+256', '--tpot', '80ms'],
      ['--device', 'b300', '--stack', 'vllm-rlt', '--execution', 'eager', '--ranks', '96/160', '--codec', 'lla'],
      [join(ROOT, 'scenarios/chat-h200.yaml'), '--users', '20'],
    ])
      seeds.push(await linkFor(...argv));
    const seen = { refused: 0, prepared: 0, planned: 0 };
    let answerable = 0;
    const ANSWERED_OF = RUNS > 1000 ? 40 : 6;
    for (let i = 0; i < RUNS; i++) {
      const link = mutated(random, seeds);
      const note = `seed ${SEED}, case ${i}: ${JSON.stringify(link)}`;
      try {
        const asked = readLink(link);
        const model = linkedModel(asked);
        for (const one of runsOf(asked.scenario).slice(0, 2)) prepare(one, await readSources(one, model));
        seen.prepared++;
      } catch (error) {
        if (!(error instanceof UserError)) throw new Error(note, { cause: error });
        expect(error.exitCode, note).toBe(2);
        expect(error.message, note).toMatch(/^.{8,}$/);
        seen.refused++;
        continue;
      }
      // Of those that are questions some are answered whole.
      if (link.includes('users=') || ++answerable % ANSWERED_OF !== 0) continue;
      const o = await inProcess('open', '--quiet', '--', link);
      expect([0, 2, 3], note).toContain(o.code);
      if (o.code === 2) expectBadInput(o);
      seen.planned++;
    }
    expect(seen.refused).toBeGreaterThan(RUNS / 4);
    expect(seen.prepared).toBeGreaterThan(RUNS / 20);
    expect(seen.planned).toBeGreaterThan(0);
    if (RUNS > 1000) console.log(seen);
  });

  it('are told from the other fragments of a page', () => {
    for (const meant of ['#v0.1.0/ctx=4k', '#device=h200&ctx=4k']) expect(isLink(meant)).toBe(true);
    for (const other of ['', '#', '#ask', '#table']) expect(isLink(other)).toBe(false);
  });
});

const JUNK = [...words('/ = % %00 %ff %2F __proto__=1 constructor=1 #'), '\u0000', '\u202e', '9'.repeat(400)];
const VALUES = [...words('-1 0 NaN 1e308 %20 ..%2F..%2Fetc%2Fpasswd %F0%9F%98%80 , 1M config'), 'x'.repeat(5000)];

/** A link with one to four faults. */
function mutated(random: Random, links: readonly string[]): string {
  let text = random.pick(links);
  for (let faults = random.whole(1, 4); faults > 0; faults--) {
    const at = random.whole(0, text.length);
    const to = Math.min(text.length, at + random.whole(1, 6));
    const parts = text.split('/');
    const part = random.whole(1, Math.max(1, parts.length - 1));
    const [key = ''] = (parts[part] ?? '').split('=');
    text = random.pick([
      () => text.slice(0, at) + text.slice(to),
      () => text.slice(0, at) + random.pick(JUNK) + text.slice(at),
      () => text.slice(0, at) + String.fromCharCode(random.whole(0, 0x2ff)) + text.slice(at + 1),
      () => text.slice(0, at),
      () => [...parts, random.pick(random.pick(links).split('/'))].join('/'),
      () => parts.filter((_, i) => i !== part).join('/'),
      () => parts.map((p, i) => (i === part ? `${key}=${random.pick(VALUES)}` : p)).join('/'),
      () => parts.map((p, i) => (i === part ? `${key}=${random.pick(parts).split('=')[1] ?? ''}` : p)).join('/'),
    ])();
  }
  return text;
}
