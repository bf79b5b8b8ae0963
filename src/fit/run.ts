/** A whole fit: passes over the text, the codec of every layer, and the energy that controls would keep. */
import { setImmediate as turn } from 'node:timers/promises';
import { isHybrid, isLatent } from '../codecs/registry.js';
import type { CodecKind } from '../codecs/codec.js';
import type { Initialisation } from '../decoder/index.js';
import { EXIT, UserError } from '../errors.js';
import { mean, sum } from '../numbers/statistics.js';
import { capture, longestOf, tensorsOf, windowsTogether, type Teacher } from './capture.js';
import { fitHybridLayer, refuseHybridFit } from './hybrid.js';
import { fitLayer, type FitRequest, type FittedCodec } from './fit.js';
import { accumulate, AXES, emptyMoments, layersOfPasses, momentsPlan, type MomentsPlan } from './moments.js';
import { LayersInMemory, type FitFolder } from './store.js';

export interface FitRun {
  readonly fitted: FittedCodec;
  /** Mean share of the variance that each initialisation keeps; those that were computed. */
  readonly kept: Readonly<Partial<Record<Initialisation, number>>>;
  readonly tokens: number;
  readonly passes: number;
}

export interface FitOptions {
  /** Bytes that moments and the work on them may take. */
  readonly memoryBytes: number;
  /** After each batch of windows and each layer. @param done share of the keys and values that were seen, 0 to 1 */
  readonly onProgress?: (done: number, doing: string) => void;
  /** Ends the fit early, with an error that says how to go on. */
  readonly signal?: AbortSignal;
  /** Where finished layers and the moments of a pass are kept, so that another run can go on. */
  readonly folder?: FitFolder;
  /** Wider stacks are sketched. */
  readonly widestExact?: number;
}

type Request = Omit<FitRequest, 'geometry'>;

/** Fits one codec. @throws UserError where not even one layer fits into the memory, and when the signal ends it */
export async function fitCodec(
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  request: Request,
  options: FitOptions,
): Promise<FitRun> {
  const [run] = await fitInPasses(teacher, windows, [request], options);
  return run as FitRun;
}

/** The same for several codecs in the same passes, without controls. Codecs of one kind share their moments. */
export const fitCodecs = (
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  requests: readonly Request[],
  options: Omit<FitOptions, 'folder'>,
): Promise<FitRun[]> =>
  fitInPasses(
    teacher,
    windows,
    requests.map((request) => ({ ...request, controls: false })),
    options,
  );

async function fitInPasses(
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  requests: readonly Request[],
  options: FitOptions,
): Promise<FitRun[]> {
  const { geometry: g } = teacher;
  const strange = requests.find(({ codec }) => !isLatent(codec));
  if (strange) throw new UserError(`${strange.codec.kind} has no weights to fit`, 'fit lla, lla-2d, mla-head or hla');
  for (const { codec, initialisation } of requests) if (isHybrid(codec)) refuseHybridFit(g, initialisation);
  const { memoryBytes, onProgress, signal, folder, widestExact } = options;
  const plans = new Map<CodecKind, MomentsPlan>();
  for (const { kind } of requests.map(({ codec }) => codec)) {
    const alike = requests.filter(({ codec }) => codec.kind === kind);
    if (!plans.has(kind)) plans.set(kind, momentsPlan(g, alike, widestExact));
  }
  const longest = longestOf(windows);
  const tokens = longest * Math.min(windows.length, windowsTogether(g, longest));
  const passes = [...plans.values()]
    .map((plan) => layersOfPasses(g, plan, memoryBytes / plans.size, tokens))
    .reduce((most, own) => (own.length > most.length ? own : most));
  const jobs = requests.map((request) => ({ request, store: folder ?? new LayersInMemory() }));
  for (const [pass, layers] of passes.entries()) {
    if (jobs.every(({ store }) => layers.every((layer) => store.has(layer)))) continue;
    const kept = [...plans].flatMap(([kind, plan]) =>
      layers.map((layer) => ({ kind, plan, layer, moments: emptyMoments(plan) })),
    );
    const all = kept.flatMap(({ moments }) => AXES.flatMap((axis) => moments[axis]));
    const seen = folder?.restore(layers, all) ?? 0;
    const stopHere = (done: number): void => {
      if (!signal?.aborted) return;
      throw new UserError(
        `interrupted after ${Math.round((100 * (pass + done)) / passes.length)} % of the keys and values`,
        folder ? 'run it again: it goes on from there' : 'run it again',
        EXIT.interrupted,
      );
    };
    await capture(
      teacher,
      windows,
      async (captured, done) => {
        for (const { plan, layer, moments } of kept) await accumulate(plan, layer, moments, captured);
        const saves = folder?.isDue || done >= windows.length;
        if (saves) folder?.save(layers, done, all);
        onProgress?.((pass + done / windows.length) / passes.length, 'keys and values');
        // A signal is heard between turns of the event loop.
        await turn();
        if (signal?.aborted && !saves) folder?.save(layers, done, all);
        stopHere(done / windows.length);
      },
      seen,
    );
    for (const layer of layers) {
      for (const { request, store } of jobs) {
        if (store.has(layer)) continue;
        const own = kept.find(({ kind, layer: of }) => kind === request.codec.kind && of === layer)!.moments;
        const fitted = isHybrid(request.codec)
          ? fitHybridLayer(g, request.codec, layer, own, tensorsOf(teacher))
          : fitLayer({ ...request, geometry: g }, layer, own);
        store.put(layer, fitted);
      }
      onProgress?.((pass + 1) / passes.length, `directions of layer ${layer + 1} of ${g.layers}`);
      await turn();
      stopHere(1);
    }
    folder?.endPass();
  }
  return jobs.map(({ request, store }): FitRun => {
    const facts = store.facts();
    const kinds = Object.keys(facts[0]?.shares ?? {}) as Initialisation[];
    return {
      fitted: { codec: request.codec, tensors: store.tensors(), energy: facts.flatMap(({ energy }) => energy) },
      kept: Object.fromEntries(kinds.map((kind) => [kind, mean(facts.flatMap(({ shares }) => shares[kind] ?? []))])),
      tokens: sum(windows.map((window) => window.length)),
      passes: passes.length,
    };
  });
}
