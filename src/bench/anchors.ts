/** The kernel calls that real decode steps of a model contain: what a calibration should measure first. */
import { CODECS } from '../codecs/registry.js';
import type { Codec, Path } from '../codecs/codec.js';
import type { Geometry } from '../geometry/geometry.js';
import { GROUP_SIZE, type KernelCall } from '../schedule/kernels.js';
import { forEachOp, schedule, type Configuration } from '../schedule/schedule.js';

/** Codecs whose operations have kernels: rows that all heads share (lla-2d, mla-head) and quantised ones wait for theirs. */
const KINDS = ['full', 'lla'] as const;

export interface AnchorRange {
  readonly contexts: readonly number[];
  readonly batches: readonly number[];
  readonly targetWorkgroups: number;
  /** Largest binding of the device, bytes. */
  readonly bindingBytes: number;
}

/** Distinct calls of every codec, published ratio and path over contexts and batches. */
export function anchorCalls(g: Geometry, range: AnchorRange): KernelCall[] {
  const calls = new Map<string, KernelCall>();
  for (const kind of KINDS) {
    const spec = CODECS[kind];
    const codecs = spec.publishedRatios(g).map((r) => spec.fromRatio(g, r)).filter((c): c is Codec => typeof c !== 'string' && spec.refuse(g, c) === undefined);
    for (const codec of codecs) for (const path of spec.paths) for (const materialised of path === 'reconstruct' ? [false, true] : [false]) collect(calls, configuration(g, codec, path, materialised, range), range);
  }
  return [...calls.values()];
}

const configuration = (geometry: Geometry, codec: Codec, path: Path, materialised: boolean, range: AnchorRange): Configuration => ({
  geometry, codec, path, materialised, choice: { storage: 'f16', groupSize: GROUP_SIZE }, branch: { width: 64, perHead: false }, eviction: null, gpus: 1, targetWorkgroups: range.targetWorkgroups, bindingBytes: range.bindingBytes,
});

function collect(calls: Map<string, KernelCall>, c: Configuration, range: AnchorRange): void {
  for (const context of range.contexts) {
    for (const batch of range.batches) {
      forEachOp(c, schedule(c, batch, context), ({ kernel, variant, shape }) => {
        const key = `${kernel} ${variant} ${JSON.stringify(shape)}`;
        if (!calls.has(key)) calls.set(key, { kernel, variant, shape });
      });
    }
  }
}
