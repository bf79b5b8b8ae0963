/** `lla-sim simulate` of tokens that leave early, and of speculation: what it says of them. */
import { afterAll, describe, expect, it } from 'vitest';
import { EXIT_DEPTHS } from '../../src/quality/exit-depths.js';
import { H200, report, simulate } from './simulated.js';
import { expectRefused, scratch } from '../cli/program.js';

const FEW = [...H200, '--requests', '20'];

const files = scratch();
const { file } = files;
afterAll(() => files.remove());

describe('speculation', () => {
  it('refuses caches whose proposals one pass cannot verify, and leaves them out of several', async () => {
    const drafts = ['--device', 'h200', '--requests', '20', '--draft-tokens', '4'];
    for (const cache of [
      ['--codec', 'lla', '--ratio', '4', '--path', 'reconstruct'],
      ['--codec', 'lla-window', '--ratio', '4', '--window', '3', '--path', 'reconstruct'],
      ['--codec', 'full', '--eviction', 'streaming:4+508'],
    ]) {
      expectRefused(
        await simulate(...drafts, ...cache),
        /does not go with --draft-tokens: .*(only after the last loop|proposals|evicts)/,
      );
    }
    const several = await report(...drafts, '--codec', 'full,lla,kv-quant', '--ratio', '4');
    expect(several.runs.map(({ id }) => id)).toEqual(['full/full', 'kv-quant-4bit/full']);
  });

  it('says what it brings, from which acceptance and up to which batch', async () => {
    const r = await report(...FEW, '--draft-tokens', '4');
    const of = r.runs[0]!.speculation!;
    expect(r.runs[0]!.servedBy).toBeNull();
    expect(of.acceptanceSource).toContain('vllm-rlt');
    expect(of.tokensPerRound).toBeGreaterThan(4);
    expect(r.runs[0]!.estimate.mean_tpot_ms!).toBeLessThan(of.without.mean_tpot_ms!);
    const never = await report(...FEW, '--draft-tokens', '4', '--draft-acceptance', '0');
    expect(never.runs[0]!.estimate.mean_tpot_ms!).toBeGreaterThan(of.without.mean_tpot_ms!);
    expect(never.runs[0]!.speculation).toMatchObject({
      tokensPerRound: 1,
      paysUpToSequences: 0,
      acceptanceSource: null,
    });
  });
});

describe('published exit depths', () => {
  const few = [...FEW, '--skipped-kv', 'copy'];

  it('are named by model and gate, with what answers were worth', async () => {
    for (const { model, at, shares } of EXIT_DEPTHS) {
      const r = await report(...few, '--model', model, '--depth', `${model}@${at}`);
      expect(r.runs[0]!.depth).toMatchObject({ probabilities: shares, published: { model, at } });
      expect(shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 12);
    }
    const shown = await simulate(...few, '--depth', 'ouro-1.4b@0.5');
    expect(shown.out.replaceAll(/\s+/g, ' ')).toContain('GSM8K: 64 of 100 right, 63 with all loops.');
  });

  it.each([
    ['[4,3,5]\n', 'line 1 must be a list of whole numbers from 1 to 4'],
    ['[4]\n{"depth":4}\n', 'line 2 must be a list'],
    ['[4]\n4,3\n', 'line 2 is not valid JSON'],
    ['\n', 'has no answer'],
  ])('recorded ones: %j is refused', async (text, message) => {
    const path = file('depths.jsonl', text);
    expectRefused(await simulate(...few, '--depth', path), message);
  });

  it('recorded ones have the shares of their tokens', async () => {
    const path = file('depths.jsonl', '[4,3,3,4]\n[2,2]\n');
    const r = await report(...few, '--depth', path);
    expect(r.runs[0]!.depth).toMatchObject({ probabilities: [0, 2 / 6, 2 / 6, 2 / 6] });
  });
});
