/** Table, CSV and Markdown of real scenarios, and what hostile text may do in them. */
import { parse } from 'csv-parse/sync';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { planCsv, planMarkdown } from '../../src/report/plan-csv.js';
import { csvCell, markdownText } from '../../src/report/tables.js';
import { planTable } from '../../src/report/text/plan-table.js';
import { columns, wrap } from '../../src/report/text/text.js';
import type { PlanReport } from '../../src/plan/types.js';
import { planOf } from '../plan/requests.js';
import { SCENARIOS, scenarioOf } from './reports.js';

const reportOf = (name: string): Promise<PlanReport> => planOf(scenarioOf(name));

const fits = (text: string, width = 100): void => {
  for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(width);
};

describe.each(SCENARIOS)('%s', (name) => {
  it('fits terminals of 60, 100 and 200 columns, short and whole, and holds no colour when none is asked', async () => {
    const report = await reportOf(name);
    for (const [all, width] of [false, true].flatMap((a) => [60, 100, 200].map((w) => [a, w] as const))) {
      const text = planTable(report, { all, colour: false, width });
      fits(text, width);
      // The table never drops what a million tokens take; short it has at most 16 rows.
      const table = text.split('\n\n').find((part) => part.includes('KV at 1M'));
      expect(table).toBeDefined();
      if (!all) expect((table as string).split('\n').length).toBeLessThanOrEqual(1 + 16);
      expect(text).not.toMatch(/\u001b|NaN|undefined|Infinity|\[object/);
      expect(text.endsWith('\n')).toBe(true);
    }
  });

  it('has a row for every plan in CSV, with the numbers of the report in base units', async () => {
    const report = await reportOf(name);
    const rows = parse(planCsv(report), { columns: true }) as Record<string, string>[];
    expect(rows.length).toBe(report.plans.length);
    report.plans.forEach((p, i) => {
      const r = rows[i] as Record<string, string>;
      expect(r['id']).toBe(p.id);
      expect(Number(r['kvBytesPerToken'])).toBe(p.memory.kvBytesPerToken);
      expect(Number(r['maxBatchExact'])).toBe(p.maxBatch.exact);
      expect(r['secondsPerStep']).toBe(String((p.knee ?? p.decode).secondsPerStep?.estimate ?? ''));
    });
  });

  it('is a well-formed table in Markdown', async () => {
    const report = await reportOf(name);
    const lines = planMarkdown(report).split('\n');
    const table = lines.filter((l) => l.startsWith('|'));
    const cellsOf = (line: string) => line.replace(/\\[|]/g, '').split('|');
    expect(table.length).toBe(report.plans.length + 2);
    for (const line of table) expect(cellsOf(line).length, line).toBe(cellsOf(table[0]!).length);
    expect(lines.some((l) => l.startsWith('#'))).toBe(true);
    // Only the column of marks has no title.
    expect(
      cellsOf(table[0]!)
        .slice(1, -1)
        .filter((title) => title.trim() === ''),
    ).toHaveLength(1);
  });
});

describe('tables', () => {
  it('fit 100 columns with every column and the longest labels at once', async () => {
    for (const s of [
      {
        ...{ usdPerHour: 12, context: '1M', vram: '500TB', device: 'h200' },
        eviction: ['none', 'streaming:4+1048576', 'h2o:524288+524288'],
      },
      {
        ...{ model: 'huginn-3.5b', device: 'l4', vram: '1000TB', context: '512M', batch: 1, cacheType: 'int4' },
        ...{ ratio: [33.3, 77.7], eviction: ['h2o:128+132'], usdPerHour: 1e6 },
      },
    ]) {
      const report = await planOf(s);
      for (const all of [false, true]) fits(planTable(report, { all, colour: false }));
    }
  });
  it('say in their header that memory is that of one GPU where several share the model', async () => {
    const [one, two] = [await planOf({ codec: ['full'] }), await planOf({ codec: ['full'], gpus: 2 })];
    const title = 'KV at 1M/GPU';
    expect(planTable(two, { all: true, colour: false })).toContain(title);
    expect(planMarkdown(two)).toContain(title);
    expect(planTable(one, { all: true, colour: false })).not.toContain(title);
  });
  it('align: the header is as wide as its rows', () => {
    const lines = columns(
      [
        { title: 'a', align: 'left', cell: (x: string) => x },
        { title: 'b', align: 'right', cell: (x: string) => x.length.toString() },
      ],
      ['long one', 'x'],
    );
    expect(lines).toEqual(['a        b', 'long one 8', 'x        1']);
  });
  it('wrap breaks a word that no line holds', () => {
    for (const word of ['x'.repeat(250), '\u{1f600}'.repeat(90)]) {
      const lines = wrap(`a ${word} b`, 60, '  ');
      for (const l of lines) expect(l.length).toBeLessThanOrEqual(60);
      expect(lines.join('').replaceAll(/\s/g, '')).toBe(`a${word}b`);
    }
  });
  it('wrap keeps every word and the width', () => {
    fc.assert(
      fc.property(
        fc.array(fc.stringMatching(/^[a-z]{1,20}$/), { maxLength: 60 }),
        fc.integer({ min: 30, max: 100 }),
        (words, width) => {
          const lines = wrap(words.join(' '), width, '  ');
          expect(lines.join(' ').split(/\s+/).filter(Boolean)).toEqual(words);
          for (const l of lines) expect(l.length).toBeLessThanOrEqual(width + 2);
        },
      ),
    );
  });
});

describe('CSV cells', () => {
  it('survive a round trip, and no cell starts a formula', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.string(), fc.stringMatching(/^[=+\-@\t\r",\n']{1,4}.{0,5}$/)), {
          minLength: 2,
          maxLength: 5,
        }),
        (texts) => {
          const [row] = parse(`${texts.map((t) => csvCell(t)).join(',')}\n`, {
            relax_column_count: true,
            record_delimiter: '\n',
          }) as string[][];
          expect(row?.map((cell, i) => cell === texts[i] || cell === `'${texts[i]}`)).toEqual(texts.map(() => true));
          for (const cell of row ?? []) expect(cell).not.toMatch(/^[=+\-@\t\r]/);
        },
      ),
      { numRuns: 500 },
    );
  });
  it('numbers stay numbers, nothing stays empty', () => {
    expect([csvCell(-1), csvCell(null), csvCell(undefined), csvCell(true)]).toEqual(['-1', '', '', 'true']);
  });
});

describe('Markdown text', () => {
  it('cannot open HTML, a link, an image, code or a table cell', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.constantFrom(
            '<script>alert(1)</script>',
            '[x](javascript:1)',
            '![i](u)',
            '`a`',
            'a | b',
            '# h\n\n- x',
            '&lt;',
            '\\<b>',
          ),
        ),
        (text) => {
          const safe = markdownText(text);
          expect(safe).not.toMatch(/[<>\n\r]/);
          expect(safe.replace(/\\./g, '').replace(/&(lt|gt|amp);/g, '')).not.toMatch(/[|`[\]*_#&]/);
        },
      ),
      { numRuns: 500 },
    );
  });
  it('covers what comes from outside: a scenario and its name', async () => {
    const report = await planOf({ codec: ['full'], name: '<img src=x onerror=1> | [a](b)', description: '**x**\n# y' });
    const text = planMarkdown(report);
    expect(text).not.toMatch(/<img|\n# y/);
  });
});
