/** What \`lla-sim simulate\` refuses, and what it says then. */
import { afterAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../src/errors.js';
import { BASE, H200, report, simulate } from './simulated.js';
import { expectRefused, scratch, words } from '../cli/program.js';

const files = scratch();
const { file } = files;
afterAll(() => files.remove());

describe('refusals', () => {
  it.each([
    ['--arrivals closed --rate 3', '--rate says nothing of users'],
    ['--arrivals closed --find-rate', '--find-rate asks for a rate'],
    ['--max-concurrency 4 --find-rate', '--find-rate asks for a rate, and a client of --max-concurrency'],
    ['--arrivals closed --max-concurrency 4', '--max-concurrency says nothing of users'],
    ['--prompt-tokens normal:3', '--prompt-tokens must be tokens, uniform'],
    ['--prompt-tokens uniform:9-3', '--prompt-tokens must be tokens, uniform'],
    ['--max-num-batched-tokens 8 --max-num-seqs 16', '--max-num-batched-tokens must be at least --max-num-seqs'],
    ['--batch-wait-timeout-iters 20', '--batch-wait-max-tokens-ratio work together'],
    ['--prompt-tokens 120000 --max-model-len 32768', 'prompts of 120000 tokens exceed --max-model-len 32768'],
    ['--prompt-tokens 120000', 'prompts of 120000 tokens exceed the 65536 tokens that the model has positions for'],
    ['--users 64 --rate 3', '--users means nothing for these requests; add --arrivals closed'],
    ['--burstiness 2', '--burstiness means nothing for these requests'],
    ['--rate 0', '--rate must be a number from'],
    ['--speed-up 2', '--speed-up is for traces'],
    ['--percentile 100', '--percentile must be a number from'],
    ['--trace none.csv', 'does not exist'],
    ['a.yaml b', 'is one word too many'],
    ['--draft-loops 2', '--draft-loops is for speculation'],
    ['--draft-acceptance 0.5', '--draft-acceptance is for speculation'],
    ['--draft-tokens 0', '--draft-tokens must be a whole number from 1 to 64'],
    ['--draft-tokens 2 --draft-loops 4', '--draft-loops must be a whole number from 1 to 3'],
    ['--draft-tokens 2 --draft-loops 1', 'nobody published how often 1 of 4 loops'],
    ['--draft-tokens 2 --draft-acceptance 1.1', '--draft-acceptance must be a number from 0 to 1'],
    ['--draft-tokens 2 --depth 0,0,0,1', '--draft-tokens does not go with --depth'],
    ['--draft-tokens 2 --stack vllm-rlt --attention flash-attn-4 --async-scheduling on', 'Triton'],
    [
      '--depth ouro-1.4b@0.9 --skipped-kv copy',
      'no exit depths are published under the name "ouro-1.4b@0.9"; write one of ouro-1.4b@0.5',
    ],
    ['--model ouro-2.6b --depth ouro-1.4b@0.5 --skipped-kv copy', 'is of another model; write a share for each loop'],
    ['--loops 3 --depth ouro-1.4b@0.5 --skipped-kv copy', 'ouro-1.4b@0.5 is of'],
    ['b.yaml', 'users 40 says nothing of requests that come by themselves; add arrivals: closed'],
  ])('%s', async (line, message) => {
    const own = line === 'b.yaml' ? [file('b.yaml', 'device: h200\nusers: 40\nworkload: {rate: 3}\n')] : null;
    expectRefused(await simulate(...(own ?? [...(line.startsWith('a.yaml') ? [] : H200), ...words(line)])), message);
  });

  it('no server that runs one sequence at a time', async () => {
    expect((await simulate(...H200, '--max-num-seqs', '1', '--requests', '5')).code).toBe(0);
  });

  it('sums over loops that were left out', async () => {
    const depth = ['--depth', '0.1,0.2,0.3,0.4', '--requests', '20'];
    const hla = ['--device', 'h200', '--codec', 'hla', ...depth];
    for (const kv of ['copy', 'share']) {
      expectRefused(await simulate(...hla, '--skipped-kv', kv), 'a loop that was left out has no input to add');
    }
    expect((await simulate(...hla, '--skipped-kv', 'recompute')).code).toBe(0);
  });

  it('passes of single loops, where later ones run and read less', async () => {
    const flashloop = ['--device', 'h200', '--codec', 'flashloop', '--requests', '20'];
    const exits = ['--depth', '0.1,0.2,0.3,0.4'];
    for (const asked of [
      exits,
      [...exits, '--depth-batching', 'loops', '--skipped-kv', 'copy'],
      [...exits, '--skipped-kv', 'share'],
      ['--draft-tokens', '2'],
    ]) {
      expectRefused(
        await simulate(...flashloop, ...asked),
        'runs and reads less in its later loops, and a pass of one loop is priced as the mean',
      );
    }
    expect((await simulate(...flashloop)).code).toBe(0);
  });

  it('prompts position by position, which no iteration of a server takes', async () => {
    expectRefused(
      await simulate('--device', 'h200', '--codec', 'final-loop', '--shared', 'all'),
      'final-loop-all/full takes prompts position by position',
    );
  });

  it('a cache that does not fit is no solution, and a field that nobody knows is named', async () => {
    const o = await simulate(...H200, '--reserve', '138GB');
    expect(o.code).toBe(3);
    const wrong = await simulate(file('w.yaml', 'device: h200\nworkload: { rates: 3 }\n'));
    expectRefused(wrong, 'unknown field "workload.rates"; did you mean rate?');
  });

  it('say what helps: quality that is lost, a model that is too large, too few blocks', async () => {
    const said = async (...argv: string[]): Promise<string> => {
      const o = await simulate(...argv);
      expect(o.code).toBe(EXIT.noSolution);
      return o.err.replaceAll(/\s+/g, ' ');
    };
    const lost = ['--device', 'h200', '--codec', 'lla', '--ratio', '21.33', '--find-rate'];
    expect(await said(...lost)).toMatch(/no candidate keeps quality: lla-21\.33x keeps 0 %; --keep 0 searches it/);
    const large = ['--device', 'rtx-5080', '--model', 'iquest-coder-v1-40b-loop'];
    expect(await said(...large)).toMatch(/no candidate fits; what fits: --gpus 8/);
    expect(await said(...BASE, '--kv-blocks', '10')).toMatch(/every request is refused.*raise --kv-blocks/);
    expect(await said(...H200, '--requests', '50', '--max-model-len', '100')).toMatch(
      /longer than --max-model-len 100; raise it/,
    );
  });

  it('notes say where more is asked for than the GPU or the model has', async () => {
    const notes = async (line: string): Promise<string> =>
      (await report(...H200, '--codec', 'full', '--requests', '20', ...words(line))).notes.join('; ');
    expect(await notes('--max-model-len 4M')).toMatch(
      /exceeds the 65536 positions .* quality does not; servers do not start .*: the cache of full\/full holds 169424/,
    );
    expect(await notes('--kv-blocks 100000')).toMatch(/100000 are more than the 10589 of full\/full that fit/);
    expect(await notes('--kv-blocks 10000 --max-model-len 64k')).not.toMatch(/that fit|do not start|positions/);
  });

  it('a search names more tokens an iteration only where they help', async () => {
    const search = [...H200, ...words('--find-rate --requests 60 --percentile 90 --output-tokens 4')];
    const reason = async (line: string) => (await report(...search, ...words(line))).candidates![0]!.refused;
    const few = '--max-num-seqs 64 --max-num-batched-tokens 256';
    expect(await reason(`--prompt-tokens 60000 ${few} --ttft 2s`)).toMatch(
      /too, even with --max-num-batched-tokens 65536$/,
    );
    expect(await reason(`--prompt-tokens 2000 ${few} --ttft 80ms`)).toMatch(
      /takes 8 iterations of 256; take --max-num-batched-tokens 2048$/,
    );
    expect(await reason('--prompt-tokens 2000 --max-num-batched-tokens 2048 --ttft 80ms')).toBeNull();
  });

  it('a search says which named codecs it leaves out, and that it serves more requests than asked for', async () => {
    const both = ['--device', 'h200', '--codec', 'full,lla', '--ratio', '21.33', '--percentile', '90'];
    const { notes } = await report(...both, '--requests', '60', '--find-rate');
    expect(notes).toContainEqual(expect.stringMatching(/^not searched.*: lla-21\.33x keeps 0 %; --keep 0/));
    expect(notes).toContainEqual(expect.stringMatching(/^--requests 60 are too few to be sure of a rate/));
  });
});
