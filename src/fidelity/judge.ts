/** Judges configurations of one model beside its uncompressed cache, on the latent store of the real decoder. */
import { createHash } from 'node:crypto';
import { coreRatio, isLatent } from '../codecs/registry.js';
import { pathOf, pathSpec } from '../codecs/paths.js';
import { combined, inMemory, storedAs, type TensorSource } from '../decoder/index.js';
import { greedy } from '../decoder/sampler.js';
import { branchTensor } from '../decoder/tensors.js';
import { loadModel } from '../decoder/reference/model.js';
import { branchTensors } from '../fit/branch.js';
import { exactConfiguration, givenTensors, type Teacher } from '../fit/capture.js';
import { parameterCount } from '../geometry/geometry.js';
import { evictionLabel } from '../eviction/policy.js';
import type { Configuration } from '../schedule/schedule.js';
import { attentionError, observe } from './attention-error.js';
import { NO_TENSORS, predict, type Predictions } from './forced.js';
import { REFERENCE_PARAMETERS, rowId, type Row } from './grid.js';
import type { Item } from './items.js';
import { scoreItem, summarise, type ItemScore, type Scores } from './score.js';

export interface Judged extends Scores, Pick<Row, 'codec' | 'path' | 'storage' | 'initialisation'> {
  readonly id: string;
  readonly ratio: number;
  readonly eviction: string | null;
  /** SHA-256 of the codec's tensors; null for codecs without. */
  readonly codecFingerprint: string | null;
  /** Relative error of attention's outputs; null where it says nothing, and for models too large for float64. */
  readonly attentionError: number | null;
  readonly items: readonly ItemScore[];
  readonly seconds: number;
}

/** Sequences, and tokens of each, on which that error is measured. */
const REFERENCE_SEQUENCES = 2;
const REFERENCE_TOKENS = 48;
const ROLLOUT_TOKENS = 24;

/** SHA-256 over names, shapes and values, in the order of the names. */
export function fingerprintOfTensors(source: TensorSource): string {
  const hash = createHash('sha256');
  for (const name of [...source.shapes.keys()].sort()) {
    hash.update(`${name} ${JSON.stringify(source.shapes.get(name))}\n`);
    hash.update(source.read(name));
  }
  return hash.digest('hex');
}

/**
 * Judges a row.
 * @param codec tensors of a codec with latents
 * @param isAsked which of the items; all unless given
 */
type Judge = (row: Row, codec: TensorSource | undefined, isAsked?: (item: Item) => boolean) => Promise<Judged>;

/** Runs the uncompressed model: its predictions, and its greedy rollouts. Rows are judged beside them. */
export async function openJudge(teacher: Teacher, given: readonly Item[]): Promise<Judge> {
  const { geometry: g, weights } = teacher;
  const exact = exactConfiguration(teacher);
  const predicted = await predict(teacher, exact, undefined, given, ROLLOUT_TOKENS);
  const all = given.map((item, i) => {
    const expected = predicted[i] as Predictions;
    return { item: item.kind === 'rollout' ? { ...item, continuation: expected.map(greedy) } : item, expected };
  });
  const tensors = givenTensors(teacher);
  const model =
    parameterCount(g) <= REFERENCE_PARAMETERS
      ? loadModel(g, storedAs(tensors, weights.storage), teacher.normEpsilon)
      : null;
  const observed = all
    .filter(({ item }) => item.kind === 'text')
    .slice(0, REFERENCE_SEQUENCES)
    .flatMap(({ item }) => (model ? [observe(model, item.prompt.slice(0, REFERENCE_TOKENS))] : []));
  return async (row, codec, isAsked = () => true) => {
    const began = process.hrtime.bigint();
    const { path, materialised } = pathOf(row.path);
    const choice = { ...exact.choice, storage: row.storage };
    const { codec: kind, storage, initialisation, eviction, branch = exact.branch } = row;
    const configuration: Configuration = { ...exact, codec: kind, path, materialised, choice, eviction, branch };
    // Trained weights may bring a branch of their own.
    const lacksBranch = pathSpec(path).branch && codec?.shapes.has(branchTensor(0, 'query')) === false;
    const withBranch = codec && lacksBranch ? combined(codec, inMemory(branchTensors(g, branch, tensors))) : codec;
    const asked = all.filter(({ item }) => isAsked(item));
    const itemsAsked = asked.map(({ item }) => item);
    const own = await predict(teacher, configuration, withBranch, itemsAsked);
    const items = asked.map(({ item, expected }, i) => scoreItem(item, expected, own[i] as Predictions));
    const stored = codec ? storedAs(codec, 'f16') : NO_TENSORS;
    const error = model && attentionError(model, row, choice, stored, observed);
    return {
      id: rowId(g, row),
      codec: kind,
      ratio: coreRatio(g, kind),
      path: row.path,
      storage,
      eviction: eviction && evictionLabel(eviction),
      initialisation,
      codecFingerprint: codec && isLatent(kind) ? fingerprintOfTensors(codec) : null,
      ...summarise(items),
      attentionError: error,
      items,
      seconds: Number(process.hrtime.bigint() - began) * 1e-9,
    };
  };
}
