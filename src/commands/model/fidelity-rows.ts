/** Rows of `fidelity` and of its claims: their weights, and files that keep them. */
import { ranksText } from '../../codecs/ranks.js';
import { isLatent } from '../../codecs/registry.js';
import type { TensorSource } from '../../decoder/index.js';
import { existsSync } from 'node:fs';
import { EXIT, UserError } from '../../errors.js';
import type { Acceptance } from '../../fidelity/acceptance.js';
import type { Row } from '../../fidelity/grid.js';
import { fingerprintOfTensors, type Judged } from '../../fidelity/judge.js';
import type { FidelityReport } from '../../fidelity/report.js';
import { displayPath } from '../../io/files.js';
import type { Teacher } from '../../fit/capture.js';
import { fitCodecs } from '../../fit/run.js';
import { readFidelity } from '../../schema/fidelity.js';
import { sha256 } from '../../numbers/sha256.js';
import type { Args } from '../command.js';
import { calibrationWindows, itemsOf, type LoadedTeacher } from './fit-question.js';

const FIT_MEMORY_BYTES = 4e9;

/** What a report holds beside its rows. */
export type Head = Omit<FidelityReport, 'rows' | 'acceptance'>;

/** SHA-256 of what codecs are fitted to, or of the weights that are given, and of what is asked. */
export const inputsOf = (args: Args, loaded: LoadedTeacher, seed: number, file: TensorSource | undefined): string =>
  sha256(
    JSON.stringify([
      file ? fingerprintOfTensors(file) : calibrationWindows(args, loaded),
      itemsOf(args, loaded, seed).map(({ prompt, continuation }) => [prompt, continuation]),
    ]),
  );

/**
 * What an earlier run of the same question has measured.
 * @param head what a file must be of for its rows to be taken over
 * @throws UserError for a file of another question
 */
export function earlier(
  output: string | null,
  head: Pick<Head, 'weights' | 'inputs'> & { readonly model: Pick<Head['model'], 'fingerprint'> },
): { readonly rows: readonly Judged[]; readonly acceptance: Acceptance | null } {
  if (output === null || !existsSync(output)) return { rows: [], acceptance: null };
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
  return { rows: known.rows as unknown as readonly Judged[], acceptance: known.acceptance ?? null };
}

/** @param what was made */
export const interrupted = (made: number, all: number, what: string, file: string | null): UserError =>
  new UserError(
    `interrupted after ${made} of ${all} ${what}`,
    file === null ? 'run it again; -o FILE keeps what is done' : 'run it again: it goes on from there',
    EXIT.interrupted,
  );

/** The file of a report. */
export const jsonOf = (head: Head, rows: readonly Judged[], acceptance: Acceptance | null = null): string =>
  `${JSON.stringify({ ...head, rows, acceptance }, null, 1)}\n`;

/** Rows with the same key have the same weights. */
export const weightsKey = ({ codec, initialisation }: Row): string =>
  `${codec.kind} ${ranksText(codec)} ${initialisation}`;

/** Fits the codecs of all rows in one go. */
export async function fitted(
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
