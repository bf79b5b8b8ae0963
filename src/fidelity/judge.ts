/** Judges configurations of one model beside its uncompressed cache, on the latent store of the real decoder. */
import { createHash } from 'node:crypto';
import { coreRatio, isLatent } from '../codecs/registry.js';
import { pathOf, pathSpec } from '../codecs/paths.js';
import type { Branch } from '../codecs/codec.js';
import { combined, inMemory, storedAs, type TensorSource } from '../decoder/index.js';
import { greedy } from '../decoder/sampler.js';
import { branchTensor } from '../decoder/tensors.js';
import { loadModel, type Model } from '../decoder/reference/model.js';
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

export class Judge {
  private constructor(
    private readonly teacher: Teacher,
    readonly items: readonly Item[],
    private readonly expected: readonly Predictions[],
    private readonly branchOf: (branch: Branch) => TensorSource,
    private readonly reference: { readonly model: Model; readonly observed: ReturnType<typeof observe>[] } | null,
  ) {}

  /** Runs the uncompressed model: its predictions, and its greedy rollouts. */
  static async open(teacher: Teacher, asked: readonly Item[]): Promise<Judge> {
    const { geometry: g, weights } = teacher;
    const configuration = exactConfiguration(teacher);
    const expected = await predict(teacher, configuration, undefined, asked, ROLLOUT_TOKENS);
    const items = asked.map((item, i) =>
      item.kind === 'rollout' ? { ...item, continuation: (expected[i] as Predictions).map(greedy) } : item,
    );
    const tensors = givenTensors(teacher);
    let reference = null;
    if (parameterCount(g) <= REFERENCE_PARAMETERS) {
      const model = loadModel(g, storedAs(tensors, weights.storage), teacher.normEpsilon);
      const observed = items
        .filter(({ kind }) => kind === 'text')
        .slice(0, REFERENCE_SEQUENCES)
        .map(({ prompt }) => observe(model, prompt.slice(0, REFERENCE_TOKENS)));
      reference = { model, observed };
    }
    const branchOf = (branch: Branch): TensorSource => inMemory(branchTensors(g, branch, tensors));
    return new Judge(teacher, items, expected, branchOf, reference);
  }

  /**
   * @param codec tensors of a codec with latents
   * @param isAsked which of the items; all unless given
   */
  async judge(
    row: Row,
    codec: TensorSource | undefined,
    isAsked: (item: Item) => boolean = () => true,
  ): Promise<Judged> {
    const began = process.hrtime.bigint();
    const { teacher } = this;
    const { geometry: g } = teacher;
    const { path, materialised } = pathOf(row.path);
    const exact = exactConfiguration(teacher);
    const choice = { ...exact.choice, storage: row.storage };
    const { codec: kind, storage, initialisation, eviction, branch = exact.branch } = row;
    const configuration: Configuration = { ...exact, codec: kind, path, materialised, choice, eviction, branch };
    // Trained weights may bring a branch of their own.
    const lacksBranch = pathSpec(path).branch && codec?.shapes.has(branchTensor(0, 'query')) === false;
    const tensors = codec && lacksBranch ? combined(codec, this.branchOf(configuration.branch)) : codec;
    const asked = this.items
      .map((item, i) => ({ item, expected: this.expected[i] as Predictions }))
      .filter(({ item }) => isAsked(item));
    const itemsAsked = asked.map(({ item }) => item);
    const own = await predict(teacher, configuration, tensors, itemsAsked);
    const items = asked.map(({ item, expected }, i) => scoreItem(item, expected, own[i] as Predictions));
    const { model, observed } = this.reference ?? {};
    const stored = codec ? storedAs(codec, 'f16') : NO_TENSORS;
    const error = model && observed ? attentionError(model, row, choice, stored, observed) : null;
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
  }
}
