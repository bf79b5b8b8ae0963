/**
 * Pre-RoPE keys and values of every loop, layer and head, from the decoder itself: windows of tokens are prefilled into
 * a full f32 cache, which is read back layer by layer; keys are turned back by their positions.
 */
import { openDecoder, type CachedRows, type DecoderWeights, type GpuDecoder } from '../decoder/gpu/index.js';
import { rotate } from '../decoder/reference/arithmetic.js';
import { fabricate, modelTensors, storedAs, type TensorSource } from '../decoder/index.js';
import type { CodecAxis } from '../decoder/tensors.js';
import { cacheSlots, type Geometry } from '../geometry/geometry.js';
import type { Device } from '../gpu/index.js';
import { DEFAULT_TARGET_WORKGROUPS } from '../plan/ask/settings.js';
import type { Configuration } from '../schedule/schedule.js';

/** A model and where it runs. */
export interface Teacher {
  readonly device: Device;
  readonly geometry: Geometry;
  readonly normEpsilon: number;
  readonly weights: DecoderWeights;
}

/** The model's tensors, not rounded. */
export const givenTensors = ({ geometry: g, weights }: Teacher): TensorSource =>
  weights.model ?? fabricate(modelTensors(g), { ...weights, tiedEmbeddings: g.tiedEmbeddings, codec: 'random' });

/** The same as the decoder stores them. */
export const tensorsOf = (teacher: Teacher): TensorSource => storedAs(givenTensors(teacher), teacher.weights.storage);

export const exactConfiguration = ({ device, geometry }: Teacher): Configuration => ({
  geometry,
  codec: { kind: 'full' },
  path: 'full',
  materialised: false,
  choice: { storage: 'f32', groupSize: 64 },
  branch: { width: 64, perHead: false },
  eviction: null,
  gpus: 1,
  targetWorkgroups: DEFAULT_TARGET_WORKGROUPS,
  bindingBytes: device.limits.maxStorageBufferBindingSize,
});

/** Does something with a decoder of the model. @throws GpuError, and what `work` throws */
export async function withDecoder<T>(
  { device, weights, normEpsilon }: Teacher,
  c: Configuration,
  options: Omit<Parameters<typeof openDecoder>[2], 'weights' | 'normEpsilon'>,
  work: (decoder: GpuDecoder) => Promise<T>,
): Promise<T> {
  const decoder = await openDecoder(device, c, { weights, normEpsilon, ...options });
  try {
    return await work(decoder);
  } finally {
    decoder.close();
  }
}

export interface Captured {
  readonly tokens: number;
  /** One axis of a core layer: [loop][KV head][component], each with that component of all tokens. */
  columns(axis: CodecAxis, layer: number): Promise<Float64Array[][][]>;
}

/** Windows that are prefilled together, and the cache that they may take. */
const MOST_WINDOWS = 8;
const CACHE_BYTES = 2 * 2 ** 30;

/** Windows that are prefilled together: their f32 cache takes at most 2 GiB, unless that of one window does not. */
export function windowsTogether(g: Geometry, windowTokens: number): number {
  const bytes = windowTokens * cacheSlots(g) * 2 * g.kvHeads * g.headDim * 4;
  return Math.max(1, Math.min(MOST_WINDOWS, Math.floor(CACHE_BYTES / bytes)));
}

export const longestOf = (windows: readonly (readonly number[])[]): number =>
  windows.reduce((most, window) => Math.max(most, window.length), 1);

/**
 * Goes through all windows once, in order.
 * @param windows tokens of each; each is a sequence of its own
 * @param visit is waited for. `done`: windows seen, those before `first` included
 * @param first the window to begin with, that a visit ended before
 */
export async function capture(
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  visit: (captured: Captured, done: number) => Promise<void>,
  first = 0,
): Promise<void> {
  const { geometry: g } = teacher;
  const together = windowsTogether(g, longestOf(windows));
  for (let from = first; from < windows.length; from += together) {
    const batch = windows.slice(from, from + together);
    const size = { batch: batch.length, contextTokens: Math.max(...batch.map((window) => window.length)) };
    await withDecoder(teacher, exactConfiguration(teacher), size, async (decoder) => {
      await decoder.prefill(batch);
      await visit(
        {
          tokens: batch.reduce((sum, window) => sum + window.length, 0),
          columns: async (axis, layer) => {
            const loops: Float64Array[][][] = [];
            for (let loop = 0; loop < g.loops; loop++)
              loops.push(
                columnsOf(g, axis, await decoder.cached(axis, { block: 'core', layer, loop }), decoder.lengths),
              );
            return loops;
          },
        },
        from + batch.length,
      );
    });
  }
}

/** [KV head][component] over all tokens of all sequences. @param lengths tokens of each sequence */
function columnsOf(g: Geometry, axis: CodecAxis, cached: CachedRows, lengths: readonly number[]): Float64Array[][] {
  const { headDim, rope } = g;
  const tokens = lengths.reduce((sum, length) => sum + length, 0);
  return Array.from({ length: g.kvHeads }, (_, head) => {
    const columns = Array.from({ length: headDim }, () => new Float64Array(tokens));
    let at = 0;
    for (const [sequence, length] of lengths.entries()) {
      for (let position = 0; position < length; position++, at++) {
        const row = cached.row(sequence, head, position) as Float64Array;
        const plain = axis === 'key' ? rotate(row, -position, rope) : row;
        columns.forEach((column, i) => (column[at] = plain[i] as number));
      }
    }
    return columns;
  });
}
