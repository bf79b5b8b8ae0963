/**
 * `lla-sim fidelity`: what each way of compressing the cache costs on a model, measured on the decoder that saves it.
 */
import { CODEC_KINDS, type Codec, type CodecKind } from '../../codecs/codec.js';
import { codecSpec, isLatent } from '../../codecs/registry.js';
import { parameterCount, type Geometry } from '../../geometry/geometry.js';
import { SETTINGS } from '../../schema/settings.js';
import { codecFacts, codecOf, openCodecFile, SafetensorsFile, type TensorSource } from '../../decoder/index.js';
import { EXIT, UserError, type ExitCode } from '../../errors.js';
import { displayPath } from '../../io/files.js';
import { measureAcceptance } from '../../fidelity/acceptance.js';
import { defaultGrid, fullGrid, gridOf, REFERENCE_PARAMETERS, rowId, type Row } from '../../fidelity/grid.js';
import { openJudge, type Judged } from '../../fidelity/judge.js';
import { fidelityText, type FidelityReport } from '../../fidelity/report.js';
import type { Teacher } from '../../fit/capture.js';
import { openDevice } from '../../gpu/index.js';
import { fidelityFrom } from '../../plan/ask/read-fidelity.js';
import type { FidelityFile } from '../../schema/fidelity.js';
import { checkWritable, writeWhole } from '../../io/write.js';
import { formatOption, option, toggle, Args, type Command } from '../command.js';
import { earlier, fitted, inputsOf, interrupted, jsonOf, weightsKey, type Head } from './fidelity-rows.js';
import { calibrationWindows, itemsOf, teacherOf, TEACHER_OPTIONS, type LoadedTeacher } from './fit-question.js';
import { asJson, interruptible, print, ProgressLine, say, writePicture } from '../output.js';
import { closing } from './run.js';
import { readCandidate, WEIGHTS } from './run-question.js';

const FORMATS = ['text', 'json'] as const;

export const command: Command = {
  options: {
    ...TEACHER_OPTIONS,
    text: option('text file: the model is judged on its last quarter, and what is fitted, on the rest', 'Text'),
    tokens: option('file of token numbers, in place of a text', 'Text'),
    'codec-weights': option('judge these codec weights on all paths [fit a grid of codecs]', 'Codec'),
    constants: option(`judge these ${SETTINGS.constants.help}`, 'Codec'),
    full: toggle('every codec, ratio, path, storage and eviction', 'Codec'),
    claims: toggle("try the paper's claims on this model and on its untrained twin", 'Codec'),
    only: option(
      'judge configurations whose name contains this; several: lla-4x|mla-head-4x; speculation: acceptance by the ' +
        'first loops',
      'Codec',
    ),
    picture: option('PNG files of KL by ratio, retrieval and rollouts: NAME-….png', 'Output'),
    output: option('JSON file, saved after every configuration; one that exists is continued', 'Output', {
      short: 'o',
    }),
    ...formatOption(FORMATS),
  },
  shown: ['model', 'text', 'tokens', 'codec-weights', 'full', 'claims', 'only', 'seed', 'output', 'format', 'quiet'],
  examples: [
    ['fidelity', 'the bundled model: at most 40 configurations'],
    ['fidelity --claims -o claims.json', "which of the paper's claims hold on the bundled model"],
    ['fidelity --codec-weights lla4.safetensors', 'a codec that fit made'],
    ['fidelity --model ./Ouro-1.4B --text book.txt -o ouro.fidelity.json', 'your model, on your text'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const quiet = args.isSet('quiet');
  const output = args.text('output');
  const seed = args.seed();
  return closing(async (opened) => {
    const loaded = opened(teacherOf(args));
    const fingerprint = loaded.fingerprint(seed);
    const given = codecFile(args, fingerprint);
    const file = given && opened(given);
    const rows = gridFor(args, loaded, file);
    if (output !== null) checkWritable(output, '--output', true);
    const inputs = inputsOf(args, loaded, seed, file);
    const weights = args.choice('weights', WEIGHTS);
    if (!args.isSet('claims')) earlier(output, { model: { fingerprint }, weights, inputs });
    const device = opened(await openDevice());
    const head: Head = {
      schema: 'lla-sim/fidelity',
      schemaVersion: 1,
      model: { name: loaded.geometry.name, fingerprint, trained: loaded.trained },
      device: device.description.description,
      weights,
      fittedTokens: file ? 0 : calibrationWindows(args, loaded).flat().length,
      seed,
      inputs,
    };
    if (args.isSet('claims')) {
      const { claims } = await import('./fidelity-claims.js');
      await claims(args, loaded, device, head, format, quiet);
      return EXIT.ok;
    }
    const report = await judgeAll(args, loaded, loaded.teacher(device, seed), rows, file, head, output);
    await print(format === 'json' ? asJson(report) : fidelityText(report, loaded.geometry.loops), {
      file: null,
      quiet,
    });
    if (output !== null) say(quiet, `written to ${displayPath(output)}`);
    const picture = args.text('picture');
    if (picture !== null) await writePictures(report, picture, quiet);
    return EXIT.ok;
  });
}

/** One PNG a picture, named after the file that is given: `x.png` becomes `x-kl-against-ratio.png` and so on. */
async function writePictures(report: FidelityReport, path: string, quiet: boolean): Promise<void> {
  const { fidelityPictures } = await import('../../report/pictures/index.js');
  const measured = fidelityFrom(report as unknown as FidelityFile, report.model.name);
  for (const picture of fidelityPictures(measured)) {
    const file = `${path.replace(/\.png$/i, '')}-${picture.id}.png`;
    await writePicture(file, picture);
    say(quiet, `written to ${displayPath(file)}`);
  }
}

/** The codec weights that are given, checked against the model. */
function codecFile(args: Args, fingerprint: string): SafetensorsFile | undefined {
  const path = args.text('codec-weights');
  if (path === null) return undefined;
  const open = new SafetensorsFile(path);
  try {
    return openCodecFile(path, fingerprint, codecOf(codecFacts(open)));
  } finally {
    open.close();
  }
}

/** What is measured beside configurations, as --only names it. */
const SPECULATION = 'speculation';

const isAsked = (args: Args, name: string): boolean => {
  const only = args.text('only');
  return !only || only.split('|').some((part) => name.includes(part));
};

function gridFor(args: Args, { geometry }: LoadedTeacher, file: SafetensorsFile | undefined): Row[] {
  if (file && args.isSet('full'))
    throw new UserError('--full fits every codec, and --codec-weights gives one', 'leave one of them out');
  const facts = file && codecFacts(file);
  const constants = args.text('constants');
  if (constants !== null && (facts || args.isSet('full')))
    throw new UserError('--constants judges one codec, and --codec-weights or --full others', 'leave one of them out');
  const all =
    constants !== null
      ? gridOf(withNumbers(constants, geometry))
      : facts
        ? gridOf(codecOf(facts)).map((row) =>
            isLatent(row.codec) ? { ...row, initialisation: facts.initialisation } : row,
          )
        : args.isSet('full')
          ? fullGrid(geometry)
          : defaultGrid(geometry);
  const only = args.text('only');
  const rows = all.filter((row) => isAsked(args, rowId(geometry, row)));
  if (rows.length === 0 && !isAsked(args, SPECULATION))
    throw new UserError(
      `no configuration has ${JSON.stringify(only)} in its name`,
      `they are named as ${rowId(geometry, all[0] as Row)}`,
    );
  return rows;
}

/** The codec that has numbers, with these. @throws UserError for numbers that it cannot have, and for large models */
function withNumbers(constants: string, geometry: Geometry): Codec {
  if (parameterCount(geometry) > REFERENCE_PARAMETERS)
    throw new UserError(
      `--constants judges in float64, which takes models of up to ${REFERENCE_PARAMETERS / 1e6} million parameters`,
      'leave it out, or judge a bundled model',
    );
  const codec = CODEC_KINDS.find((kind) => codecSpec({ kind }).settings.includes('constants')) as CodecKind;
  return readCandidate(new Args({ codec, constants }), geometry, geometry.maxPositions).candidate.codec;
}

async function judgeAll(
  args: Args,
  loaded: LoadedTeacher,
  teacher: Teacher,
  rows: readonly Row[],
  file: TensorSource | undefined,
  head: Head,
  output: string | null,
): Promise<FidelityReport> {
  const { geometry } = loaded;
  const known = earlier(output, head);
  const done = new Map(known.rows.map((row) => [row.id, row]));
  let { acceptance } = known;
  const save = (): void => {
    if (output !== null) writeWhole(output, jsonOf(head, [...done.values()], acceptance), '--output');
  };
  const line = new ProgressLine(args.isSet('quiet'));
  const began = Date.now();
  await interruptible(async (signal) => {
    const missing = rows.filter((row) => !done.has(rowId(geometry, row)));
    const speculates = acceptance === null && isAsked(args, SPECULATION);
    const goOn = (i: number): void => {
      if (signal.aborted) throw interrupted(i, missing.length, 'configurations', output);
    };
    if (speculates) {
      acceptance = await measureAcceptance(teacher, itemsOf(args, loaded, head.seed), (draftLoops) => {
        goOn(0);
        line.time((Date.now() - began) / 1e3, 0, `speculation, ${draftLoops} loops`);
      });
      save();
    }
    if (missing.length === 0) return;
    const weights = file
      ? new Map(missing.map((row) => [weightsKey(row), file]))
      : await fitted(args, loaded, teacher, missing);
    const judge = await openJudge(teacher, itemsOf(args, loaded, head.seed));
    for (const [i, row] of missing.entries()) {
      goOn(i);
      const id = rowId(geometry, row);
      const elapsed = (Date.now() - began) / 1e3;
      line.time(elapsed, i === 0 ? 0 : (elapsed / i) * (missing.length - i), id);
      done.set(id, await judge(row, isLatent(row.codec) ? weights.get(weightsKey(row)) : undefined));
      save();
    }
    line.clear();
  });
  return { ...head, rows: rows.map((row) => done.get(rowId(geometry, row)) as Judged), acceptance };
}
