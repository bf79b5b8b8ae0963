/** `lla-sim run`: decodes with the bundled decoder, so that a codec and path can be tried. */
import { openCodecFile } from '../../decoder/index.js';
import { refuseCodec } from '../../decoder/decodable.js';
import { PREFILL_METHODS } from '../../decoder/gpu/prefill-methods.js';
import { EXIT, UserError, type ExitCode } from '../../errors.js';
import { PRESET_NAMES } from '../../geometry/presets.js';
import { GpuError, openDevice } from '../../gpu/index.js';
import { SERVER_SETTINGS } from '../../schema/serving.js';
import { SETTINGS } from '../../schema/settings.js';
import { OUTPUT, formatOption, option, toggle, type Args, type Command, ADAPTER } from '../command.js';
import { asJson, interruptible, print, say } from '../output.js';
import { generate } from './run-generate.js';
import { generateInFloat64 } from './run-reference.js';
import { loadModel, modelFingerprint, readRun, WEIGHTS } from './run-question.js';
import { runText } from './run-report.js';

const FORMATS = ['text', 'json'] as const;

export const command: Command = {
  options: {
    tokens: option('prompt as token numbers: 1,2,3', 'Prompt'),
    text: option('prompt as text; needs a tokenizer.json', 'Prompt'),
    tokenizer: option('tokenizer.json [the one of the checkpoint]', 'Prompt'),
    fill: option('begin with a fabricated cache of this many tokens, such as 4k, instead of a long prompt', 'Prompt'),
    prefill: option('method of prefill [accumulated; by-token after --fill]', 'Prompt', { choices: PREFILL_METHODS }),
    'prefill-chunk': option('prompt tokens in a chunk [2k]', 'Prompt'),
    model: option(
      'preset or config.json, both with fabricated weights, or a folder with config.json and safetensors; ' +
        'lla-tiny and lla-small are bundled [lla-tiny; ouro-1.4b where a size or a filled cache is asked for]',
      'Model',
      { proposals: PRESET_NAMES },
    ),
    layers: option('core layers of a model with fabricated weights, where the device cannot hold all [all]', 'Model'),
    loops: option(SETTINGS.loops.help, 'Model'),
    vocab: option(
      'vocabulary of a model with fabricated weights, where the device cannot bind its embedding [all]',
      'Model',
    ),
    weights: option('element type of the weights [f16]', 'Model', { choices: WEIGHTS }),
    'codec-weights': option('codec weights of this model, from lla-sim fit [fabricated]', 'Model'),
    codec: option('codec of the cache [full]', 'Cache', { choices: SETTINGS.codec.choices }),
    ratio: option('compression ratio of the codec [the first published]', 'Cache'),
    ranks: option('K/V ranks instead of a ratio, such as 96/160', 'Cache'),
    path: option('decode path [the first that the codec has, reconstruct where it has that]', 'Cache', {
      choices: SETTINGS.path.choices,
    }),
    window: option(SETTINGS.window.help, 'Cache'),
    constants: option(SETTINGS.constants.help, 'Cache'),
    shared: option(
      'when all loops read one set of rows, of final-loop and mean-loop [the first that the codec has]',
      'Cache',
      { choices: SETTINGS.shared.choices },
    ),
    eviction: option(SETTINGS.eviction.help, 'Cache'),
    'cache-type': option('element type of the cache [f16]', 'Cache', { choices: SETTINGS.cacheType.choices }),
    'group-size': option('scalars that share a scale in a quantised cache [64]', 'Cache'),
    ctx: option('tokens that a sequence may reach [prompt and max-tokens]', 'Cache'),
    vram: option('on a software adapter: memory that the decoder may take, by a limit on this process', 'Cache'),
    reference: toggle(
      'decode one sequence in float64 on the processor, without a GPU: slow, and the only way of some codecs',
      'Generation',
    ),
    batch: option('sequences decoded together, all with this prompt [1]', 'Generation'),
    'max-tokens': option('tokens to generate [32]', 'Generation'),
    temperature: option('0 is greedy [0]', 'Generation'),
    'top-p': option('draw from the fewest tokens whose probabilities sum to this [1]', 'Generation'),
    stop: option('token number that ends the text, with one sequence [none]', 'Generation'),
    'draft-tokens': option(
      'speculate: the first loops propose so many tokens, and one pass of all loops accepts or rejects them [none]',
      'Generation',
    ),
    'draft-loops': option(SERVER_SETTINGS.draftLoops.help, 'Generation'),
    seed: option('of sampling and of fabricated weights [0]', 'Generation'),
    ...ADAPTER,
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  shown: ['tokens', 'text', 'fill', 'model', 'codec', 'ratio', 'path', 'ctx', 'batch', 'max-tokens', 'format'],
  examples: [
    ['run --seed 7', 'the bundled model is asked for a pass code, and the answer is checked'],
    [
      'run --layers 2 --vocab 24576 --tokens 1,2,3 --codec lla --ratio 4 --path reconstruct',
      'fabricated weights: speed and bytes mean something, the text does not',
    ],
    ['run --reference --codec flashloop --constants group=16,tail=16', 'in float64, prompts that no kernels take in'],
    ['run --draft-tokens 4 --max-tokens 64', 'the first two loops propose tokens: with and without, side by side'],
    ['run --model ./Ouro-1.4B --text "The capital of France is"', 'a checkpoint with its tokenizer'],
    [
      'run --layers 1 --vocab 24576 --codec lla --ratio 21.33 --fill 32k --batch 4 --max-tokens 8',
      'decoding over a long, made-up cache',
    ],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const quiet = args.isSet('quiet');
  const codecFile = args.text('codec-weights');
  return closing(async (opened) => {
    const loaded = loadModel(args);
    if (loaded.checkpoint) opened(loaded.checkpoint.tensors);
    const question = readRun(args, loaded);
    const { codec } = question.candidate;
    const weights =
      codecFile === null ? undefined : opened(openCodecFile(codecFile, modelFingerprint(loaded, question.seed), codec));
    const report = await interruptible(async (signal) => {
      if (args.isSet('reference')) return generateInFloat64(loaded, question, weights, signal);
      refuseCodec(codec, 'gpu');
      const device = opened(await openDevice(args.adapter()));
      return generate(device, loaded, question, weights, quiet, signal);
    });
    if (format === 'text') for (const warning of report.warnings) say(quiet, `warning: ${warning}`);
    await print(format === 'json' ? asJson(report) : runText(report), args.output());
    return EXIT.ok;
  });
}

/**
 * Runs `work`, and closes what it opened, the last first.
 * @throws as `work`; a GPU's failure in words for the person at the terminal
 */
export async function closing<T>(work: (opened: <O extends { close(): void }>(one: O) => O) => Promise<T>): Promise<T> {
  const closers: (() => void)[] = [];
  try {
    return await work((one) => {
      closers.unshift(() => one.close());
      return one;
    });
  } catch (error) {
    throw explained(error);
  } finally {
    for (const close of closers) close();
  }
}

/** A GPU's failure in words for the person at the terminal; anything else as it is. */
function explained(error: unknown): unknown {
  if (!(error instanceof GpuError)) return error;
  switch (error.fault) {
    case 'out-of-memory':
      return new UserError(
        `the device has not enough memory: ${error.message}`,
        'take a smaller batch, a shorter context or a higher ratio',
        EXIT.noSolution,
      );
    case 'lost':
      return new UserError(error.message, 'run it again; lla-sim doctor shows what the driver offers', EXIT.noGpu);
    case 'unsupported':
      return new UserError(error.message, 'choose another codec, path or batch');
    case 'validation':
    case 'internal':
      return /hold NaN/.test(error.message)
        ? new UserError(error.message, 'try --weights f32, or download the checkpoint again')
        : error;
  }
}
