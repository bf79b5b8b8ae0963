/**
 * The latent-cache decoder in float64: one sequence, any codec, path and eviction. The specification of the GPU
 * decoder.
 *
 * **A step.** Token n attends, at every (layer, loop), to what the cache holds of the tokens before it and to its own
 * exact key and value of that layer and loop (a loop-axis latent is complete after the last loop only); under cla, to
 * those of the layer that owns the cache, since the layers that share it project queries only. Then it joins the cache,
 * and the eviction policy runs.
 *
 * **Prefill** (paper, Sec. "Decoding and caching"). "Pass 1 captures the teacher's pre-RoPE per-loop K/V, the codec
 * reconstructs them, and pass 2 re-forwards forcing the reconstruction so the model's own RoPE and cache store the
 * post-RoPE reconstruction." So in pass 1 tokens attend to exact keys and values of their own chunk; in pass 2 every
 * key and value, **each token's own included**, is what the cache holds: storage rounding of what was encoded from
 * *pass 1's* keys and values. The cache is not encoded again from pass 2. One-shot, by-layer and accumulated prefill
 * take the prompt as one chunk and differ in when they encode, not in what. Chunked prefill does both passes chunk by
 * chunk; tokens of a chunk attend, in both passes, to the cache for the chunks before it, so from the second chunk on
 * the result is another one. Codecs without latents have nothing to reconstruct: one pass, whose tokens see exact keys
 * and values of their chunk. Eviction runs after each chunk. Attention of a prompt reads rows that are kept for it in
 * memory, exact ones and rebuilt ones: in 16 bits where the cache has 16 or fewer (schedule/prefill/pass.ts). Where
 * captures are encoded, these are the captures.
 *
 * **Loops that share rows** (codecs/codec.ts, `Sharing`). Under `two-pass` the last loop's rows of pass 1 are what pass
 * 2 attends to in every loop. Under `decode` a prompt is one exact pass, after which the shared rows alone stay. Under
 * `all` a prompt is decoded token by token, whatever the kind of prefill.
 *
 * **Packed loops** (flashloop.ts). A prompt is one exact pass, whole; some of its tokens leave out later loops.
 *
 * **Rotated latents** (hybrid.ts). A prompt is one exact pass, whole: later tokens read its latents and its last rows.
 *
 * **H2O** (Zhang et al., Alg. 1). A token's mass is the attention weight that later tokens give it, pooled over all
 * that lose tokens together (cache.ts); its weight on itself does not count, in steps as in prompts. A prompt is one
 * chunk as in the published implementation: nothing is evicted within it, every token attends to all before it, and at
 * its end the last `recent` stay and the `heavy` heaviest of the others. For prompts longer than the budget, decoding
 * token by token gives another result: there evicted tokens get no attention and no mass any more. The mass of a prompt
 * is that of the last pass, from which decoding continues. With latents that is pass 2, which attends to the stored
 * form of all tokens, kept or not.
 */
import type { Branch, Codec, Path } from '../../codecs/codec.js';
import type { StorageChoice } from '../../codecs/layout.js';
import { pathSpec } from '../../codecs/paths.js';
import {
  averagesLoops,
  codecSpec,
  evictionRefusalOf,
  isPacked,
  layoutOf,
  refusalOf,
  storageOfCodec,
  takesPositions,
  takesTwoPasses,
  takesWhole,
} from '../../codecs/registry.js';
import { UserError } from '../../errors.js';
import { evictionLabel, reindexes, weighsTokens, type Eviction } from '../../eviction/policy.js';
import type { Geometry } from '../../geometry/geometry.js';
import { capturesOf, keptRowType } from '../../schedule/prefill/prefill.js';
import { refuseCodec } from '../decodable.js';
import type { TensorSource } from '../weights.js';
import { product, split, type Vector } from './arithmetic.js';
import { attendHead, type AttendContext } from './attend.js';
import { SequenceCache, type Decisions } from './cache.js';
import { loadCodec, type LayerCodec } from './codec.js';
import { PackedLoops } from './flashloop.js';
import { loadHybrid, type HybridLayer } from './hybrid.js';
import type { Model } from './model.js';
import { overHeads, run, type Attention, type Projection, type Site } from './network.js';
import type { CacheType } from './storage.js';
import { CacheWriter, type Encoding } from './writer.js';

export interface DecoderOptions {
  readonly codec: Codec;
  readonly path: Path;
  readonly eviction: Eviction | null;
  readonly choice: StorageChoice;
  readonly branch: Branch;
  /** Cached rows stay in float64, whatever `choice` says. */
  readonly exactStorage?: boolean;
  /** `reconstruct` only: a step rebuilds rows in f16 before attention reads them. */
  readonly materialised?: boolean;
  readonly decisions?: Decisions;
}

export type PrefillKind = Encoding | 'chunked';

/**
 * How a token of a pass reads keys and values of the pass: exact ones; from the cache (pass 2); or its own exact and
 * from the cache those of the tokens before it, as if these had been decoded one by one.
 */
type OwnTokens = 'exact' | 'cached' | 'in-turn';

export class ReferenceDecoder {
  private readonly cache: SequenceCache;
  private readonly codecs: readonly LayerCodec[];
  private readonly hybrids: readonly HybridLayer[];
  private readonly packed: PackedLoops | undefined;
  /** Keys of the rotary branch of the tokens of this pass: made in the first loop that shares them. */
  private readonly branchKeys = new Map<string, readonly Vector[]>();
  /** State of the last token after each loop, for loops that begin with that of the token before. */
  private readonly before: Vector[] = [];
  private tokens = 0;
  /** Tokens that were proposed since the last that was decoded. */
  private drafted: readonly number[] = [];

  /**
   * @param codecWeights tensors of `codecTensors`; not read for codecs without parameters
   * @throws UserError for a combination that the codec refuses or cannot be read by the path
   */
  constructor(
    private readonly model: Model,
    codecWeights: TensorSource,
    readonly options: DecoderOptions,
  ) {
    const { codec, path, eviction, branch } = options;
    const g = model.geometry;
    const spec = codecSpec(codec);
    const reason = refusalOf(g, codec);
    if (reason !== undefined) throw new UserError(reason, 'choose other codec settings');
    refuseCodec(codec, 'reference');
    if (!spec.paths.includes(path) || (spec.fusedOnly && options.materialised))
      throw new UserError(`${codec.kind} cannot be read by the path ${path}`, `choose ${spec.paths.join(' or ')}`);
    const kept = evictionRefusalOf(g, codec);
    if (eviction && kept !== undefined)
      throw new UserError(`${codec.kind} goes with no eviction: ${kept}`, 'leave the eviction out');
    if (eviction && eviction.budgetTokens < 1)
      throw new UserError(`the eviction ${evictionLabel(eviction)} keeps no token`, 'give a budget of at least 1');
    if (pathSpec(path).branch && !(branch.width > 0 && branch.width % 2 === 0))
      throw new UserError(`a rotary branch has an even width, not ${branch.width}`, 'give a width such as 64');
    this.codecs = loadCodec(g, codec, path, branch, codecWeights);
    this.hybrids = loadHybrid(g, codec, codecWeights);
    if (isPacked(codec)) this.packed = new PackedLoops(g, codec, options.exactStorage ?? false);
    this.cache = new SequenceCache(
      g,
      // What is packed keeps its core elsewhere; prelude and coda are stored as any.
      this.packed
        ? layoutOf(
            g,
            { kind: 'full' },
            path,
            { ...options.choice, storage: storageOfCodec(codec, options.choice.storage) },
            branch,
          )
        : layoutOf(g, codec, path, options.choice, branch),
      eviction,
      options.exactStorage ?? false,
      options.decisions,
    );
  }

  get geometry(): Geometry {
    return this.model.geometry;
  }

  /** Tokens decoded so far, evicted ones included: the position of the next. */
  get length(): number {
    return this.tokens;
  }

  get cachedScalars(): number {
    return this.cache.scalars;
  }

  /** The core's cache of a codec that packs loops; undefined for others. */
  get packedLoops(): Pick<PackedLoops, 'cached' | 'bytes'> | undefined {
    return this.packed;
  }

  /** Positions that a KV head has in its cache, ascending. */
  keptPositions(site: Site, kvHead: number): readonly number[] {
    return this.cache.unit(site, kvHead).positions;
  }

  /** H2O's mass of a cached token. */
  massOf(site: Site, kvHead: number, position: number): number {
    return this.cache.unit(site, kvHead).mass.get(position) ?? 0;
  }

  /** Decodes one token. @returns its logits */
  step(token: number): Vector {
    return this.chunk([token], 'accumulated', 1)[0] as Vector;
  }

  /**
   * Proposes the token after `token` and those drafted before it: the first loops alone, whose rows the next draft
   * reads as a step would. They are freed when the round is verified.
   * @returns logits after loop `exitAfter`, through the coda, norm and head
   */
  draft(token: number, exitAfter: number): Vector {
    const position = this.tokens + this.drafted.length;
    const writer = this.writer('accumulated');
    // No latent that waits for later loops is finished.
    const attention = this.attention('in-turn', true, this.keptRows(undefined), writer);
    const [logits] = run(this.model, [token], [position], attention, { exitAfter });
    this.branchKeys.clear();
    this.drafted = [...this.drafted, position];
    return logits as Vector;
  }

  /**
   * One pass of all loops over a token and proposals after it, which gives each the logits of a step. The token and the
   * proposals that are accepted join the cache; rows of the others are freed.
   * @param accept how many of the proposals, given all logits
   */
  verify(tokens: readonly number[], accept: (logits: readonly Vector[]) => number): Vector[] {
    this.drafted = [];
    const positions = tokens.map((_, i) => this.tokens + i);
    const writer = this.writer('accumulated');
    const attention = this.attention('in-turn', true, this.keptRows(undefined), writer);
    const logits = run(this.model, tokens, positions, attention);
    writer.finish();
    this.branchKeys.clear();
    const joining = positions.slice(0, 1 + accept(logits));
    this.cache.join(joining);
    this.tokens += joining.length;
    return logits;
  }

  /**
   * Prefills a prompt of at least one token.
   * @param chunkTokens size of a chunk, for `chunked` only
   * @returns logits of every token, of the last pass
   */
  prefill(prompt: readonly number[], kind: PrefillKind, chunkTokens?: number): Vector[] {
    if (prompt.length === 0) throw new UserError('the prompt has no tokens', 'give at least one');
    if (kind === 'chunked' && !(chunkTokens !== undefined && Number.isInteger(chunkTokens) && chunkTokens > 0)) {
      throw new UserError(
        `chunked prefill takes a whole number of tokens a chunk, not ${chunkTokens}`,
        'give at least 1',
      );
    }
    const { codec } = this.options;
    const passes = takesTwoPasses(codec) ? 2 : 1;
    if (takesWhole(codec) && this.tokens > 0)
      throw new UserError(
        `${codec.kind} takes a prompt in whole: it attends exactly, and the cache keeps no exact rows of ` +
          `${this.tokens} tokens`,
        'begin another decoder, or decode token by token',
      );
    const inChunks = kind === 'chunked' && !takesWhole(codec);
    const size = takesPositions(codec) ? 1 : inChunks ? (chunkTokens as number) : prompt.length;
    const rows = this.options.exactStorage ? 'f64' : keptRowType(this.options, capturesOf(this.options, kind));
    const encoding = kind === 'chunked' ? 'accumulated' : kind;
    const logits: Vector[] = [];
    for (let start = 0; start < prompt.length; start += size)
      logits.push(...this.chunk(prompt.slice(start, start + size), encoding, passes, rows));
    return logits;
  }

  /**
   * One or two passes over consecutive tokens, which then join the cache.
   * @param rows element type of the rows that a prompt's attention reads; not given in a step
   */
  private chunk(tokens: readonly number[], encoding: Encoding, passes: 1 | 2, rows?: CacheType): Vector[] {
    const positions = tokens.map((_, i) => this.tokens + i);
    const writer = this.writer(encoding, rows);
    const kept = this.keptRows(rows);
    const rowsOf = rows === undefined ? undefined : this.packed?.beginPrompt(rows);
    let logits = run(this.model, tokens, positions, this.attention('exact', passes === 1, kept, writer), {
      ...(rowsOf ? { rowsOf } : {}),
      before: this.before,
    });
    writer.finish();
    this.packed?.join();
    if (passes === 2) logits = run(this.model, tokens, positions, this.attention('cached', true, kept));
    this.branchKeys.clear();
    this.cache.join(positions);
    this.tokens += tokens.length;
    return logits;
  }

  private writer(encoding: Encoding, rows?: CacheType): CacheWriter {
    const { path, codec } = this.options;
    return new CacheWriter(path, this.codecs, this.cache, encoding, averagesLoops(codec), rows, this.hybrids);
  }

  /**
   * Under H2O a prompt loads the rows that the cache has of full width, too. Other prompts read these where they are.
   * A step keeps rebuilt rows alone, where it materialises them.
   */
  private keptRows(rows: CacheType | undefined): AttendContext['kept'] {
    const { eviction, materialised } = this.options;
    if (rows !== undefined) return { as: rows, from: weighsTokens(eviction) ? 0 : this.tokens };
    return materialised ? { as: 'f16', from: Infinity } : undefined;
  }

  /**
   * @param own how a token of the pass reads keys and values of the pass
   * @param counts whether H2O counts the attention weights
   * @param kept rows that are in memory of a type of its own before attention reads them
   * @param writer takes the exact keys and values, in the pass that captures them
   */
  private attention(own: OwnTokens, counts: boolean, kept: AttendContext['kept'], writer?: CacheWriter): Attention {
    const { geometry } = this.model;
    /** cla: tokens of the pass as the last owning layer had them. */
    let owners: readonly Projection[] = [];
    return (site, projections, { window = Infinity, rowsWritten } = {}) => {
      if (this.packed && site.block === 'core') return this.packed.attend(site, projections);
      if (this.ownsCache(site)) owners = projections;
      const tokens = projections.map((token, n) => ({
        ...token,
        keys: (owners[n] as Projection).keys,
        values: (owners[n] as Projection).values,
      }));
      const codec = site.block === 'core' ? this.codecs[site.layer] : undefined;
      const hybrid = site.block === 'core' ? this.hybrids[site.layer] : undefined;
      if (codec?.branch) this.projectBranchKeys(codec, site, tokens, writer !== undefined);
      if (own === 'in-turn') for (const token of tokens) writer?.capture(site, token);
      const outputs = tokens.map((token, n) => {
        const branchQueries =
          codec?.branch && split(product(codec.branch.query, token.input), this.options.branch.width);
        const inWindow = (p: number): boolean => p > token.position - window;
        const upToHere = tokens.slice(0, n + 1).filter((t) => inWindow(t.position));
        return overHeads(geometry, token, (query, head, kvHead) => {
          const unit = this.cache.unit(site, kvHead);
          const exact = own === 'exact' ? upToHere : own === 'cached' ? [] : [token];
          const inCache = upToHere.slice(0, upToHere.length - exact.length).map((t) => t.position);
          const earlier = [...unit.positions, ...this.drafted].filter(inWindow);
          const visible = { cached: [...earlier, ...inCache], exact };
          const branch = branchQueries && {
            query: branchQueries[head] as Vector,
            key: (t: Projection) => this.branchKey(site, kvHead, t.position),
          };
          const context = {
            geometry,
            path: this.options.path,
            cache: this.cache,
            site,
            kvHead,
            reindexed: reindexes(this.options.eviction),
            codec,
            // Prompts attend through latents alone.
            hybrid,
            ...((codec ?? hybrid) && own !== 'cached' && counts
              ? { exactFrom: token.position - (this.options.codec.windowTokens ?? 0) }
              : {}),
            ...(kept ? { kept } : {}),
          };
          const { output, weights } = attendHead(
            branch ? { ...context, branch } : context,
            query,
            token.position,
            visible,
          );
          if (counts) {
            const before = [...visible.cached, ...visible.exact.map((t) => t.position)].slice(0, -1);
            before.forEach((p, i) => unit.mass.set(p, (unit.mass.get(p) ?? 0) + (weights[i] as number)));
          }
          return output;
        });
      });
      if (own !== 'in-turn' && !rowsWritten) for (const token of tokens) writer?.capture(site, token);
      return outputs;
    };
  }

  /** False for layers that share the cache of a layer before them (cla). */
  private ownsCache(site: Site): boolean {
    return site.block !== 'core' || site.layer % (this.options.codec.shareLayers ?? 1) === 0;
  }

  /**
   * The rotary branch's keys of a pass's tokens, one a KV head or one for all. A token has one key for all loops that
   * share its latent, made from its state in the first of them, so that all of them can use it. Pass 1's are cached,
   * rotated.
   */
  private projectBranchKeys(codec: LayerCodec, site: Site, tokens: readonly Projection[], write: boolean): void {
    const { loops } = this.cache.shared('rotary-key', site);
    if (site.loop % loops !== 0 || !codec.branch || !write) return;
    for (const token of tokens) {
      const keys = split(product(codec.branch.key, token.input), this.options.branch.width);
      this.branchKeys.set([site.layer, token.position].join(), keys);
      keys.forEach((key, head) => this.cache.writeRotated('rotary-key', site, head, token.position, key));
    }
  }

  private branchKey(site: Site, kvHead: number, position: number): Vector {
    const keys = this.branchKeys.get([site.layer, position].join()) as readonly Vector[];
    return keys[keys.length === 1 ? 0 : kvHead] as Vector;
  }
}
