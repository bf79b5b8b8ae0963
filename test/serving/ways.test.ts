/**
 * Ways of serving a looped model side by side: each has the rate that is found for it alone, and no quality but its
 * own.
 */
import { describe, expect, it } from 'vitest';
import { waysNote } from '../../src/report/text/ways-table.js';
import type { SimulationReport, WayRow } from '../../src/serving/types.js';
import { onFront } from '../../src/serving/ways.js';
import { expectBadInput, inProcess } from '../cli/program.js';
import { randomOf, SEED } from '../gpu/random.js';

const random = randomOf(SEED);

describe(`the front (seed ${SEED})`, () => {
  const row = (low: number, share: number | null): Pick<WayRow, 'requestsPerSecond' | 'quality'> => ({
    requestsPerSecond: { low, estimate: low, high: low },
    quality: { share, of: null },
  });

  it('has what nothing else beats in rate and quality, and nothing that is unknown or serves nothing', () => {
    const rows = [row(3, 0.9), row(2, 1), row(1, 1), row(9, null), row(0, 1), row(2.5, 0.8), row(2, 1.02)];
    // Better than all loops counts as all loops.
    expect(onFront(rows)).toEqual([true, true, false, false, false, false, true]);
  });

  it('is that of every pair compared', () => {
    const rows = Array.from({ length: 12 }, () => row(random.whole(0, 5), random.pick([null, 0.9, 0.95, 1])));
    onFront(rows).forEach((on, i) => {
      const own = rows[i]!;
      const beaten = rows.some(
        (other) =>
          other.quality.share !== null &&
          other.quality.share >= (own.quality.share ?? 2) &&
          other.requestsPerSecond.low >= own.requestsPerSecond.low &&
          (other.quality.share > own.quality.share! || other.requestsPerSecond.low > own.requestsPerSecond.low),
      );
      expect(on).toBe(own.quality.share !== null && own.requestsPerSecond.low > 0 && !beaten);
    });
  });
});

it('names the server that schedules loops where a way needs one', () => {
  const words = (needs: string): string =>
    waysNote([{ needs, quality: { share: 1, of: null } } as Pick<WayRow, 'needs' | 'quality'> as WayRow]);
  expect(words('a server that schedules loops')).toContain('vllm-rlt schedules loops');
  expect(words('kernels')).not.toContain('vllm-rlt');
});

describe('simulate --find-rate --ways', () => {
  const served = [
    ...['--device', 'b300', '--stack', 'vllm-rlt', '--codec', 'full,lla', '--ratio', '4', '--path', 'full,reconstruct'],
    ...['--prompt-tokens', '200', '--output-tokens', '40', '--tpot', '150ms', '--ttft', '5s', '--keep', '0.5'],
    // A share of nine in ten is told by a tenth of the requests.
    ...['--requests', '100', '--percentile', '90'],
  ];
  const reportOf = async (...args: string[]): Promise<SimulationReport> => {
    const o = await inProcess('simulate', ...served, '--find-rate', '--format', 'json', '--cores', '1', ...args);
    expect(o.code, o.err).toBe(0);
    return JSON.parse(o.out) as SimulationReport;
  };

  it('has every way with every cache that goes with it, at the rate of that way alone', async () => {
    const { ways = [], notes } = await reportOf('--ways');
    const rowOf = (way: WayRow['way'], kind: string): WayRow | undefined =>
      ways.find((r) => r.way === way && r.id.startsWith(kind));
    // One pass cannot verify proposals that read latents of all loops.
    expect(ways.map(({ way, id }) => `${way} ${id.split('/')[0]}`).sort()).toEqual([
      'early exit full',
      'early exit lla-4x',
      'fewer loops full',
      'one by one full',
      'one by one lla-4x',
      'speculation full',
    ]);
    const alone: readonly [WayRow['way'], string[]][] = [
      ['one by one', []],
      ['early exit', ['--depth', 'ouro-1.4b@0.5', '--depth-batching', 'loops', '--skipped-kv', 'copy']],
      ['speculation', ['--draft-tokens', '4']],
      ['fewer loops', ['--loops', '2']],
    ];
    // A search takes seconds: a run draws one way.
    const draw = Math.floor(Math.random() * alone.length);
    for (const [way, flags] of alone.slice(draw, draw + 1))
      for (const { id, requestsPerSecond } of (await reportOf(...flags)).candidates ?? [])
        // Nobody scored a compressed cache of fewer loops.
        if (way !== 'fewer loops' || id.startsWith('full'))
          expect(rowOf(way, id.split('/')[0] as string)?.requestsPerSecond, `${way} ${id}`).toEqual(requestsPerSecond);
    // What runs today comes first, and is the full cache alone.
    expect(ways.filter(({ servedBy }) => servedBy !== null).map(({ id }) => id)).toEqual(
      ways.slice(0, 3).map(() => 'full/full'),
    );
    expect(rowOf('one by one', 'lla')?.needs).toBe('training, kernels');
    expect(rowOf('one by one', 'full')?.quality).toEqual({ share: 1, of: null });
    expect(rowOf('early exit', 'full')?.quality.of).toContain('64 of 100 right');
    // 64 of 80 % of GSM8K, by a server that does not say how memory follows.
    expect(rowOf('fewer loops', 'full')).toMatchObject({ servedBy: null, quality: { share: 0.8 } });
    // Nobody scored both together.
    expect(rowOf('early exit', 'lla')).toMatchObject({ quality: { share: null }, onFront: false });
    expect(ways.some(({ onFront }) => onFront)).toBe(true);
    expect(notes.join()).toContain('accepted with 92');
  });

  it('leaves out what nothing was published of, with the reason, and is a table by default', async () => {
    const flags = ['--model', 'ouro-2.6b', '--codec', 'full', '--path', 'full', '--find-rate', '--ways'];
    const o = await inProcess('simulate', ...served, ...flags);
    expect(o.code, o.err).toBe(0);
    expect(o.out).toContain('Nothing serves it today.');
    expect(o.out).toMatch(/To be written \(kernels\): one by one with full\/full/);
    expect(o.out).toContain('early exit: nobody published');
    expect(o.out.replaceAll(/\s+/g, ' ')).toContain('speculation is left out: nobody published');
  });

  it('goes with a search for rates alone', async () => {
    expectBadInput(await inProcess('simulate', ...served, '--ways'));
    expectBadInput(
      await inProcess('simulate', ...served, '--ways', '--find-rate', '--shard', '1/2', '--format', 'json'),
    );
  });
});
