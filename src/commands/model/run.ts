/** `lla-sim run`: decodes with the bundled decoder, so that a codec and path can be tried. */
import { openCodecFile, type SafetensorsFile } from '../../decoder/index.js';
import { refuseCodec } from '../../decoder/decodable.js';
import { PREFILL_METHODS } from '../../decoder/gpu/prefill-methods.js';
import { EXIT, UserError, type ExitCode } from '../../errors.js';
import { PRESET_NAMES } from '../../geometry/presets.js';
import { GpuError, openDevice, type Device } from '../../gpu/index.js';
import { SERVER_SETTINGS } from '../../schema/serving.js';
import { SETTINGS } from '../../schema/settings.js';
import { choiceFlag, formatOption, OUTPUT, textFlag, type Args, type Command } from '../command.js';
import { asJson, print } from '../output.js';
import { interruptible } from '../interrupt.js';
import { generate } from './run-generate.js';
import { generateInFloat64 } from './run-reference.js';
import { loadModel, modelFingerprint, readRun, WEIGHTS } from './run-question.js';
import { runText } from './run-report.js';

const FORMATS = ['text', 'json'] as const;

export const runCommand: Command = {
  options: {
    tokens: { type: 'string', help: 'prompt as token numbers: 1,2,3', group: 'Prompt' },
    text: { type: 'string', help: 'prompt as text; needs a tokenizer.json', group: 'Prompt' },
    tokenizer: { type: 'string', help: 'tokenizer.json [the one of the checkpoint]', group: 'Prompt' },
    fill: {
      type: 'string',
      help: 'begin with a fabricated cache of this many tokens, such as 4k, instead of a long prompt',
      group: 'Prompt',
    },
    prefill: {
      type: 'string',
      help: 'method of prefill [accumulated; by-token after --fill]',
      choices: PREFILL_METHODS,
      group: 'Prompt',
    },
    'prefill-chunk': { type: 'string', help: 'prompt tokens in a chunk [2k]', group: 'Prompt' },
    model: {
      type: 'string',
      help: 'preset or config.json, both with fabricated weights, or a folder with config.json and safetensors; lla-tiny and lla-small are bundled [lla-tiny; ouro-1.4b where a size or a filled cache is asked for]',
      proposals: PRESET_NAMES,
      group: 'Model',
    },
    layers: {
      type: 'string',
      help: 'core layers of a model with fabricated weights, where the device cannot hold all [all]',
      group: 'Model',
    },
    loops: { type: 'string', help: SETTINGS.loops.help, group: 'Model' },
    vocab: {
      type: 'string',
      help: 'vocabulary of a model with fabricated weights, where the device cannot bind its embedding [all]',
      group: 'Model',
    },
    weights: { type: 'string', help: 'element type of the weights [f16]', choices: WEIGHTS, group: 'Model' },
    'codec-weights': {
      type: 'string',
      help: 'codec weights of this model, from lla-sim fit [fabricated]',
      group: 'Model',
    },
    codec: { type: 'string', help: 'codec of the cache [full]', choices: SETTINGS.codec.choices, group: 'Cache' },
    ratio: { type: 'string', help: 'compression ratio of the codec [the first published]', group: 'Cache' },
    ranks: { type: 'string', help: 'K/V ranks instead of a ratio, such as 96/160', group: 'Cache' },
    path: {
      type: 'string',
      help: 'decode path [the first that the codec has, reconstruct where it has that]',
      choices: SETTINGS.path.choices,
      group: 'Cache',
    },
    window: { type: 'string', help: SETTINGS.window.help, group: 'Cache' },
    constants: { type: 'string', help: SETTINGS.constants.help, group: 'Cache' },
    shared: {
      type: 'string',
      help: 'when all loops read one set of rows, of final-loop and mean-loop [the first that the codec has]',
      choices: SETTINGS.shared.choices,
      group: 'Cache',
    },
    eviction: { type: 'string', help: SETTINGS.eviction.help, group: 'Cache' },
    'cache-type': {
      type: 'string',
      help: 'element type of the cache [f16]',
      choices: SETTINGS.cacheType.choices,
      group: 'Cache',
    },
    'group-size': { type: 'string', help: 'scalars that share a scale in a quantised cache [64]', group: 'Cache' },
    ctx: { type: 'string', help: 'tokens that a sequence may reach [prompt and max-tokens]', group: 'Cache' },
    vram: {
      type: 'string',
      help: 'on a software adapter: memory that the decoder may take, by a limit on this process',
      group: 'Cache',
    },
    reference: {
      type: 'boolean',
      help: 'decode one sequence in float64 on the processor, without a GPU: slow, and the only way of some codecs',
      group: 'Generation',
    },
    batch: { type: 'string', help: 'sequences decoded together, all with this prompt [1]', group: 'Generation' },
    'max-tokens': { type: 'string', help: 'tokens to generate [32]', group: 'Generation' },
    temperature: { type: 'string', help: '0 is greedy [0]', group: 'Generation' },
    'top-p': {
      type: 'string',
      help: 'draw from the fewest tokens whose probabilities sum to this [1]',
      group: 'Generation',
    },
    stop: { type: 'string', help: 'token number that ends the text, with one sequence [none]', group: 'Generation' },
    'draft-tokens': {
      type: 'string',
      help: 'speculate: the first loops propose so many tokens, and one pass of all loops accepts or rejects them [none]',
      group: 'Generation',
    },
    'draft-loops': { type: 'string', help: SERVER_SETTINGS.draftLoops.help, group: 'Generation' },
    seed: { type: 'string', help: 'of sampling and of fabricated weights [0]', group: 'Generation' },
    adapter: { type: 'string', help: 'part of the name of the adapter, where there are several' },
    backend: { type: 'string', help: "Dawn backend: vulkan, metal, d3d12 [the platform's own]" },
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
    ['run --reference --codec flashloop --constants group=16,tail=16', 'in float64, a codec that has no kernels'],
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
  const format = choiceFlag(args, 'format', FORMATS);
  const quiet = args.flags['quiet'] === true;
  const loaded = loadModel(args);
  const codecFile = textFlag(args, 'codec-weights');
  let codec: SafetensorsFile | undefined;
  const [adapter, backend] = [textFlag(args, 'adapter'), textFlag(args, 'backend')];
  let device: Device | undefined;
  try {
    const question = readRun(args, loaded);
    codec =
      codecFile === null
        ? undefined
        : openCodecFile(codecFile, modelFingerprint(loaded, question.seed), question.candidate.codec);
    const weights = codec;
    const report = await interruptible(async (signal) => {
      if (args.flags['reference'] === true) return generateInFloat64(loaded, question, weights, signal);
      refuseCodec(question.candidate.codec, 'gpu');
      device = await openDevice({ ...(adapter === null ? {} : { adapter }), ...(backend === null ? {} : { backend }) });
      return generate(device, loaded, question, codec, quiet, signal);
    });
    if (!quiet && format === 'text')
      for (const warning of report.warnings) process.stderr.write(`warning: ${warning}\n`);
    await print(format === 'json' ? asJson(report) : runText(report), {
      file: textFlag(args, 'output'),
      quiet,
    });
    return EXIT.ok;
  } catch (error) {
    throw explained(error);
  } finally {
    device?.close();
    codec?.close();
    loaded.checkpoint?.tensors.close();
  }
}

/** A GPU's failure in words for the person at the terminal; anything else as it is. */
export function explained(error: unknown): unknown {
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
