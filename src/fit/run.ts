/** A whole fit: passes over the text, the codec of every layer, and the energy that controls would keep. */
import { INITIALISATIONS, type Initialisation } from '../decoder/index.js';
import { latentGroups } from '../decoder/tensors.js';
import type { Geometry } from '../geometry/geometry.js';
import { capture, type Teacher } from './capture.js';
import { accumulate, CodecFit, emptyCovariances, layersOfPasses, type FitRequest, type FittedCodec } from './fit.js';

/** Controls are fitted beside the codec where its stacked vectors are at most this wide: they cost as much again. */
const WIDEST_CONTROL = 512;

export interface FitRun {
  readonly fitted: FittedCodec;
  /** Mean share of the variance that each initialisation keeps; those that were computed. */
  readonly kept: Readonly<Partial<Record<Initialisation, number>>>;
  readonly tokens: number;
  readonly passes: number;
}

export interface FitOptions {
  /** Bytes that covariances may take. */
  readonly memoryBytes: number;
  /** After each batch of windows. @param done share of all passes, 0 to 1 */
  readonly onProgress?: (done: number) => void;
}

const mean = (values: readonly number[]): number => values.reduce((sum, v) => sum + v, 0) / values.length;

/**
 * Fits one codec.
 * @throws UserError where not even one layer's covariances fit into the memory
 */
export async function fitCodec(
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  request: Omit<FitRequest, 'geometry'>,
  { memoryBytes, onProgress }: FitOptions,
): Promise<FitRun> {
  const [run] = await fitCodecs(teacher, windows, [request], { memoryBytes, ...(onProgress ? { onProgress } : {}) });
  return run as FitRun;
}

/** The same for several codecs in the same passes. Codecs of one kind share their covariances. */
export async function fitCodecs(
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  requests: readonly Omit<FitRequest, 'geometry'>[],
  { memoryBytes, onProgress }: FitOptions,
): Promise<FitRun[]> {
  const { geometry: g } = teacher;
  const kinds = [...new Map(requests.map(({ codec }) => [codec.kind, codec])).values()];
  const passes = kinds
    .map((codec) => layersOfPasses(g, codec, memoryBytes / kinds.length))
    .reduce((most, own) => (own.length > most.length ? own : most));
  const jobs = requests.map((request) => ({ request, fits: fitsOf(g, request) }));
  for (const [pass, layers] of passes.entries()) {
    const covariances = new Map(
      kinds.map((codec) => [codec.kind, new Map(layers.map((layer) => [layer, emptyCovariances(g, codec)]))]),
    );
    await capture(teacher, windows, async (captured, done) => {
      for (const codec of kinds)
        for (const [layer, into] of covariances.get(codec.kind) ?? [])
          await accumulate(g, codec, layer, into, captured);
      onProgress?.((pass + done / windows.length) / passes.length);
    });
    for (const { request, fits } of jobs)
      for (const [layer, own] of covariances.get(request.codec.kind) ?? [])
        for (const fit of fits.values()) fit.addLayer(layer, own);
  }
  const tokens = windows.reduce((sum, window) => sum + window.length, 0);
  return jobs.map(({ request, fits }) => ({
    fitted: (fits.get(request.initialisation) as CodecFit).done(),
    kept: Object.fromEntries([...fits].map(([name, fit]) => [name, mean(fit.energy.map(({ kept }) => kept))])),
    tokens,
    passes: passes.length,
  }));
}

/** The fit that is asked for, and its controls. */
function fitsOf(g: Geometry, request: Omit<FitRequest, 'geometry'>): Map<Initialisation, CodecFit> {
  const all = latentGroups(g, request.codec).width <= WIDEST_CONTROL ? INITIALISATIONS : [request.initialisation];
  return new Map(
    all.map((initialisation) => [initialisation, new CodecFit({ ...request, geometry: g, initialisation })]),
  );
}
