/** `lla-sim fidelity`: what each way of compressing the cache costs on a model, measured on the decoder that saves it. */
import { pathOf } from '../codecs/paths.js';
import { isLatent } from '../codecs/registry.js';
import { codecFacts, openCodecFile, SafetensorsFile, type TensorSource } from '../decoder/index.js';
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { existsSync } from 'node:fs';
import { displayPath } from '../files.js';
import { jsonText } from '../json.js';
import { defaultGrid, fullGrid, gridOf, rowId, type Row } from '../fidelity/grid.js';
import { claimsGrid, DISTIL_USES, distilledRow, tryClaims, type DistilUse, type Evidence } from '../fidelity/claims.js';
import type { Item } from '../fidelity/items.js';
import { fingerprintOfTensors, Judge, type Judged } from '../fidelity/judge.js';
import { claimsText } from '../fidelity/claims-text.js';
import { fidelityText, type FidelityReport } from '../fidelity/report.js';
import { refuseDistil } from '../fit/distillable.js';
import { fitCodecs } from '../fit/run.js';
import type { Teacher } from '../fit/capture.js';
import { spectraOf } from '../fit/spectra.js';
import { openDevice, type Device } from '../gpu/index.js';
import { fidelityFrom } from '../plan/read-fidelity.js';
import { readFidelity, type FidelityFile } from '../schema/fidelity.js';
import { sha256 } from '../sha256.js';
import { parseNumber } from '../units.js';
import { checkWritable, writeWhole } from '../write.js';
import { choiceFlag, formatOption, textFlag, type Args, type Command } from './command.js';
import { distilForClaims } from './fit-distil.js';
import {
  calibrationWindows,
  itemsOf,
  longRolloutsOf,
  teacherOf,
  TEACHER_OPTIONS,
  type LoadedTeacher,
} from './fit-question.js';
import { interruptible } from './interrupt.js';
import { print } from './output.js';
import { progressLine } from './progress.js';
import { explained } from './run.js';
import { WEIGHTS } from './run-question.js';

const FORMATS = ['text', 'json'] as const;
const FIT_MEMORY_BYTES = 4e9;

export const fidelityCommand: Command = {
  options: {
    ...TEACHER_OPTIONS,
    'codec-weights': {
      type: 'string',
      help: 'judge these codec weights on all paths [fit a grid of codecs]',
      group: 'Codec',
    },
    full: { type: 'boolean', help: 'every codec, ratio, path, storage and eviction', group: 'Codec' },
    claims: {
      type: 'boolean',
      help: "try the paper's claims on this model and on its untrained twin",
      group: 'Codec',
    },
    only: { type: 'string', help: 'judge configurations whose name contains this', group: 'Codec' },
    picture: {
      type: 'string',
      help: 'PNG files of KL by ratio, retrieval and rollouts: NAME-….png',
      group: 'Output',
    },
    output: {
      type: 'string',
      short: 'o',
      help: 'JSON file, saved after every configuration; one that exists is continued',
      group: 'Output',
    },
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
  const format = choiceFlag(args, 'format', FORMATS);
  const quiet = args.flags['quiet'] === true;
  const output = textFlag(args, 'output');
  const seed = parseNumber(textFlag(args, 'seed') ?? '0', '--seed', { min: 0, max: 2 ** 32 - 1, whole: true });
  const loaded = teacherOf(args);
  let device;
  let file: SafetensorsFile | undefined;
  try {
    const fingerprint = loaded.fingerprint(seed);
    file = codecFile(args, fingerprint);
    const rows = gridFor(args, loaded, file);
    if (output !== null) checkWritable(output, '--output', true);
    const inputs = inputsOf(args, loaded, seed, file);
    const weights = choiceFlag(args, 'weights', WEIGHTS);
    if (args.flags['claims'] !== true) earlier(output, { model: { fingerprint }, weights, inputs });
    device = await openDevice();
    const head: Omit<FidelityReport, 'rows'> = {
      schema: 'lla-sim/fidelity',
      schemaVersion: 1,
      model: { name: loaded.geometry.name, fingerprint, trained: loaded.trained },
      device: device.description.description,
      weights,
      fittedTokens: file ? 0 : calibrationWindows(args, loaded).flat().length,
      seed,
      inputs,
    };
    if (args.flags['claims'] === true) {
      await claims(args, loaded, device, head, format, quiet);
      return EXIT.ok;
    }
    const report = await judgeAll(args, loaded, loaded.teacher(device, seed), rows, file, head, output, quiet);
    await print(format === 'json' ? jsonText(report) : fidelityText(report), {
      file: null,
      quiet,
    });
    if (!quiet && output !== null) process.stderr.write(`written to ${displayPath(output)}\n`);
    const picture = textFlag(args, 'picture');
    if (picture !== null) await writePictures(report, picture, quiet);
    return EXIT.ok;
  } catch (error) {
    throw explained(error);
  } finally {
    device?.close();
    file?.close();
    loaded.close();
  }
}

/** One PNG a picture, named after the file that is given: `x.png` becomes `x-kl-against-ratio.png` and so on. */
async function writePictures(report: FidelityReport, path: string, quiet: boolean): Promise<void> {
  const [{ png }, { fidelityPictures }] = await Promise.all([
    import('../report/pictures/png.js'),
    import('../report/pictures/index.js'),
  ]);
  const measured = fidelityFrom(report as unknown as FidelityFile, report.model.name);
  for (const picture of fidelityPictures(measured)) {
    const file = `${path.replace(/\.png$/i, '')}-${picture.id}.png`;
    writeWhole(file, png(picture), '--picture');
    if (!quiet) process.stderr.write(`written to ${displayPath(file)}\n`);
  }
}

/** SHA-256 of what codecs are fitted to, or of the weights that are given, and of what is asked. */
export const inputsOf = (args: Args, loaded: LoadedTeacher, seed: number, file: TensorSource | undefined): string =>
  sha256(
    JSON.stringify([
      file ? fingerprintOfTensors(file) : calibrationWindows(args, loaded),
      itemsOf(args, loaded, seed).map(({ prompt, continuation }) => [prompt, continuation]),
    ]),
  );

/** The codec weights that are given, checked against the model. */
function codecFile(args: Args, fingerprint: string): SafetensorsFile | undefined {
  const path = textFlag(args, 'codec-weights');
  if (path === null) return undefined;
  const open = new SafetensorsFile(path);
  try {
    const { codec, rankK, rankV } = codecFacts(open);
    return openCodecFile(path, fingerprint, { kind: codec, rankK, rankV });
  } finally {
    open.close();
  }
}

function gridFor(args: Args, { geometry }: LoadedTeacher, file: SafetensorsFile | undefined): Row[] {
  if (file && args.flags.full === true)
    throw new UserError('--full fits every codec, and --codec-weights gives one', 'leave one of them out');
  const facts = file && codecFacts(file);
  const all = facts
    ? gridOf({ kind: facts.codec, rankK: facts.rankK, rankV: facts.rankV }).map((row) =>
        isLatent(row.codec) ? { ...row, initialisation: facts.initialisation } : row,
      )
    : args.flags.full === true
      ? fullGrid(geometry)
      : defaultGrid(geometry);
  const only = textFlag(args, 'only');
  const rows = only === null ? all : all.filter((row) => rowId(geometry, row).includes(only));
  if (rows.length === 0)
    throw new UserError(
      `no configuration has ${JSON.stringify(only)} in its name`,
      `they are named as ${rowId(geometry, all[0] as Row)}`,
    );
  return rows;
}

/** What a file must be of for its rows to be taken over. */
interface SameQuestion {
  readonly model: { readonly fingerprint: string };
  readonly weights: FidelityReport['weights'];
  readonly inputs: string;
}

/** Rows of an earlier run of the same question. @throws UserError for a file of another one */
export function earlier(output: string | null, head: SameQuestion): readonly Judged[] {
  if (output === null || !existsSync(output)) return [];
  const known = readFidelity(output);
  const same =
    known.model.fingerprint === head.model.fingerprint &&
    known.weights === head.weights &&
    known.inputs === head.inputs;
  if (!same)
    throw new UserError(
      `${displayPath(output)} is of another model, text, seed or codec`,
      'name another file, or remove that one',
    );
  // This program wrote them.
  return known.rows as unknown as readonly Judged[];
}

async function judgeAll(
  args: Args,
  loaded: LoadedTeacher,
  teacher: Teacher,
  rows: readonly Row[],
  file: TensorSource | undefined,
  head: Omit<FidelityReport, 'rows'>,
  output: string | null,
  quiet: boolean,
  more: readonly Item[] = [],
): Promise<FidelityReport> {
  const { geometry } = loaded;
  const done = new Map(earlier(output, head).map((row) => [row.id, row]));
  const shows = !quiet && process.stderr.isTTY === true;
  const began = Date.now();
  await interruptible(async (signal) => {
    const missing = rows.filter((row) => !done.has(rowId(geometry, row)));
    if (missing.length === 0) return;
    const weights = file
      ? new Map(missing.map((row) => [weightsKey(row), file]))
      : await fitted(args, loaded, teacher, missing);
    const judge = await Judge.open(teacher, [...itemsOf(args, loaded, head.seed), ...more]);
    for (const [i, row] of missing.entries()) {
      if (signal.aborted)
        throw new UserError(
          `interrupted after ${i} of ${missing.length} configurations`,
          output === null ? 'run it again; -o FILE keeps what is done' : 'run it again: it goes on from there',
          EXIT.interrupted,
        );
      const id = rowId(geometry, row);
      const elapsed = (Date.now() - began) / 1e3;
      if (shows) process.stderr.write(progressLine(elapsed, i === 0 ? 0 : (elapsed / i) * (missing.length - i), id));
      done.set(id, await judge.judge(row, isLatent(row.codec) ? weights.get(weightsKey(row)) : undefined));
      if (output !== null) writeWhole(output, jsonOf(head, [...done.values()]), '--output');
    }
    if (shows) process.stderr.write('\r\u001b[K');
  });
  return { ...head, rows: rows.map((row) => done.get(rowId(geometry, row)) as Judged) };
}

const jsonOf = (head: Omit<FidelityReport, 'rows'>, rows: readonly Judged[]): string =>
  `${JSON.stringify({ ...head, rows }, null, 1)}\n`;

const weightsKey = ({ codec, initialisation }: Row): string =>
  `${codec.kind} ${codec.rankK}/${codec.rankV} ${initialisation}`;

/** Windows of text that spectra are taken over. */
const SPECTRA_WINDOWS = 8;

/** Tries the claims. With -o, rows of the model and of its twin are kept beside it, each in a file of its own. */
async function claims(
  args: Args,
  loaded: LoadedTeacher,
  device: Device,
  head: Omit<FidelityReport, 'rows'>,
  format: 'text' | 'json',
  quiet: boolean,
): Promise<void> {
  const { geometry } = loaded;
  const output = textFlag(args, 'output');
  const rows = claimsGrid(geometry);
  const windows = calibrationWindows(args, loaded).slice(0, SPECTRA_WINDOWS);
  const evidenceOf = async (teacher: Teacher, name: string, own: typeof head): Promise<Evidence> => {
    const part = output === null ? null : `${output}.${name}`;
    return {
      rows: (await judgeAll(args, loaded, teacher, rows, undefined, own, part, quiet)).rows,
      spectra: await spectraOf(teacher, windows, FIT_MEMORY_BYTES),
      distilled: await distilledEvidence(args, loaded, teacher, own, part, quiet),
    };
  };
  const twinHead = {
    ...head,
    model: { name: `${head.model.name}, untrained`, fingerprint: loaded.twinFingerprint, trained: false },
  };
  const results = tryClaims(
    geometry,
    await evidenceOf(loaded.teacher(device, head.seed), 'model', head),
    await evidenceOf(loaded.twin(device), 'untrained', twinHead),
  );
  const json = jsonText({ ...head, schema: 'lla-sim/claims', claims: results });
  if (output !== null) writeWhole(output, json, '--output');
  await print(format === 'json' ? json : claimsText(head.model.name, results), { file: null, quiet });
}

/** Trains and judges what the claims ask for; null where the model is not one to train on. */
async function distilledEvidence(
  args: Args,
  loaded: LoadedTeacher,
  teacher: Teacher,
  head: Omit<FidelityReport, 'rows'>,
  output: string | null,
  quiet: boolean,
): Promise<Evidence['distilled']> {
  const { geometry } = loaded;
  const judged: Partial<Record<DistilUse, Judged>> = {};
  const more = longRolloutsOf(args, loaded, head.seed);
  const asked = { ...head, inputs: sha256(JSON.stringify([head.inputs, more.map(({ prompt }) => prompt)])) };
  for (const use of DISTIL_USES) {
    const row = distilledRow(geometry, use);
    if (refuseDistil(geometry, row.codec, pathOf(row.path).path) !== undefined) return null;
    const part = output === null ? null : `${output}.${use}`;
    let own = earlier(part, asked).find(({ id }) => id === rowId(geometry, row));
    if (!own) {
      const start = (await fitted(args, loaded, teacher, [row])).get(weightsKey(row)) as TensorSource;
      const windows = calibrationWindows(args, loaded);
      const onPolicy = use === 'on-policy';
      const tensors = await distilForClaims(
        teacher,
        row,
        start,
        windows,
        head.model.fingerprint,
        part,
        quiet,
        onPolicy,
      );
      [own] = (await judgeAll(args, loaded, teacher, [row], tensors, asked, part, quiet, more)).rows;
    }
    judged[use] = own as Judged;
  }
  return judged as Record<DistilUse, Judged>;
}

/** Fits the codecs of all rows in one go. */
async function fitted(
  args: Args,
  loaded: LoadedTeacher,
  teacher: Teacher,
  rows: readonly Row[],
): Promise<Map<string, TensorSource>> {
  const latent = [
    ...new Map(rows.filter(({ codec }) => isLatent(codec)).map((row) => [weightsKey(row), row])).values(),
  ];
  if (latent.length === 0) return new Map();
  const runs = await fitCodecs(
    teacher,
    calibrationWindows(args, loaded),
    latent.map(({ codec, initialisation }) => ({ codec, initialisation, seed: 1 })),
    { memoryBytes: FIT_MEMORY_BYTES },
  );
  return new Map(latent.map((row, i) => [weightsKey(row), (runs[i] as (typeof runs)[number]).fitted.tensors]));
}
