/** Where a fit puts the layers that it has finished: in memory, or in a folder from which another run goes on. */
import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { SafetensorsFile } from '../decoder/safetensors.js';
import { combined, inMemory, type TensorSource, type TensorSpec } from '../decoder/index.js';
import { requireTensors } from '../decoder/tensors.js';
import { headerBytes, safetensorsParts } from '../decoder/write-safetensors.js';
import { UserError } from '../errors.js';
import { displayPath, readAt } from '../io/files.js';
import { cannotWrite, makeFolder, writeWhole } from '../io/write.js';
import type { FittedLayer } from './fit.js';
import type { Moments } from './covariance.js';

/** What a fit says of a finished layer beside its tensors. */
export type LayerFacts = Omit<FittedLayer, 'tensors'>;

const inOrder = (layers: ReadonlyMap<number, LayerFacts>): LayerFacts[] =>
  [...layers].sort(([a], [b]) => a - b).map(([, facts]) => facts);

export class LayersInMemory {
  private readonly layers = new Map<number, FittedLayer>();

  has(layer: number): boolean {
    return this.layers.has(layer);
  }

  put(layer: number, fitted: FittedLayer): void {
    this.layers.set(layer, fitted);
  }

  facts(): readonly LayerFacts[] {
    return inOrder(this.layers);
  }

  tensors(): TensorSource {
    return inMemory([...this.layers.values()].flatMap(({ tensors }) => tensors));
  }
}

/** A save may take this share of the time that passes between two. */
const SAVE_SHARE = 0.05;
const SCHEMA = 'lla-sim/capture';
const layerFile = (layer: number): string => `layer-${String(layer).padStart(4, '0')}.safetensors`;
const [QUESTION, PASS] = ['question', 'pass'];
const OWN_FILE = /^(question|pass|layer-\d{4,}\.safetensors)$/;

/**
 * A folder beside the output: finished layers, and the moments of the pass that is under way. A run of the same
 * question goes on from it; `remove` ends it.
 */
export class FitFolder {
  private readonly known = new Map<number, LayerFacts>();
  private readonly open: SafetensorsFile[] = [];
  private savedAt = -Infinity;
  private saveSeconds = 0;

  /**
   * @param question what it must be of
   * @param specs tensors of all layers
   * @throws UserError for a folder of another fit, one that is damaged, and where none can be made
   */
  constructor(
    private readonly path: string,
    question: string,
    private readonly specs: readonly TensorSpec[],
  ) {
    const file = join(path, QUESTION);
    try {
      makeFolder(path, '--output');
      if (readdirSync(path).some((name) => OWN_FILE.test(name))) {
        if (!existsSync(file) || readFileSync(file, 'utf8') !== question)
          throw new UserError(
            `${displayPath(path)} holds keys and values of another model, text or setting`,
            'remove it, or give another --output',
          );
      } else writeWhole(file, question, '--output');
    } catch (error) {
      throw cannotWrite('--output', path, error);
    }
    for (const name of readdirSync(path)) {
      const [, digits] = /^layer-(\d+)\.safetensors$/.exec(name) ?? [];
      if (digits !== undefined) this.known.set(Number(digits), this.factsOf(Number(digits)));
    }
  }

  private damaged(what: string): UserError {
    return new UserError(`${displayPath(join(this.path, what))} is damaged`, `remove ${displayPath(this.path)}`);
  }

  private factsOf(layer: number): LayerFacts {
    const name = layerFile(layer);
    try {
      const file = new SafetensorsFile(join(this.path, name));
      this.open.push(file);
      const own = this.specs.filter((spec) => spec.name.startsWith(`codec.layers.${layer}.`));
      requireTensors(own, file.shapes, name);
      const facts = JSON.parse(file.metadata['facts'] ?? '') as Partial<LayerFacts>;
      if (own.length === 0 || !Array.isArray(facts.energy) || typeof facts.shares !== 'object') throw new Error(name);
      return facts as LayerFacts;
    } catch {
      throw this.damaged(name);
    }
  }

  has(layer: number): boolean {
    return this.known.has(layer);
  }

  put(layer: number, { tensors, ...facts }: FittedLayer): void {
    const name = layerFile(layer);
    const parts = safetensorsParts(tensors, ({ values }) => values, { facts: JSON.stringify(facts) });
    writeWhole(join(this.path, name), parts, '--output');
    this.known.set(layer, this.factsOf(layer));
  }

  facts(): readonly LayerFacts[] {
    return inOrder(this.known);
  }

  tensors(): TensorSource {
    return combined(...this.open);
  }

  /** Whether saving now would take less than its share of the time since the last save. */
  get isDue(): boolean {
    return (performance.now() - this.savedAt) / 1e3 >= this.saveSeconds / SAVE_SHARE;
  }

  /** Saves the moments of a pass over these layers. @param windows seen so far */
  save(layers: readonly number[], windows: number, moments: readonly Moments[]): void {
    const began = performance.now();
    const header = { schema: SCHEMA, layers, windows, counts: moments.map(({ count }) => count) };
    const parts = function* (): Generator<Uint8Array> {
      yield headerBytes(header);
      for (const { arrays } of moments)
        for (const own of arrays) yield new Uint8Array(own.buffer, own.byteOffset, own.byteLength);
    };
    writeWhole(join(this.path, PASS), parts(), '--output');
    this.savedAt = performance.now();
    this.saveSeconds = (this.savedAt - began) / 1e3;
  }

  /**
   * Fills the moments of a pass with those that were saved.
   * @returns windows that they have seen; 0 where none of this pass were saved
   * @throws UserError where the file is not whole
   */
  restore(layers: readonly number[], moments: readonly Moments[]): number {
    const path = join(this.path, PASS);
    if (!existsSync(path)) return 0;
    const fd = openSync(path, 'r');
    try {
      let at = 0;
      const fill = (target: Uint8Array): void => {
        if (readAt(fd, target, at) < target.length) throw this.damaged(PASS);
        at += target.length;
      };
      const size = new BigUint64Array(1);
      fill(new Uint8Array(size.buffer));
      if ((size[0] as bigint) > BigInt(statSync(path).size)) throw this.damaged(PASS);
      const text = new Uint8Array(Number(size[0]));
      fill(text);
      const saved = this.headerOf(text);
      if (JSON.stringify(saved.layers) !== JSON.stringify(layers)) return 0;
      const arrays = moments.flatMap((own) => own.arrays);
      const bytes = arrays.reduce((sum, own) => sum + own.byteLength, at);
      if (saved.counts.length !== moments.length || bytes !== statSync(path).size) throw this.damaged(PASS);
      for (const own of arrays) fill(new Uint8Array(own.buffer, own.byteOffset, own.byteLength));
      moments.forEach((own, i) => (own.count = saved.counts[i] as number));
      return saved.windows;
    } finally {
      closeSync(fd);
    }
  }

  private headerOf(text: Uint8Array): { layers: number[]; windows: number; counts: number[] } {
    try {
      const header = JSON.parse(new TextDecoder().decode(text)) as Record<string, unknown>;
      const { schema, layers, windows, counts } = header;
      const isCount = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) >= 0;
      if (schema !== SCHEMA || !isCount(windows) || !Array.isArray(layers)) throw new Error(PASS);
      if (!Array.isArray(counts) || !counts.every(isCount)) throw new Error(PASS);
      return { layers: layers as number[], windows, counts };
    } catch {
      throw this.damaged(PASS);
    }
  }

  /** A pass is over: its layers are stored. */
  endPass(): void {
    rmSync(join(this.path, PASS), { force: true });
  }

  /** Closes its files. A folder from which nothing could go on is removed. */
  close(): void {
    for (const file of this.open.splice(0)) file.close();
    if (!existsSync(this.path)) return;
    const left = readdirSync(this.path);
    if (left.length === 1 && left[0] === QUESTION) rmSync(this.path, { recursive: true });
  }

  /** Removes what it has written, and the folder where nothing else is in it. */
  remove(): void {
    this.close();
    if (!existsSync(this.path)) return;
    for (const name of readdirSync(this.path)) if (OWN_FILE.test(name)) rmSync(join(this.path, name), { force: true });
    if (readdirSync(this.path).length === 0) rmdirSync(this.path);
  }
}
