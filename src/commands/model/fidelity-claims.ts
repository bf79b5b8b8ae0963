/** `fidelity --claims`: measures what the paper's claims need on a model and on its untrained twin, and judges them. */
import { pathOf } from '../../codecs/paths.js';
import { isLatent } from '../../codecs/registry.js';
import type { TensorSource } from '../../decoder/index.js';
import { claimsText } from '../../fidelity/claims-text.js';
import {
  askedOf,
  needId,
  needsOf,
  tryClaims,
  type ClaimResult,
  type Evidence,
  type Need,
} from '../../fidelity/claims/claim.js';
import { paperClaims } from '../../fidelity/claims/list.js';
import type { Item } from '../../fidelity/items.js';
import { openJudge, type Judged } from '../../fidelity/judge.js';
import type { Teacher } from '../../fit/capture.js';
import { refuseDistil } from '../../fit/distillable.js';
import { structureOf } from '../../fit/spectra.js';
import type { Device } from '../../gpu/index.js';
import { sha256 } from '../../numbers/sha256.js';
import { TrainingThread } from '../../training/training-thread.js';
import { writeWhole } from '../../io/write.js';
import { type Args } from '../command.js';
import { earlier, fitted, interrupted, jsonOf, weightsKey, type Head } from './fidelity-rows.js';
import { CLAIM_TRAINING, claimDistillation } from './fit-distil.js';
import { calibrationWindows, itemsOf, longRolloutsOf, type LoadedTeacher } from './fit-question.js';
import { asJson, interruptible, print, ProgressLine } from '../output.js';

/** Windows of text that are studied one by one for how keys and values lie. */
const STUDIED_WINDOWS = 12;
/** A training takes about as long as so many configurations without one. */
const TRAINING_WORK = 6;

const workOf = ({ training }: Need): number => (training ? 1 + TRAINING_WORK : 1);

/** Work done of all work, and a line of it on a terminal. */
class Progress {
  private done = 0;
  private all = 0;
  private doing = '';
  private readonly began = Date.now();

  constructor(private readonly line: ProgressLine) {}

  plan(work: number): void {
    this.all += work;
  }

  finish(work: number): void {
    this.done += work;
    this.say(this.doing);
  }

  say(doing: string): void {
    this.doing = doing;
    const elapsed = (Date.now() - this.began) / 1e3;
    const left = this.done > 0 ? (elapsed / this.done) * (this.all - this.done) : 0;
    this.line.time(elapsed, left, doing);
  }
}

/** The model, or its twin. */
interface Side {
  readonly teacher: Teacher;
  readonly head: Head;
  /** Keeps its rows; null where none does. */
  readonly file: string | null;
  /** Rows of that file, by `needId`. */
  readonly done: Map<string, Judged>;
  readonly missing: readonly Need[];
}

/** Tries the claims. With -o, rows of the model and of its twin are kept beside it, each in a file of its own. */
export async function claims(
  args: Args,
  loaded: LoadedTeacher,
  device: Device,
  head: Head,
  format: 'text' | 'json',
  quiet: boolean,
): Promise<void> {
  const { geometry: g } = loaded;
  const output = args.text('output');
  const list = paperClaims(g);
  const needs = needsOf(g, list).filter(
    ({ row, training }) => training === null || refuseDistil(g, row.codec, pathOf(row.path).path) === undefined,
  );
  const wanted = new Set(needs.flatMap(({ asked }) => asked));
  const items = [...itemsOf(args, loaded, head.seed), ...longRolloutsOf(args, loaded, head.seed)].filter((item) =>
    wanted.has(askedOf(item)),
  );
  const inputs = sha256(JSON.stringify([head.inputs, items.map(({ prompt }) => prompt), CLAIM_TRAINING]));
  const twinHead = { name: `${head.model.name}, untrained`, fingerprint: loaded.twinFingerprint, trained: false };
  const results = await interruptible(async (signal) => {
    const line = new ProgressLine(quiet);
    const progress = new Progress(line);
    const sideOf = (name: string, teacher: Teacher, own: Head): Side => {
      const file = output === null ? null : `${output}.${name}`;
      const done = new Map(earlier(file, own).rows.map((row) => [row.id, row]));
      const missing = needs.filter((need) => !done.has(needId(g, need)));
      progress.plan(missing.reduce((sum, need) => sum + workOf(need), 0));
      return { teacher, head: own, file, done, missing };
    };
    const asked = { ...head, inputs };
    const sides = [
      sideOf('model', loaded.teacher(device, head.seed), asked),
      sideOf('untrained', loaded.twin(device), { ...asked, model: twinHead }),
    ] as const;
    const trains = sides.some((side) => side.missing.some(({ training }) => training !== null));
    const thread = trains ? new TrainingThread() : null;
    const ended = (): void => void thread?.close();
    signal.addEventListener('abort', ended);
    try {
      const measure = (side: Side): Promise<End> => begin(args, loaded, side, items, { progress, signal, thread });
      // What is trained is judged last: until then the thread trains, beside the judging of both.
      const measuring = [await measure(sides[0]), await measure(sides[1])] as const;
      const [model, twin] = [await measuring[0](), await measuring[1]()];
      line.clear();
      return tryClaims(g, list, model, twin);
    } finally {
      signal.removeEventListener('abort', ended);
      await thread?.close();
    }
  });
  const training = needs.some((need) => need.training) ? CLAIM_TRAINING : null;
  const report: ClaimsJson = { ...head, schema: 'lla-sim/claims', schemaVersion: 2, training, claims: results };
  const json = asJson(report);
  if (output !== null) writeWhole(output, json, '--output');
  await print(format === 'json' ? json : claimsText(head.model.name, training, results), { file: null, quiet });
}

/** What `lla-sim fidelity --claims` prints. */
export interface ClaimsJson extends Omit<Head, 'schema' | 'schemaVersion'> {
  readonly schema: 'lla-sim/claims';
  readonly schemaVersion: 2;
  /** Of what was trained for the claims; null where nothing was. */
  readonly training: Readonly<Record<keyof typeof CLAIM_TRAINING, number>> | null;
  readonly claims: readonly ClaimResult[];
}

interface Help {
  readonly progress: Progress;
  readonly signal: AbortSignal;
  /** null where nothing is trained. */
  readonly thread: TrainingThread | null;
}

/** Judges what was trained meanwhile. @throws UserError when the program is asked to end */
type End = () => Promise<Evidence>;

/** Begins all trainings, and measures what else is missing. @throws UserError when the program is asked to end */
async function begin(
  args: Args,
  loaded: LoadedTeacher,
  { teacher, head, file, done, missing }: Side,
  items: readonly Item[],
  { progress, signal, thread }: Help,
): Promise<End> {
  const { geometry: g } = loaded;
  const { name } = head.model;
  progress.say(`${name}: keys and values`);
  const structure = await structureOf(teacher, calibrationWindows(args, loaded).slice(0, STUDIED_WINDOWS));
  const evidence = (): Evidence => ({ scores: new Map([...done].map(([id, row]) => [id, row.items])), structure });
  if (missing.length === 0) return () => Promise.resolve(evidence());
  progress.say(`${name}: fit`);
  const rows = missing.map(({ row }) => row);
  const weights = await fitted(args, loaded, teacher, rows);
  const judge = await openJudge(teacher, items);
  const fittedOf = ({ row }: Need): TensorSource | undefined =>
    isLatent(row.codec) ? weights.get(weightsKey(row)) : undefined;
  const windows = calibrationWindows(args, loaded, CLAIM_TRAINING.textTokens);
  const trainings = missing.flatMap((need) => {
    const start = fittedOf(need);
    if (need.training === null || !thread || !start) return [];
    const step = (): void => progress.finish(TRAINING_WORK / CLAIM_TRAINING.steps);
    return [{ need, tensors: thread.train(claimDistillation(teacher, need, start, windows), step) }];
  });
  const all = done.size + missing.length;
  const judgeNow = async (need: Need, tensors: TensorSource | undefined): Promise<void> => {
    const id = needId(g, need);
    progress.say(`${name}: ${id}`);
    if (signal.aborted) throw interrupted(done.size, all, `configurations of ${name}`, file);
    const judged = await judge(need.row, tensors, (item) => need.asked.includes(askedOf(item)));
    done.set(id, { ...judged, id });
    if (file !== null) writeWhole(file, jsonOf(head, [...done.values()]), '--output');
    progress.finish(1);
  };
  for (const need of missing) if (need.training === null) await judgeNow(need, fittedOf(need));
  return async () => {
    for (const { need, tensors } of trainings) {
      progress.say(`${name}: training of ${needId(g, need)}`);
      const trained = await tensors.catch((error: unknown) => {
        throw signal.aborted ? interrupted(done.size, all, `configurations of ${name}`, file) : error;
      });
      await judgeNow(need, trained);
    }
    return evidence();
  };
}
