/**
 * How far attention's outputs move when earlier tokens are read from the codec's cache instead of exactly, on exact
 * queries (the paper's attention-output term). In float64 over the same rows, rounded as the cache stores them: the GPU
 * decoder keeps no outputs of single layers.
 */
import type { StorageChoice } from '../codecs/layout.js';
import { pathOf, pathSpec } from '../codecs/paths.js';
import { averagesLoops, isPacked, layoutOf } from '../codecs/registry.js';
import { attendHead } from '../decoder/reference/attend.js';
import { SequenceCache } from '../decoder/reference/cache.js';
import { loadCodec } from '../decoder/reference/codec.js';
import { loadHybrid } from '../decoder/reference/hybrid.js';
import { exactAttention } from '../decoder/reference/forward.js';
import type { Model } from '../decoder/reference/model.js';
import { run, type Projection, type Site } from '../decoder/reference/network.js';
import { CacheWriter } from '../decoder/reference/writer.js';
import type { TensorSource } from '../decoder/index.js';
import type { Row } from './grid.js';

/** Where attention happened: its inputs, and its exact outputs. */
interface Observed {
  readonly site: Site;
  readonly tokens: readonly Projection[];
  readonly outputs: readonly Float64Array[];
}

export function observe(model: Model, tokens: readonly number[]): Observed[] {
  const exact = exactAttention(model);
  const seen: Observed[] = [];
  run(
    model,
    tokens,
    tokens.map((_, n) => n),
    (site, projections) => {
      const outputs = exact(site, projections);
      seen.push({ site, tokens: projections, outputs });
      return outputs;
    },
  );
  return seen;
}

/**
 * ‖â − a‖ / ‖a‖ over all outputs of the core but those of the first token.
 * @returns null on the absorbed path, whose scores are others by design, under eviction, and where later loops read
 * keys that an earlier one chooses
 */
export function attentionError(
  model: Model,
  row: Row,
  choice: StorageChoice,
  codec: TensorSource,
  sequences: readonly (readonly Observed[])[],
): number | null {
  const { path } = pathOf(row.path);
  if (pathSpec(path).branch || row.eviction || isPacked(row.codec)) return null;
  const { geometry: g } = model;
  const branch = { width: 2, perHead: false };
  const codecs = loadCodec(g, row.codec, path, branch, codec);
  const hybrids = loadHybrid(g, row.codec, codec);
  const group = g.heads / g.kvHeads;
  let [difference, size] = [0, 0];
  for (const sequence of sequences) {
    const cache = new SequenceCache(g, layoutOf(g, row.codec, path, choice, branch), null, false);
    const writer = new CacheWriter(path, codecs, cache, 'accumulated', averagesLoops(row.codec), 'f64', hybrids);
    for (const { site, tokens } of sequence) for (const token of tokens) writer.capture(site, token);
    writer.finish();
    for (const { site, tokens, outputs } of sequence) {
      if (site.block !== 'core') continue;
      tokens.slice(1).forEach((token, before) =>
        token.queries.forEach((query, head) => {
          const { output } = attendHead(
            {
              geometry: g,
              path,
              cache,
              site,
              kvHead: Math.floor(head / group),
              reindexed: false,
              codec: codecs[site.layer],
              hybrid: hybrids[site.layer],
              exactFrom: token.position - (row.codec.windowTokens ?? 0),
            },
            query,
            token.position,
            { cached: Array.from({ length: before + 1 }, (_, n) => n), exact: [token] },
          );
          const exact = outputs[before + 1] as Float64Array;
          output.forEach((x, i) => {
            const a = exact[head * g.headDim + i] as number;
            difference += (x - a) ** 2;
            size += a ** 2;
          });
        }),
      );
    }
  }
  return Math.sqrt(difference / size);
}
