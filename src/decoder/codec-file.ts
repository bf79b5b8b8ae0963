/**
 * The file of a codec's weights: safetensors with the tensors of `codecTensors`, and in its metadata what they were
 * fitted to. docs/fidelity.md describes it for people.
 *
 *   codec.layers.{i}.key.down     f16 [group, stacked width, rank K]    W_down of core layer i
 *   codec.layers.{i}.key.up       f16 [group, stacked width, rank K]    W_up
 *   codec.layers.{i}.key.mean     f32 [group, stacked width]            mu
 *   codec.layers.{i}.value.*      the same of V
 *   codec.layers.{i}.first.encode f16 [1, hidden, 2·first rank]         E of hla; A (.key), B (.value): `hybridTensors`
 *   codec.layers.{i}.shared.*     the same of the loops after the first
 *   codec.layers.{i}.branch.query f16 [heads × width, hidden]           rotary branch of the absorbed path (lla)
 *   codec.layers.{i}.branch.key   f16 [width, hidden], or [KV heads × width, hidden] with one key a head
 *
 * A stacked vector runs over loops, then KV heads, then components; a group is a latent of a token and layer
 * (`latentGroups`).
 */
import { CODEC_KINDS, PATHS, type Codec, type CodecKind, type Path } from '../codecs/codec.js';
import { DEFAULT_WINDOW_TOKENS } from '../codecs/lla.js';
import { ranksText } from '../codecs/ranks.js';
import { codecSpec } from '../codecs/registry.js';
import { UserError, show } from '../errors.js';
import { writeWhole } from '../io/write.js';
import { SafetensorsFile } from './safetensors.js';
import type { TensorSpec } from './tensors.js';
import type { TensorSource } from './weights.js';
import { safetensorsParts } from './write-safetensors.js';

export const INITIALISATIONS = ['svd', 'first-loop', 'random'] as const;
export type Initialisation = (typeof INITIALISATIONS)[number];

export interface CodecFacts {
  readonly codec: CodecKind;
  readonly rankK: number;
  readonly rankV: number;
  /** Of the first loop's own latents. */
  readonly rankFirst?: number;
  /** Fingerprint of the model (fingerprint.ts). */
  readonly model: string;
  readonly initialisation: Initialisation;
  /** Tokens that it was fitted to. */
  readonly tokens: number;
  readonly distilled?: DistilFacts;
}

interface DistilFacts {
  /** Steps to the weights that were kept. */
  readonly steps: number;
  /** The decode path that they were trained for. */
  readonly path: Path;
  /** KL(teacher ‖ student) on held-out texts before and after, nats a token. */
  readonly klBefore: number;
  readonly klAfter: number;
}

const SCHEMA = 'lla-sim/codec';
const VERSION = '1';
const AGAIN = 'make the file with lla-sim fit';

/** The codec of a file. How many exact tokens it keeps is no matter of its weights: as many as usual. */
export function codecOf({ codec: kind, rankK, rankV, rankFirst }: CodecFacts): Codec {
  const ranks = { kind, rankK, rankV, ...(rankFirst === undefined ? {} : { rankFirst }) };
  return codecSpec(ranks).settings.includes('windowTokens') ? { ...ranks, windowTokens: DEFAULT_WINDOW_TOKENS } : ranks;
}

const isHalf = ({ role }: TensorSpec): boolean => role !== 'mean';

/**
 * Writes a file of codec weights, whole or not at all.
 * @param specs tensors to write, of `codecTensors`
 * @throws UserError when it cannot be written
 */
export function writeCodecFile(
  path: string,
  specs: readonly TensorSpec[],
  source: TensorSource,
  facts: CodecFacts,
): void {
  const { distilled } = facts;
  const metadata = {
    schema: SCHEMA,
    schemaVersion: VERSION,
    codec: facts.codec,
    ranks: ranksText(facts),
    model: facts.model,
    initialisation: facts.initialisation,
    tokens: String(facts.tokens),
    ...(distilled && {
      distilledSteps: String(distilled.steps),
      distilledPath: distilled.path,
      heldOutKlBefore: String(distilled.klBefore),
      heldOutKlAfter: String(distilled.klAfter),
    }),
  };
  // One tensor at a time: a codec of all heads is larger than what it was fitted in.
  writeWhole(
    path,
    safetensorsParts(specs, ({ name }) => source.read(name), metadata, isHalf),
    '--output',
  );
}

/** The facts of an open file. @throws UserError for a file that lla-sim fit did not make */
export function codecFacts({ file, metadata }: SafetensorsFile): CodecFacts {
  if (metadata['schema'] === undefined) throw new UserError(`${file} holds no codec of lla-sim fit`, AGAIN);
  if (metadata['schema'] !== SCHEMA || metadata['schemaVersion'] !== VERSION)
    throw new UserError(
      `${file} says of itself ${show(metadata['schema'])} version ${show(metadata['schemaVersion'])}, not ` +
        `${SCHEMA} version ${VERSION}`,
      AGAIN,
    );
  const [rankK, rankV, rankFirst] = (metadata['ranks'] ?? '').split('/').map(Number);
  const codec = CODEC_KINDS.find((kind) => kind === metadata['codec']);
  const initialisation = INITIALISATIONS.find((kind) => kind === metadata['initialisation']);
  const tokens = Number(metadata['tokens']);
  const model = metadata['model'] ?? '';
  const ranked = isRank(rankK) && isRank(rankV) && (rankFirst === undefined || isRank(rankFirst));
  if (!codec || !initialisation || !ranked || !/^[0-9a-f]{64}$/.test(model))
    throw new UserError(`${file} does not say which codec it holds and of which model`, AGAIN);
  const distilled = distilFacts(metadata);
  return {
    codec,
    rankK,
    rankV,
    ...(rankFirst === undefined ? {} : { rankFirst }),
    model,
    initialisation,
    tokens: Number.isSafeInteger(tokens) ? tokens : 0,
    ...(distilled ? { distilled } : {}),
  };
}

function distilFacts(metadata: Readonly<Record<string, string>>): DistilFacts | null {
  const path = PATHS.find((name) => name === metadata['distilledPath']);
  if (!path) return null;
  const of = (name: string): number => Number(metadata[name]);
  return {
    steps: of('distilledSteps'),
    path,
    klBefore: of('heldOutKlBefore'),
    klAfter: of('heldOutKlAfter'),
  };
}

const isRank = (value: number | undefined): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** Kinds that read the same tensors: a window keeps exact rows beside LLA's latents. */
const tensorsOf = (kind: CodecKind): CodecKind => codecSpec({ kind }).weightsOf ?? kind;

/**
 * Opens codec weights for a model and codec. Close it when done.
 * @param model fingerprint of the model that will be decoded
 * @throws UserError for a file of another model or codec, and as SafetensorsFile
 */
export function openCodecFile(path: string, model: string, codec: Codec): SafetensorsFile {
  const open = new SafetensorsFile(path);
  try {
    const facts = codecFacts(open);
    if (facts.model !== model)
      throw new UserError(
        `${open.file} was fitted to another model (${facts.model.slice(0, 12)}… and not ${model.slice(0, 12)}…)`,
        'fit a codec to this model: lla-sim fit',
      );
    if (facts.codec !== tensorsOf(codec.kind) || ranksText(facts) !== ranksText(codec))
      throw new UserError(
        `${open.file} holds ${facts.codec} of ranks ${ranksText(facts)}, not ${codec.kind}${
          codec.rankK === undefined ? '' : ` of ranks ${ranksText(codec)}`
        }`,
        `decode it with --codec ${facts.codec} --ranks ${ranksText(facts)}`,
      );
    return open;
  } catch (error) {
    open.close();
    throw error;
  }
}
