/** Turns a token's exact keys and values into cached rows, as each codec has it. */
import type { Path } from '../../codecs/codec.js';
import { pathSpec } from '../../codecs/paths.js';
import type { CodecAxis } from '../tensors.js';
import { accumulate, joined, rotate, type Vector } from './arithmetic.js';
import type { SequenceCache } from './cache.js';
import { decode, encode, encodeShare, groupOf, offsetOf, type AxisCodec, type LayerCodec } from './codec.js';
import { encodeInput, partsOf, rolesOf, rotateLatent, type HybridLayer } from './hybrid.js';
import type { Projection, Site } from './network.js';
import { stored, type CacheType } from './storage.js';

/**
 * When a stack of loops is encoded: loop by loop (an accumulator a latent), after its last loop (a layer's captures are
 * kept until then), or after the whole pass (all captures are kept). The latents are the same.
 */
export type Encoding = 'accumulated' | 'by-layer' | 'one-shot';

const AXES = [
  { axis: 'key', latent: 'key-latent', vectors: 'keys' },
  { axis: 'value', latent: 'value-latent', vectors: 'values' },
] as const satisfies readonly { axis: CodecAxis; latent: string; vectors: 'keys' | 'values' }[];

/** A latent under construction: of one token, layer, axis and group. */
interface Pending {
  readonly codec: AxisCodec;
  readonly site: Site;
  readonly axis: CodecAxis;
  readonly group: number;
  readonly position: number;
  /** The accumulator c, or the captured stack x. */
  readonly data: Vector;
}

/** Keys and values of a token in a layer, one vector a KV head, not rotated. */
type Rows = Pick<Projection, 'keys' | 'values'>;

export class CacheWriter {
  private readonly pending = new Map<string, Pending>();
  /** Latents of layers and tokens whose last loop is to come. */
  private readonly accumulated = new Map<string, Vector>();
  /** Means of layers and tokens whose last loop is to come. */
  private readonly means = new Map<string, Rows>();
  /** Rows of layers and tokens that wait for further loops. */
  private readonly held = new Map<string, readonly Rows[]>();

  constructor(
    private readonly path: Path,
    private readonly codecs: readonly LayerCodec[],
    private readonly cache: SequenceCache,
    private readonly encoding: Encoding,
    /** Loops that share rows of full width share their means. */
    private readonly averages: boolean,
    /** Element type of captured rows, which are those that attention of pass 1 reads. */
    private readonly capturesAs: CacheType = 'f64',
    /** Of rotated latents, in place of `codecs`. */
    private readonly hybrids: readonly HybridLayer[] = [],
  ) {}

  /** Takes a token's exact keys and values at a site: writes what is complete, keeps what is not. */
  capture(site: Site, token: Projection): void {
    const codec = site.block === 'core' ? this.codecs[site.layer] : undefined;
    if (codec) this.captureLatents(codec, site, token);
    const hybrid = site.block === 'core' ? this.hybrids[site.layer] : undefined;
    if (hybrid) this.captureHybrid(hybrid, site, token);
    // A window has exact rows beside latents.
    if ((!codec && !hybrid) || (this.cache.has('key-latent', site) && this.cache.has('key', site)))
      this.writeFullWidth(site, token);
  }

  /** The pass is over: encodes the remaining stacks. */
  finish(): void {
    for (const latent of this.pending.values()) this.complete(latent);
    this.pending.clear();
  }

  /**
   * cla: the first of the layers that share; final-loop: the last loop; mean-loop: the mean up to the last loop. Keys
   * are rotated by their position, which all loops share: the mean of rotated keys is the rotated mean.
   */
  private writeFullWidth(site: Site, token: Projection): void {
    if (this.cache.holdsLoops(site)) return this.writeTogether(site, token);
    const { layers, loops } = this.cache.shared('key', site);
    if (site.layer % layers !== 0) return;
    const rows = this.averages ? this.meanWith(site, token, loops) : token;
    if ((site.loop + 1) % loops !== 0) return;
    rows.keys.forEach((key, head) => this.cache.writeRotated('key', site, head, token.position, key));
    rows.values.forEach((value, head) => this.cache.write('value', site, head, token.position, value));
  }

  /** Rows of the loops that are stored together, in the type in which they wait. */
  private writeTogether({ block, layer, loop }: Site, token: Projection): void {
    const site = { block, layer, loop };
    const { loops } = this.cache.shared('key', site);
    const key = [block, layer, token.position].join();
    const held = [...(this.held.get(key) ?? []), token];
    this.held.set(key, held);
    if ((loop + 1) % loops !== 0) return;
    this.held.delete(key);
    const waiting = (x: Vector): Vector => stored(x, this.capturesAs, x.length);
    const { rope } = this.cache;
    token.keys.forEach((_, head) => {
      const keys = held.map((t) => waiting(rotate(t.keys[head] as Vector, token.position, rope)));
      const values = held.map((t) => waiting(t.values[head] as Vector));
      this.cache.write('key', site, head, token.position, joined(keys));
      this.cache.write('value', site, head, token.position, joined(values));
    });
  }

  /** The sum of x_t / T up to this loop. */
  private meanWith({ block, layer, loop }: Site, token: Projection, loops: number): Rows {
    const key = [block, layer, token.position].join();
    const zeros = (of: readonly Vector[]): Vector[] => of.map((x) => new Float64Array(x.length));
    const mean = this.means.get(key) ?? { keys: zeros(token.keys), values: zeros(token.values) };
    this.means.set(key, mean);
    for (const what of ['keys', 'values'] as const)
      mean[what].forEach((row, head) => accumulate(row, token[what][head] as Vector, 1 / loops));
    if ((loop + 1) % loops === 0) this.means.delete(key);
    return mean;
  }

  /** The first loop's latent is complete at once, that of the others after the last of them. */
  private captureHybrid(layer: HybridLayer, { block, ...site }: Site, { input, position }: Projection): void {
    const key = [site.layer, position].join();
    const latent = encodeInput(layer, site.loop, input);
    if (site.loop > 1) accumulate(latent, this.accumulated.get(key) as Vector);
    this.accumulated.set(key, latent);
    if (site.loop > 0 && site.loop + 1 < this.cache.loopsOf(block)) return;
    this.accumulated.delete(key);
    const parts = partsOf(layer, site.loop, latent);
    const roles = rolesOf(site.loop);
    const at = { block, ...site };
    this.cache.write(roles.key, at, 0, position, rotateLatent(parts.key, position, this.cache.geometry));
    this.cache.write(roles.value, at, 0, position, parts.value);
  }

  private captureLatents(codec: LayerCodec, site: Site, token: Projection): void {
    for (const { axis, vectors } of AXES) {
      const parts = codec[axis];
      token[vectors].forEach((x, head) => {
        const latent = this.pendingLatent(parts, axis, site, head, token.position);
        if (this.encoding === 'accumulated') encodeShare(parts, latent.data, site.loop, head, x);
        else latent.data.set(this.captured(axis, token.position, x), offsetOf(parts, site.loop, head));
      });
      if (this.encoding === 'one-shot' || (site.loop + 1) % parts.groups.loops !== 0) continue;
      for (const [key, latent] of this.pending) {
        if (latent.axis !== axis || latent.site.layer !== site.layer || latent.position !== token.position) continue;
        this.complete(latent);
        this.pending.delete(key);
      }
    }
  }

  /** A captured row as it is encoded: keys are captured rotated where attention reads them so, and rotated back. */
  private captured(axis: CodecAxis, position: number, x: Vector): Vector {
    if (axis === 'value' || pathSpec(this.path).branch) return stored(x, this.capturesAs, x.length);
    const { rope } = this.cache;
    return rotate(stored(rotate(x, position, rope), this.capturesAs, x.length), -position, rope);
  }

  private pendingLatent(codec: AxisCodec, axis: CodecAxis, site: Site, kvHead: number, position: number): Pending {
    const group = groupOf(codec, site.loop, kvHead);
    const key = [axis, site.layer, group, position].join();
    const width = this.encoding === 'accumulated' ? codec.rank : codec.groups.width;
    const latent = this.pending.get(key) ?? { codec, axis, site, group, position, data: new Float64Array(width) };
    this.pending.set(key, latent);
    return latent;
  }

  /**
   * Stores a latent, or on the `fast` path the keys (rotated) and values that it decodes to, for all its loops and
   * heads.
   */
  private complete({ codec, axis, site, group, position, data }: Pending): void {
    const latent = this.encoding === 'accumulated' ? data : encode(codec, group, data);
    const { groups, kvHeads } = codec;
    const headGroups = kvHeads / groups.heads;
    const firstLoop = Math.floor(group / headGroups) * groups.loops;
    const firstHead = (group % headGroups) * groups.heads;
    if (!pathSpec(this.path).restores) {
      this.cache.write(
        axis === 'key' ? 'key-latent' : 'value-latent',
        { ...site, loop: firstLoop },
        firstHead,
        position,
        latent,
      );
      return;
    }
    for (let loop = firstLoop; loop < firstLoop + groups.loops; loop++) {
      for (let head = firstHead; head < firstHead + groups.heads; head++) {
        const row = decode(codec, loop, head, latent);
        if (axis === 'key') this.cache.writeRotated('key', { ...site, loop }, head, position, row);
        else this.cache.write('value', { ...site, loop }, head, position, row);
      }
    }
  }
}
