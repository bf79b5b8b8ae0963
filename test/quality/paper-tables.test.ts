/** The cells of the paper's tables against all that states them: figures, `models`, contradictions, systems figures. */
import { describe, expect, it } from 'vitest';
import { moduleOf, tablesIn } from '../../scripts/extract-tables.mjs';
import { PAPER_FIGURES } from '../../src/paper/figures.js';
import { presetSource } from '../../src/plan/ask/prepare.js';
import { CONTRADICTIONS } from '../../src/quality/contradictions.js';
import type { QualityFigure } from '../../src/quality/figure.js';
import { PAPER_TABLES } from '../../src/quality/paper-tables.js';
import { FIGURES, FIGURES_OF_THE_PAPER, teacherOf } from '../../src/quality/quality.js';
import { modelCard, modelCardTable } from '../../src/report/text/model-card.js';

type Table = keyof typeof PAPER_TABLES;
const TABLES = Object.keys(PAPER_TABLES) as Table[];

/** Columns that are no figures of their own, each with the reason. */
const NO_FIGURES: Readonly<Partial<Record<Table, Readonly<Record<string, string>>>>> = {
  onpolicy: { Δ: 'on-policy less off-policy; checked below' },
  passkey: { context: 'the context of its row' },
};
/** Tables whose numbers are no published scores, each with the reason. */
const OTHER_TABLES: Readonly<Partial<Record<Table, string>>> = {
  retention: 'broadsuite over its teacher; checked below against what models prints',
  memory: 'systems figures: src/paper/figures.ts; checked below',
  absorbed_latency: 'systems figures: src/paper/figures.ts; checked below',
};
const SCORED = TABLES.filter((table) => OTHER_TABLES[table] === undefined);

interface Cell {
  readonly value: number;
  readonly row: string;
  readonly title: string;
  readonly heading: string;
}

/** Every number of a table that must be a figure, in reading order. Read apart from src/quality/printed.ts. */
function cellsOf(table: Table): Cell[] {
  const [head = '', ...lines] = PAPER_TABLES[table].split('\n').slice(1);
  const titles = head.split('|').map((t) => t.trim());
  let heading = '';
  return lines.flatMap((line) => {
    const cells = line.split('|').map((c) => c.trim());
    if (cells.length === 1) heading = line;
    return cells.flatMap((cell, i) => {
      const title = titles[i] as string;
      if (NO_FIGURES[table]?.[title] !== undefined) return [];
      const numbers = cells.length === 1 ? /[\d.]+$/.exec(cell) : /^[\d.]+(?: \/ [\d.]+)?$/.exec(cell);
      return (numbers?.[0] ?? '')
        .split(' / ')
        .flatMap((n) => (n === '' ? [] : [{ value: Number(n), row: line, title, heading }]));
    });
  });
}

const figuresOf = (table: Table): QualityFigure[] => FIGURES.filter((f) => f.source === `Table ${table}`);
const NAMES: Readonly<Record<string, RegExp>> = {
  full: /teacher/,
  lla: /LLA(?!-2D)/,
  'lla-2d': /LLA-2D/,
  'mla-head': /mla_head/,
  cla: /cla\b/,
  'kv-quant': /kv_quant/,
  'final-loop': /final-loop/,
};

describe('the script that extracts tables', () => {
  it('takes cells as printed, without markup, rules and headings', () => {
    const tex = String.raw`
      \newcommand{\T}{%
      \begin{table}[H]\caption{\textbf{No} & cell.}\label{tab:one}
      \begin{tabular}{llc}
        \toprule
        Model & $\rho$ & $r_k/r_v$ & KL $\downarrow$ \\
        \midrule
        \rowcolor{blue} \lla{}-2D (loop$\times$head) & $5.33\times$ & $(96,160)$ & \textbf{0.590} \\
        \multicolumn{4}{c}{GSM8K $\uparrow$; teacher $\approx 0.83$} \\
        mla\_head & n/a & $32{,}768$ & 0.1 / 0.2 \\
        \bottomrule
      \end{tabular}\end{table}%
      }`;
    expect([...tablesIn(tex)]).toEqual([
      [
        'one',
        [
          ['Model', 'ρ', 'r_k/r_v', 'KL'],
          ['LLA-2D (loop×head)', '5.33×', '(96,160)', '0.590'],
          ['GSM8K; teacher ≈ 0.83'],
          ['mla_head', 'n/a', '32,768', '0.1 / 0.2'],
        ],
      ],
    ]);
    expect(moduleOf(tablesIn(tex))).toContain('\n  one: `\nModel | ρ | r_k/r_v | KL\nLLA-2D');
    expect(() => moduleOf(tablesIn(tex.replace(String.raw`\rho`, String.raw`\sigma`)))).toThrow(/one: \\sigma/);
  });
});

describe('a cell of a quality table', () => {
  it.each(SCORED)('of Table %s is the figure of its place, and every figure is a cell', (table) => {
    const cells = cellsOf(table);
    const figures = figuresOf(table);
    expect(figures.map((f) => f.value)).toEqual(cells.map((c) => c.value));
    expect(cells.length).toBeGreaterThan(1);
    // The codec and the ratio of ablations and decoupled_char stand in their captions; the evicted baseline has bits.
    if (table === 'ablations' || table === 'decoupled_char') return;
    for (const [i, { row, title, heading, value }] of cells.entries()) {
      const f = figures[i] as QualityFigure;
      const where = `${table}: ${value} in ${row}, ${title}`;
      const label = `${row.split('|')[0]} ${title} ${heading}`;
      // Rows of Table onpolicy and Table huginn are all LLA's.
      if (f.codec !== 'lla' || !/onpolicy|huginn/.test(table)) expect(label, where).toMatch(NAMES[f.codec] as RegExp);
      if (f.codec !== 'full' && f.codec + f.ratioLabel !== 'kv-quant2')
        expect(`${row.split('|').slice(0, 2).join(' ')} ${title}`, where).toContain(`${f.ratioLabel}×`);
    }
  });

  it('has the metric of its column', () => {
    const METRICS: Readonly<Record<string, RegExp>> = {
      'train-kl': /train.KL/,
      'svd-kl': /SVD KL/,
      'svd-top-1': /SVD top-1/,
      'distill-kl': /distill KL/,
      'top-1': /best top-1/,
      'mc-avg': /MC-avg|Avg/,
      gsm8k: /GSM8K/,
      humaneval: /HumanEval/,
      'humaneval-plus': /HumanEval/,
      mbpp: /MBPP/,
      'mbpp-plus': /MBPP/,
      bbh: /BBH/,
      mmlu: /^MMLU /,
      'mmlu-pro': /MMLU-Pro/,
      'arc-e': /ARC-e/,
      'arc-c': /ARC-c/,
      hellaswag: /HSwag/,
      winogrande: /WGr/,
      'commonsense-qa': /C-QA/,
      piqa: /PIQA/,
      'openbook-qa': /OBQA/,
      'ablation-kl': /held-out KL/,
      'reconstruction-kl': /reconstruction KL/,
      'math500-no-answer': /no-ans/,
      math500: /MATH-500|policy/,
      passkey: /teacher|LLA/,
    };
    for (const table of SCORED)
      for (const [i, { title, heading }] of cellsOf(table).entries()) {
        const { metric, variant } = figuresOf(table)[i] as QualityFigure;
        expect(`${title} ${heading}`, `${table}: ${metric}`).toMatch(METRICS[metric] as RegExp);
        if (table === 'onpolicy' && variant !== null) expect(variant).toContain(title.split(/[ -]/)[0]);
      }
  });

  it('is printed by `models`, beside the table’s name', () => {
    const lines = ['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b'].flatMap((name) =>
      modelCardTable(modelCard(presetSource(name)), 100).split('\n'),
    );
    const numbers = (values: readonly number[]): number[] => values.toSorted((a, b) => a - b);
    for (const table of SCORED) {
      const own = lines.flatMap((line) => {
        const [, value, source] =
          /^[! ] \S+(?: [\dk]+)? +([\d.]+) .* (?:\d+ %|–) +(\w+)(?:: [^()]*(?:\([^()]*\))?)?(?: \([a-z-]+\))?$/.exec(
            line,
          ) ?? [];
        return source === table ? [Number(value)] : [];
      });
      expect(numbers(own), table).toEqual(numbers(cellsOf(table).map((c) => c.value)));
    }
  });
});

describe('a derived cell', () => {
  it('of Table retention is what `models` prints as kept, all 48', () => {
    const { quality } = modelCard(presetSource('ouro-1.4b'));
    const text = modelCardTable(modelCard(presetSource('ouro-1.4b')), 100);
    const metrics = 'gsm8k,humaneval,humaneval-plus,mbpp,mbpp-plus,math500,bbh,mmlu-pro'.split(',');
    const rows = PAPER_TABLES.retention.split('\n').slice(3);
    const cells = rows.flatMap((row) => {
      const [label = '', ...shares] = row.split(' | ');
      const setting = `lla-${Number(label.slice(4, -1))}x`;
      const lines = text.split(`\n${setting}\n`)[1]?.split(/\n(?=[^! ])/)[0] ?? '';
      expect(quality.map((s) => s.setting)).toContain(setting);
      return shares.map((share, i) => {
        const line = lines
          .split('\n')
          .find((l) => l.startsWith(`${metrics[i]} `, 2) && / broadsuite \(two-pass\)$/.test(l));
        return [`${setting} ${metrics[i]}`, `${Math.round(Number(share) * 100)} %`, /\d+ %/.exec(line ?? '')?.[0]];
      });
    });
    expect(cells).toHaveLength(48);
    for (const [name, printed, shown] of cells) expect(shown, name).toBe(printed);
  });

  it('Δ of Table onpolicy is on-policy less off-policy', () => {
    for (const row of PAPER_TABLES.onpolicy.split('\n').slice(3)) {
      const [, off, on, delta] = row.split(' | ').map(Number);
      expect((on as number) - (off as number), row).toBeCloseTo(delta as number, 9);
    }
  });

  it('of Table evict is held against the teacher that its caption refers to', () => {
    for (const f of figuresOf('evict'))
      expect(teacherOf(f)).toMatchObject({ value: 0.794, source: 'Table isocache', metric: 'gsm8k' });
  });
});

/** Numbers in a text, those in names (`LLA-2D`, `1.4B`, `64k`, `8 bits`) left out. */
const numbersIn = (text: string): number[] =>
  [...text.matchAll(/(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w.]| bits)/g)].map(([n]) => Number(n.replaceAll(',', '')));
/** Of a table: its heading numbers too, and those inside words (`(96,160)`, `128/256`). */
const allOf = (table: Table): Set<number> =>
  new Set([...numbersIn(PAPER_TABLES[table]), ...PAPER_TABLES[table].matchAll(/\d+(?:\.\d+)?/g)].map((n) => Number(n)));
const tableOf = (source: string): Table | undefined =>
  TABLES.find((table) => source === `Table ${table}` || source.startsWith(`Table ${table},`));

describe('numbers stated elsewhere', () => {
  it('are cells of the table that a contradiction names', () => {
    let seen = 0;
    for (const { id, figures } of CONTRADICTIONS)
      for (const { value, source } of figures) {
        const table = tableOf(source);
        if (table === undefined) continue;
        // What follows "=" is arithmetic with cells.
        for (const n of numbersIn(value.split(/(?<=\d) = /)[0] as string)) {
          seen += 1;
          expect(allOf(table), `${id}: ${value} @ ${source}`).toContain(n);
        }
      }
    expect(seen).toBeGreaterThan(80);
  });

  it('are cells where a systems figure names a table, but for captions and arithmetic', () => {
    const derived = /batch-gain|matched-scalars|reconstruct$/;
    const captions = /kv-at-1m\/evicted|evict\/share/;
    const others = PAPER_FIGURES.filter((f) => tableOf(f.source) && !derived.test(f.id) && !captions.test(f.id));
    expect(others.length).toBeGreaterThan(60);
    for (const { id, text, source } of others)
      for (const n of numbersIn(text.replace('96-layer', '')))
        expect(allOf(tableOf(source) as Table), `${id}: ${text}`).toContain(n);
  });

  it('are every cell of the systems tables', () => {
    for (const table of ['memory', 'absorbed_latency'] as const) {
      const stated = PAPER_FIGURES.filter((f) => tableOf(f.source) === table).map((f) => f.text);
      const cells = PAPER_TABLES[table].split('\n').slice(2);
      for (const cell of cells.flatMap((line) => line.split(' | ').slice(1)))
        for (const n of numbersIn(cell)) expect(stated.flatMap(numbersIn), `${table}: ${cell}`).toContain(n);
    }
  });
});

describe('the decoder of a score', () => {
  it('is what the paper says of its table', () => {
    const decoders = (table: Table, ofTeacher: boolean): unknown[] => {
      const figures = figuresOf(table).filter((f) => f.isTeacher === ofTeacher);
      return [...new Set(figures.map((f) => f.decoder))];
    };
    expect(Object.fromEntries(SCORED.map((table) => [table, decoders(table, false)]))).toEqual({
      tier4: ['streaming', null],
      broadsuite: ['two-pass'],
      isocache: ['two-pass', null],
      scale: ['two-pass', null],
      onpolicy: ['two-pass'],
      ablations: [null],
      huginn: [null],
      evict: ['two-pass'],
      passkey: ['latent-store'],
      scale_mc: [null],
      decoupled_char: [null],
    });
    for (const table of SCORED) for (const d of decoders(table, true)) expect(['plain', null], table).toContain(d);
    for (const f of FIGURES_OF_THE_PAPER)
      expect(f.decoder === null, f.metric).toBe(
        /-kl$|top-1|mc-avg|^mmlu$|arc-|hellaswag|winogrande|-qa$|piqa|error/.test(f.metric),
      );
  });
});
