/** Traces in every format, and what is said of bad ones. */
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { emptyDraft } from '../../src/serving/scheduler/requests.js';
import { readWorkload } from '../../src/serving/workload/read.js';
import { observedLengths, summarise, TraceSource, type TraceOptions } from '../../src/serving/workload/trace.js';
import { scratch } from '../cli/program.js';

const files = scratch();
afterAll(() => files.remove());

const ALL = { limit: Infinity, skipBad: false } as const;
const file = (content: string | Buffer): TraceOptions => ({ path: files.file('trace', content), ...ALL });

/** All requests as [time, prompt, output]. */
function read(o: TraceOptions, speedUp = 1): [number, number, number][] {
  const source = new TraceSource(o, speedUp);
  const draft = emptyDraft();
  const all: [number, number, number][] = [];
  while (source.next(draft)) all.push([draft.time, draft.promptTokens, draft.outputTokens]);
  return all;
}

const FORMATS: Readonly<Record<string, string>> = {
  Azure:
    `TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 ` +
    `18:15:48.1805900,396,109\n`,
  'Azure 2024':
    `TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.5+00:00,374,44\r\n2024-05-10 ` +
    `00:00:02+00:00,396,109\r\n`,
  Vidur: `arrived_at,num_prefill_tokens,num_decode_tokens,other\n7.5,374,44,x\n9,396,109,y\n`,
  BurstGPT:
    'Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log ' +
    `Type\n5,1,2,"Chat,GPT",374,44,418,API log\n6.5,2,2,GPT-4,396,109,505,API log`,
  Mooncake:
    `{"timestamp": 1000, "input_length": 374, "output_length": 44, "hash_ids": [1]}\n{"timestamp": 2500, ` +
    `"input_length": 396, "output_length": 109, "hash_ids": [1]}\n`,
  vLLM:
    `{"input_toks": 374, "output_toks": 44, "arrival_time": 1787267980.5}\n\n{"input_toks": 396, "output_toks": ` +
    `109, "arrival_time": 1787267982}\n`,
  LLMServingSim:
    `{"input_toks": 374, "output_toks": 44, "arrival_time_ns": 500000000}\n{"input_toks": 396, "output_toks": 109, ` +
    '"arrival_time_ns": 2000000000}',
};

describe('a trace', () => {
  it.each(Object.keys(FORMATS))('of %s is read from its first arrival on', (name) => {
    const o = file(FORMATS[name]!);
    expect(summarise(o)).toMatchObject({
      format: name.replace(' 2024', ''),
      requests: 2,
      skipped: 0,
      promptTokens: 770,
      outputTokens: 153,
      longest: 505,
    });
    const all = read(o);
    expect(all.map(([, ...lengths]) => lengths)).toEqual([
      [374, 44],
      [396, 109],
    ]);
    expect(all[0]![0]).toBe(0);
    expect(all[1]![0]).toBeCloseTo(1.5, 6);
    expect(read(o, 3)[1]![0]).toBeCloseTo(0.5, 6);
    expect(read({ ...o, limit: 1 })).toHaveLength(1);
  });

  it('is served again and again where a rate is tried for long, with other prompts each time', () => {
    const o = file(
      `{"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [7]}\n` +
        `{"timestamp": 1000, "input_length": 512, "output_length": 4, "hash_ids": [7]}\n`,
    );
    const source = new TraceSource(o, 2, 3, 4);
    const draft = emptyDraft();
    const all: [number, number | undefined][] = [];
    while (source.next(draft)) all.push([draft.time, draft.hashes?.[0]]);
    expect(all.map(([time]) => time)).toEqual([0, 0.5, 2, 2.5, 4, 4.5]);
    expect(new Set(all.map(([, hash]) => hash)).size).toBe(3);
  });

  it('may be longer than a piece of reading, with characters of several bytes at its seams', () => {
    const lines = Array.from({ length: 40_000 }, (_, i) => `${i},${i + 1},2,ü€🙂`);
    const o = file(`arrived_at,num_prefill_tokens,num_decode_tokens,note\n${lines.join('\n')}\n`);
    const all = read(o);
    expect(all.length).toBe(40_000);
    expect(all.at(-1)).toEqual([39_999, 40_000, 2]);
    expect(observedLengths(o.path, 10).prompts).toEqual(Int32Array.from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
  });
});

describe('lengths drawn from a trace', () => {
  const lengths = Array.from({ length: 200 }, (_, i) => `${i},${10 + 3 * i},${5 + i}`);
  const written = (): string => file(`arrived_at,num_prefill_tokens,num_decode_tokens\n${lengths.join('\n')}\n`).path;

  it('have the trace’s means, or those that are asked for', () => {
    const path = written();
    const [as, scaled] = [{}, { promptTokens: 617, outputTokens: '52' }].map((means) =>
      readWorkload({ lengthsOf: path, ...means }, null, 4096, false),
    );
    expect([as!.meanPromptTokens, as!.meanOutputTokens]).toEqual([308.5, 104.5]);
    expect(scaled!.meanPromptTokens).toBeCloseTo(617, 0);
    expect(scaled!.meanOutputTokens).toBeCloseTo(52, 0);
    expect(scaled!.lengthsLabel).toContain('scaled to prompts of 617 and outputs of 52 tokens');
    expect(as!.lengthsLabel).not.toContain('scaled');
  });

  it('take no other distribution beside them', () => {
    expect(() => readWorkload({ lengthsOf: written(), outputTokens: 'uniform:1-9' }, null, 4096, false)).toThrow(
      /--output-tokens must be a number beside --lengths-of/,
    );
  });
});

const VIDUR = 'arrived_at,num_prefill_tokens,num_decode_tokens\n';
const BAD: readonly (readonly [what: string, content: string | Buffer, message: RegExp])[] = [
  ['is empty', '', /is empty/],
  ['has a header alone', VIDUR, /holds no requests/],
  ['lacks a column', 'arrived_at,num_prefill_tokens\n1,2\n', /line 1 lacks the column num_decode_tokens/],
  ['lacks a field', '{"timestamp": 1, "input_length": 2}\n', /line 1 lacks output_length/],
  ['has a column twice', 'arrived_at,arrived_at,num_prefill_tokens,num_decode_tokens\n', /column arrived_at twice/],
  ['is unsorted', `${VIDUR}2,3,4\n1,3,4\n`, /line 3 arrives before the line above/],
  [
    'has a negative length',
    `${VIDUR}1,3,4\n2,-3,4\n`,
    /line 3 num_prefill_tokens must be a whole number from 1 to 1073741824, not "-3"/,
  ],
  ['has no output', `${VIDUR}1,3,0\n`, /line 2 num_decode_tokens must be a whole number from .*, not "0"/],
  ['has a time that is none', `${VIDUR}soon,3,4\n`, /line 2 has no time in arrived_at, but "soon"/],
  ['has too few cells', `${VIDUR}1,3\n`, /line 2 has 2 cells, not 3/],
  ['is no JSON below', `${FORMATS['vLLM']}{\n`, /line 4 is not JSON/],
  [
    'has hash ids that are none',
    '{"timestamp": 1, "input_length": 2, "output_length": 1, "hash_ids": "x"}',
    /hash_ids/,
  ],
  ['is not UTF-8', Buffer.concat([Buffer.from(`${VIDUR}1,2,3\n2,3`), Buffer.from([0xff, 10])]), /line 3 is not UTF-8/],
  ['has an endless line', Buffer.alloc(3 * 2 ** 20, 'x'), /line 1 is longer than 1048576 bytes/],
  [
    'has an endless line below',
    Buffer.concat([Buffer.from(`${VIDUR}1,2,3\n`), Buffer.alloc(3 * 2 ** 20, '1')]),
    /line 3 is longer/,
  ],
];

describe('a bad trace', () => {
  it.each(BAD)('%s: line and reason', (_, content, message) => {
    const o = file(content);
    expect(() => summarise(o)).toThrow(message);
    expect(() => summarise(o)).toThrow(UserError);
  });

  it('does not exist, or is a folder', () => {
    expect(() => summarise({ path: join(files.path, 'none'), limit: 1, skipBad: false })).toThrow(/does not exist/);
    expect(() => summarise({ path: files.path, limit: 1, skipBad: false })).toThrow(/no regular file/);
  });

  it('is read without its wrong lines where that is asked', () => {
    const o = { ...file(`${VIDUR}1,3,4\nx,3,4\n2,5,0\n2,5,6\n`), skipBad: true };
    expect(summarise(o)).toMatchObject({ requests: 2, skipped: 2 });
    expect(read(o)).toEqual([
      [0, 3, 4],
      [1, 5, 6],
    ]);
    expect(() => summarise({ ...file(`${VIDUR}x,3,4\n`), skipBad: true })).toThrow(/all 1 lines are wrong/);
    // A line out of order is a request like others: without those of a second file there is half the load.
    expect(() => summarise({ ...file(`${VIDUR}1,3,4\n0.5,3,4\n`), skipBad: true })).toThrow(/before the line above/);
  });
});
