/** What text from outside may do in a report: nothing. HTML, scripts, Markdown, CSV, shells and terminals. */
import { spawnSync } from 'node:child_process';
import { parse } from 'csv-parse/sync';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fitPredictor } from '../../src/cost/fit/fit.js';
import { answer, type Sources } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { knownStacks } from '../../src/plan/ask/stacks.js';
import { commandLine, shellWord } from '../../src/report/command-line.js';
import { asked, controlsOf, initialValues } from '../../src/report/html/controls.js';
import { escapeHtml, html } from '../../src/report/html/html.js';
import { pageSources, scriptJson } from '../../src/report/page-data.js';
import { PRESET_NAMES } from '../../src/geometry/presets.js';
import { workOf } from '../../kernels/registry.js';
import type { Sample } from '../../src/schema/calibration.js';
import { plan, ROOT } from '../cli/program.js';
import { SEED } from '../gpu/random.js';
import { filesOf, scenarioOf, textOf } from './reports.js';

const TEXT = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.constantFrom(
    '</script><script>alert(1)</script>',
    '<!--',
    ']]>',
    '" onload="x',
    "'><img src=x onerror=y>",
    '&lt;script&gt;',
    '=HYPERLINK("x")',
    '\u001b]0;x\u0007',
    '\u202eevil',
    'a\nb\r\nc',
  ),
);
const runs = { numRuns: 120, seed: SEED };

describe(`hostile text (seed ${SEED})`, () => {
  it('stays text in HTML, and comes back as it was but for control characters', () => {
    fc.assert(
      fc.property(TEXT, (text) => {
        const safe = escapeHtml(text);
        expect(safe).not.toMatch(/[<>"'`]/);
        expect(safe).not.toMatch(/[\u0000-\u0008\u001b\u202a-\u202e]|&(?!#\d+;)/);
        expect(html`<p title="${text}">${text}</p>`.text.match(/[<>]/g)?.length).toBe(4);
      }),
      runs,
    );
  });

  it('cannot end a script element, and is the same value there', () => {
    fc.assert(
      fc.property(fc.dictionary(TEXT, TEXT), (value) => {
        const written = scriptJson(value);
        expect(written).not.toMatch(/[<>&\u2028\u2029]/);
        expect(JSON.parse(written)).toEqual(JSON.parse(JSON.stringify(value)));
      }),
      runs,
    );
  });

  it('is one word to a shell', () => {
    fc.assert(
      fc.property(
        fc.array(
          TEXT.map((t) => t.replace(/\0/g, '')).filter((t) => Buffer.from(t).toString() === t),
          { minLength: 1, maxLength: 3 },
        ),
        (words) => {
          const out = spawnSync('sh', ['-c', `printf '%s\\0' ${words.map(shellWord).join(' ')}`], { encoding: 'utf8' });
          expect(out.stdout).toBe(words.map((w) => `${w}\0`).join(''));
        },
      ),
      { numRuns: 16, seed: SEED },
    );
  });

  it('in a scenario does nothing in any file of a report', async () => {
    const hostile = "=cmd|' /C calc'!A0 <script>alert(1)</script> ![x](http://x) | `a` \u001b[2J\u202e</script>";
    const files = await filesOf(
      { device: 'h200', codec: ['full', 'lla'], name: hostile, description: `${hostile}\n# heading\n- list` },
      { file: hostile },
    );
    const page = textOf(files, 'report.html');
    expect(page.match(/<script/g)?.length).toBe(2);
    expect(page.match(/<\/script/g)?.length).toBe(2);
    expect(page).not.toMatch(/<script>alert/);
    const md = textOf(files, 'report.md');
    expect(md).not.toMatch(/<script|!\[x\]\(http|^# heading|^- list/m);
    for (const name of ['report.html', 'report.md', 'plans.csv', 'plans.json']) {
      expect(/[\u0000-\u0008\u000b-\u001f\u007f\u202e]/.exec(textOf(files, name)), name).toBeNull();
    }
    for (const cells of parse(textOf(files, 'plans.csv')) as string[][])
      for (const cell of cells) expect(cell).not.toMatch(/^[=+\-@\t\r]/);
  });
});

describe('what a page carries', () => {
  it('gives the same answer after the trip through JSON, for every scenario', async () => {
    for (const name of ['chat-h200', 'million-tokens', 'tensor-parallel-2xh100']) {
      const scenario = scenarioOf(name);
      const sources = await readSources(scenario);
      const there = JSON.parse(scriptJson(pageSources(sources))) as Sources;
      expect(answer(scenario, there), name).toEqual(answer(scenario, sources));
    }
  });

  it('prices from a slimmed calibration exactly as from the whole', async () => {
    const base = await readSources({ calibration: `${ROOT}/calibrations/mesa-llvmpipe.json` });
    const whole = base.calibration;
    if (!whole) throw new Error('no calibration');
    // Times of a kernel as a machine that drifts repeats them, at shapes some of which repeat.
    const samples = [1, 2, 4, 4, 8, 16, 32].map((rows, i): Sample => {
      const shape = { rows, width: 2048 };
      const w = workOf({ kernel: 'rmsnorm', variant: 'norm', shape });
      const seconds = [1e-6 * rows, 1.2e-6 * rows + 1e-8 * i, 0.9e-6 * rows];
      return { variant: 'norm', shape, tuning: {}, ...w, seconds, drift: [1.5, 1.3, 0.8], relativeError: 0 };
    });
    const others = whole.content.kernels.filter((k) => k.kernel !== 'rmsnorm');
    const fitted = fitPredictor('rmsnorm', 'norm', samples);
    const sources: Sources = {
      ...base,
      calibration: {
        ...whole,
        stale: others.map((k) => k.kernel),
        content: {
          ...whole.content,
          kernels: [...others, { kernel: 'rmsnorm', samples, predictors: { norm: fitted } }],
        },
      },
    };
    const scenario = { vram: '100GB', codec: ['full', 'lla'], ratio: [4] };
    const slim = JSON.parse(scriptJson(pageSources(sources))) as Sources;
    const [a, b] = [answer(scenario, sources), answer(scenario, slim)];
    expect(b).toEqual(a);
    const share = a.plans[0]?.decode.evidenceShare;
    expect((share?.interpolated ?? 0) + (share?.extrapolated ?? 0)).toBeGreaterThan(0);
    expect(scriptJson(slim).length).toBeLessThan(scriptJson(sources).length);
  });

  it('names a command that gives the same answer, whatever was changed', async () => {
    const scenario = scenarioOf('edge-rtx-4090');
    const data = { scenario, sources: await readSources(scenario), validation: null, known: await knownStacks() };
    for (const { choices, name, value } of controlsOf(data, PRESET_NAMES)) {
      const offered = choices?.map(([one]) => one) ?? [value];
      expect(new Set(offered).size, name).toBe(offered.length);
      expect(offered, name).toContain(value);
    }
    const given = { context: '16k', device: 'h100', gpus: '2', usdPerHour: '2.5', tpot: '200ms', batch: '2' };
    const changed = asked(data, { ...initialValues(data), ...given, min: 'gsm8k=0.5, bbh=0.1' });
    const command = commandLine(changed.scenario);
    expect(command).not.toMatch(/\.yaml/);
    const cli = await plan(...command.split(' ').slice(2), '--format', 'json');
    expect({ ...(JSON.parse(cli.out) as object), scenario: null }).toEqual({
      ...(JSON.parse(JSON.stringify(answer(changed.scenario, changed.sources))) as object),
      scenario: null,
    });
    expect(commandLine({ model: 'a b.json', context: 4096 })).toBe("lla-sim plan --model 'a b.json' --ctx 4096");
  });
});
