/** Which models a codec can be distilled on, without loading what trains. */
import { pathSpec } from '../codecs/paths.js';
import { isLatent } from '../codecs/registry.js';
import type { Codec, Path } from '../codecs/codec.js';
import { layerExtras, parameterCount, type Geometry } from '../geometry/geometry.js';
import { formatCount } from '../numbers/units.js';

/** λ_attn of the paper's loss: weight of attention-output matching (Eq. loss). */
export const LAMBDA_ATTN = 0.5;

/** Largest model: a step goes through all parameters and loops five times, on one core. */
const MOST_PARAMETERS = 5e6;

/** Why a codec cannot be distilled on a model; undefined where it can. */
export function refuseDistil(g: Geometry, codec: Codec, path: Path): string | undefined {
  if (!isLatent(codec)) return `${codec.kind} has no weights to train`;
  if (!pathSpec(path).latents) return `the path ${path} reads no latents; train for reconstruct or absorbed`;
  const count = parameterCount(g);
  if (count > MOST_PARAMETERS)
    return (
      `${g.name} has ${formatCount(count)} parameters, and training on one core of the CPU is for at most ` +
      `${formatCount(MOST_PARAMETERS)}`
    );
  const reason = unknownLayers(g);
  return reason === undefined ? undefined : `training knows Ouro's layers only, and ${g.name} ${reason}`;
}

function unknownLayers(g: Geometry): string | undefined {
  if (g.preludeLayers + g.codaLayers > 0) return 'has layers before or after its loops';
  if (g.adapter) return 'has an adapter';
  if (g.normsPerLayer !== 4) return 'has no norms after attention and MLP';
  if (!g.normAfterEachLoop) return 'has no norm after each loop';
  if (g.tiedEmbeddings) return 'ties its embeddings';
  if (g.mlp !== 'gated') return 'has an MLP without a gate';
  if (g.rope.pairing !== 'half-split') return 'rotates adjacent pairs';
  const extras = layerExtras(g);
  if (!extras || extras.biases.length > 0 || extras.norms) return 'has biases or norms of heads';
  return undefined;
}
