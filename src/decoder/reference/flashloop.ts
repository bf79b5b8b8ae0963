/**
 * FlashLoop (codecs/flashloop.ts) in float64: attention of the core over packed loops, and the tokens of a prompt that
 * run each of them.
 *
 * **A prompt** attends exactly, in one pass. Tokens that do not run a loop keep the rows that they have of the loop
 * before, and the others attend to these. Then all but the tail is packed.
 *
 * **A step** reads all tokens in the dense loops. The last of these says, for each query head, which keys the loops
 * after it read: they add what their own rows of these keys change to that loop's output.
 */
import type { Codec } from '../../codecs/codec.js';
import { constantsOf } from '../../codecs/flashloop-constants.js';
import {
  mixed,
  rowScore,
  selectedKeys,
  selectedRows,
  sparseAttention,
  type RoundTo,
  type SelectedKeys,
} from '../../codecs/flashloop.js';
import { toF16 } from '../../codecs/small-floats.js';
import { appendRow, packRows, readRows, type PackedRows, type Packing } from '../../codecs/flashloop-rows.js';
import type { Geometry } from '../../geometry/geometry.js';
import { flashloopCacheBytes, type Both } from './flashloop-bytes.js';
import { rotate, softmax, type Vector } from './arithmetic.js';
import { overHeads, type Projection, type RowsOfLoop, type Site } from './network.js';
import { stored, type CacheType } from './storage.js';

type Row = readonly number[];
/** What a pass has made of a layer's KV head, by loop, of the tokens of the pass. */
type Made = Both<(readonly Row[])[]>;

/** The last dense loop of a query head. */
interface Second {
  readonly output: number[];
  readonly selected: SelectedKeys;
}

const AXES = ['keys', 'values'] as const;
const EXACT: RoundTo = (x) => x;

export class PackedLoops {
  /** [layer][KV head]. */
  private caches: readonly (readonly Both<PackedRows>[])[];
  private made: Made[][] = [];
  private readonly seconds = new Map<string, Second>();
  /** Of a prompt: the tokens that ran each loop, and the type of the rows that it attends to. */
  private prompt: { readonly ran: (readonly number[])[]; readonly as: CacheType } | null = null;
  private readonly packing: Packing & { readonly tail: number };
  private readonly constants;
  private readonly type: CacheType;

  /** @param exact rows stay in float64, and nothing is packed */
  constructor(
    private readonly g: Geometry,
    codec: Codec,
    exact: boolean,
  ) {
    this.constants = constantsOf(codec);
    this.type = exact ? 'f64' : 'f16';
    this.packing = { ...this.constants, to: exact ? EXACT : toF16, ...(exact ? { tail: Infinity } : {}) };
    this.caches = this.perHead(() => this.packed(() => Array.from({ length: g.loops }, () => []), []));
    this.forget();
  }

  private perHead<T>(make: (layer: number, kvHead: number) => T): T[][] {
    const { layers, kvHeads } = this.g;
    return Array.from({ length: layers }, (_, layer) =>
      Array.from({ length: kvHeads }, (_, head) => make(layer, head)),
    );
  }

  private packed(of: (axis: 'keys' | 'values') => readonly (readonly Row[])[], ran: readonly (readonly number[])[]) {
    const selected = Array.from({ length: this.g.loops }, (_, loop) => ran[loop] ?? []);
    return {
      keys: packRows(of('keys'), selected, 'keys', this.packing),
      values: packRows(of('values'), selected, 'values', this.packing),
    };
  }

  private forget(): void {
    this.made = this.perHead(() => ({ keys: [], values: [] }));
    this.seconds.clear();
    this.prompt = null;
  }

  cached(layer: number, kvHead: number): Both<PackedRows> {
    return this.caches[layer]![kvHead]!;
  }

  bytes(): Uint8Array {
    return flashloopCacheBytes(this.caches, this.constants);
  }

  /** Begins a prompt. @param as type of the rows that it attends to */
  beginPrompt(as: CacheType): RowsOfLoop {
    const ran: (readonly number[])[] = [];
    this.prompt = { ran, as };
    let before: readonly Vector[] = [];
    return (loop, states) => {
      const { dense, rows } = this.constants;
      ran[loop] =
        loop < dense
          ? states.map((_, n) => n)
          : selectedRows(
              states.map((x, n) => rowScore([...x], [...before[n]!])),
              rows[loop]!,
              ran[loop - 1],
            );
      before = states.map((x) => x.slice());
      return ran[loop];
    };
  }

  /** Attention's output of the tokens that run a loop. */
  attend(site: Site, tokens: readonly Projection[]): Vector[] {
    this.take(site, tokens);
    return tokens.map((token) =>
      overHeads(this.g, token, (query, head, kvHead) => {
        const rotated = rotate(query, token.position, this.g.rope);
        const { layer, loop } = site;
        if (this.prompt) {
          const { keys, values } = this.made[layer]![kvHead]!;
          const [causal, own] = [keys[loop]!.slice(0, token.position + 1), values[loop]!];
          return Float64Array.from(mixed(softmax(this.scores(rotated, causal)), own.slice(0, token.position + 1)));
        }
        return Float64Array.from(this.step(site, head, kvHead, rotated));
      }),
    );
  }

  private scores(query: Vector, keys: readonly Row[]): number[] {
    return keys.map((key) => key.reduce((sum, k, c) => sum + query[c]! * k, 0) / Math.sqrt(this.g.headDim));
  }

  /** A step's attention of one query head: the token's own row is exact. */
  private step({ layer, loop }: Site, head: number, kvHead: number, query: Vector): number[] {
    const { dense, keys: share } = this.constants;
    const made = this.made[layer]![kvHead]!;
    const [keys, values] = AXES.map((axis) => [
      ...readRows(this.cached(layer, kvHead)[axis], loop, this.packing.to),
      ...made[axis][loop]!,
    ]) as [Row[], Row[]];
    const place = `${layer} ${head}`;
    const second = this.seconds.get(place);
    if (loop >= dense && second) {
      const { selected, output } = second;
      const own = selected.keys.map((i) => values[i]!);
      return sparseAttention(
        output,
        selected,
        this.scores(
          query,
          selected.keys.map((i) => keys[i]!),
        ),
        own,
      );
    }
    const weights = softmax(this.scores(query, keys));
    const output = mixed(weights, values);
    if (loop === dense - 1) this.seconds.set(place, { output, selected: selectedKeys(weights, values, share) });
    return output;
  }

  /** Rows of the tokens that run a loop; a prompt's others keep those of the loop before. */
  private take({ layer, loop }: Site, tokens: readonly Projection[]): void {
    const as = this.prompt?.as ?? 'f64';
    for (let kvHead = 0; kvHead < this.g.kvHeads; kvHead++) {
      const made = this.made[layer]![kvHead]!;
      const rows = { keys: [...(made.keys[loop - 1] ?? [])], values: [...(made.values[loop - 1] ?? [])] };
      tokens.forEach(({ position, keys, values }, i) => {
        const at = this.prompt ? position : i;
        rows.keys[at] = [...stored(rotate(keys[kvHead]!, position, this.g.rope), as, this.g.headDim)];
        rows.values[at] = [...stored(values[kvHead]!, as, this.g.headDim)];
      });
      for (const axis of AXES) made[axis][loop] = rows[axis];
    }
  }

  /** The pass is over: its tokens join the cache. */
  join(): void {
    const rounded = (rows: readonly Row[]): Row[] =>
      rows.map((row) => [...stored(Float64Array.from(row), this.type, row.length)]);
    const { prompt } = this;
    this.caches = this.perHead((layer, head) => {
      const made = this.made[layer]![head]!;
      const before = this.cached(layer, head);
      if (prompt) return this.packed((axis) => made[axis].map(rounded), prompt.ran);
      const grown = (axis: 'keys' | 'values'): PackedRows =>
        appendRow(
          before[axis],
          made[axis].map((rows) => rounded(rows)[0]!),
          this.packing,
        );
      return { keys: grown('keys'), values: grown('values') };
    });
    this.forget();
  }
}
