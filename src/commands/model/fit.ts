/** `lla-sim fit`: makes the weights of a codec from a model's own keys and values. */
import { codecTensors, INITIALISATIONS, writeCodecFile } from '../../decoder/index.js';
import { EXIT, UserError, type ExitCode } from '../../errors.js';
import { lensAgreement } from '../../fidelity/lens.js';
import { spectraPicture } from '../../fidelity/spectra-picture.js';
import { PAPER, spectraText, type SpectraReport, type Studied } from '../../fidelity/spectra-report.js';
import type { Teacher } from '../../fit/capture.js';
import { fitCodec } from '../../fit/run.js';
import { FitFolder } from '../../fit/store.js';
import { fitReport, fitText } from '../../fit/report.js';
import { spectraOf } from '../../fit/spectra.js';
import { openDevice } from '../../gpu/index.js';
import { SETTINGS } from '../../schema/settings.js';
import { displayPath } from '../../io/files.js';
import { sha256 } from '../../numbers/sha256.js';
import { parseBytes } from '../../numbers/units.js';
import { checkWritable } from '../../io/write.js';
import { formatOption, option, toggle, Args, type Command, type OptionTable } from '../command.js';
import { DISTIL_OPTIONS, distilCodec, heldOutOf, onPath, readDistil } from './fit-distil.js';
import { calibrationWindows, itemsOf, teacherOf, TEACHER_OPTIONS } from './fit-question.js';
import { asJson, interruptible, print, ProgressLine, say, writePicture } from '../output.js';
import { closing } from './run.js';
import { readCandidate } from './run-question.js';

const FORMATS = ['text', 'json'] as const;
const KINDS = ['lla', 'lla-2d', 'mla-head', 'hla'] as const;
const DEFAULT_MEMORY = '2GB';

const CODEC_OPTIONS: OptionTable = {
  codec: option('codec to fit [lla]', 'Codec', { choices: KINDS }),
  ratio: option('compression ratio [4]', 'Codec'),
  ranks: option(SETTINGS.ranks.help, 'Codec'),
  init: option('directions that the latent keeps: those of most variance, or a control [svd]', 'Codec', {
    choices: INITIALISATIONS,
  }),
};

export const command: Command = {
  options: {
    ...TEACHER_OPTIONS,
    ...CODEC_OPTIONS,
    ...DISTIL_OPTIONS,
    memory: option(`memory for covariances and the work on them [${DEFAULT_MEMORY}]`, 'Codec'),
    spectra: toggle('fit nothing: show how redundant keys and values are along loops, heads and layers', 'Spectra'),
    picture: option('PNG file of the spectra', 'Spectra'),
    output: option('file of the codec weights', 'Output', { short: 'o' }),
    ...formatOption(FORMATS),
  },
  shown: [
    'model',
    'text',
    'tokens',
    'max-tokens',
    'codec',
    'ratio',
    'distil',
    'on-policy',
    'output',
    'format',
    'quiet',
  ],
  examples: [
    ['fit --ratio 4 -o lla4.safetensors', 'codec weights of the bundled model'],
    ['fit --ratio 8 --distil -o lla8.safetensors', 'the same at 8×, trained after the fit'],
    ['fit --ratio 8 --distil --on-policy -o lla8.safetensors', 'and then on what it writes itself'],
    ['fit --spectra', "how redundant the bundled model's cache is, beside its untrained twin"],
    ['fit --model ./Ouro-1.4B --text book.txt --ratio 4 -o ouro-lla4.safetensors', 'of your model, on your text'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const quiet = args.isSet('quiet');
  if (args.isSet('spectra')) return spectra(args, format);
  const output = args.text('output');
  if (output === null) throw new UserError('there is no file to write to', 'add -o lla4.safetensors');
  const memoryBytes = parseBytes(args.text('memory') ?? DEFAULT_MEMORY, '--memory');
  const seed = args.seed();
  return closing(async (opened) => {
    const loaded = opened(teacherOf(args));
    const { geometry } = loaded;
    const asked = new Args({
      ...args.flags,
      codec: args.text('codec') ?? 'lla',
      ratio: args.text('ratio') ?? (args.text('ranks') === null ? '4' : undefined),
      // Here it is of the text; a candidate's is of exact tokens beside latents.
      window: undefined,
    });
    const { configuration } = readCandidate(asked, geometry, 1);
    const { codec, path, branch } = configuration;
    const training = readDistil(args, geometry, codec, path);
    const windows = calibrationWindows(args, loaded);
    const { texts, heldOut } = training ? heldOutOf(windows) : { texts: windows, heldOut: [] };
    checkWritable(output, '--output', true);
    const initialisation = args.choice('init', INITIALISATIONS);
    const fingerprint = loaded.fingerprint(seed);
    const device = opened(await openDevice());
    const teacher = loaded.teacher(device, seed);
    const line = new ProgressLine(quiet);
    const request = { codec, initialisation, seed };
    const question = sha256(JSON.stringify([fingerprint, teacher.weights.storage, request, memoryBytes, texts]));
    // What is fitted: the rotary branch of a path comes later.
    const tensors = codecTensors(geometry, codec, 'reconstruct', branch);
    const folder = opened(new FitFolder(`${output}.capture`, question, tensors));
    const onProgress = paceOn(line);
    const fitted = await interruptible((signal) =>
      fitCodec(teacher, texts, request, { memoryBytes, folder, signal, onProgress }),
    );
    const start = onPath(teacher, path, branch, fitted.fitted.tensors);
    const began = Date.now();
    const distilRun = { teacher, codec, path, branch, start, texts, heldOut, seed };
    const distilled =
      training &&
      (await interruptible((signal) => distilCodec(distilRun, training, fingerprint, `${output}.state`, signal, line)));
    line.clear();
    writeCodecFile(output, codecTensors(geometry, codec, path, branch), distilled?.tensors ?? start, {
      codec: codec.kind,
      rankK: codec.rankK as number,
      rankV: codec.rankV as number,
      ...(codec.rankFirst === undefined ? {} : { rankFirst: codec.rankFirst }),
      model: fingerprint,
      initialisation,
      tokens: fitted.tokens,
      ...(distilled && {
        distilled: {
          steps: distilled.bestStep,
          path,
          klBefore: distilled.before.estimate,
          klAfter: distilled.after.estimate,
        },
      }),
    });
    if (training && distilled && distilled.steps < training.steps)
      throw new UserError(
        `interrupted after step ${distilled.steps} of ${training.steps}; ${displayPath(output)} holds the best ` +
          'weights so far',
        'run it again: it goes on from there',
        EXIT.interrupted,
      );
    folder.remove();
    const report = fitReport(
      geometry,
      fingerprint,
      initialisation,
      fitted,
      distilled &&
        training && {
          path,
          lambdaAttn: training.lambdaAttn,
          windowTokens: training.windowTokens,
          steps: distilled.steps,
          bestStep: distilled.bestStep,
          texts: heldOut.length,
          before: distilled.before,
          after: distilled.after,
          drawn: distilled.drawn,
          seconds: (Date.now() - began) / 1e3,
        },
    );
    await print(format === 'json' ? asJson(report) : fitText(geometry, report), { file: null, quiet });
    say(quiet, `written to ${displayPath(output)}`);
    return EXIT.ok;
  });
}

/** Shows the share that is done. What an earlier run has done says nothing about the pace of this one. */
function paceOn(line: ProgressLine): (done: number, doing: string) => void {
  let began: { readonly at: number; readonly done: number } | undefined;
  return (done, doing) => {
    began ??= { at: Date.now(), done };
    const elapsed = (Date.now() - began.at) / 1e3;
    const left = done > began.done ? (elapsed * (1 - done)) / (done - began.done) : 0;
    line.time(elapsed, left, doing);
  };
}

/** Windows that spectra are taken over, and the items that the logit lens reads. */
const SPECTRA_WINDOWS = 16;

async function spectra(args: Args, format: 'text' | 'json'): Promise<ExitCode> {
  const seed = args.seed();
  const picture = args.text('picture');
  if (picture !== null) checkWritable(picture, '--picture');
  const memoryBytes = parseBytes(args.text('memory') ?? DEFAULT_MEMORY, '--memory');
  return closing(async (opened) => {
    const loaded = opened(teacherOf(args));
    const windows = calibrationWindows(args, loaded).slice(0, SPECTRA_WINDOWS);
    const texts = itemsOf(args, loaded, seed).filter(({ kind }) => kind === 'text');
    const fingerprint = loaded.fingerprint(seed);
    const device = opened(await openDevice());
    const study = async (teacher: Teacher): Promise<Studied> => ({
      ...(await spectraOf(teacher, windows, memoryBytes)),
      lensAgreement: await lensAgreement(teacher, texts),
    });
    const report: SpectraReport = {
      schema: 'lla-sim/spectra',
      schemaVersion: 1,
      model: { name: loaded.geometry.name, fingerprint },
      trained: await study(loaded.teacher(device, seed)),
      untrained: await study(loaded.twin(device)),
      paper: PAPER,
    };
    if (picture !== null) await writePicture(picture, spectraPicture(report));
    await print(format === 'json' ? asJson(report) : spectraText(report), args.output());
    return EXIT.ok;
  });
}
