/**
 * The address of every bit of a cached scalar. A cache is an array of 32-bit words; tokens come in tiles of 32, so that
 * any bit count and any width fill whole words. The same addresses in WGSL: cache_layout.wgsl (reading) and
 * cache_store.wgsl (writing).
 *
 * A *unit* is the smallest run of components of one token that fills whole words; its words are its *planes*. What is
 * left of a row beyond whole units is its *tail*: there the 32 tokens of a tile share words instead. A tile's words, in
 * this order:
 *
 *   main     [token][quad], whole quads of four of a token's words, so that 16 bytes are read at once
 *   rest     [word][token], what words are left of a token: four tokens fill 16 bytes
 *   tails    [tail component][word], 32 tokens packed as a unit packs components
 *   scales   [group][word], f16, two tokens a word (quantised storages only)
 */
import { UserError } from '../../src/errors.js';
import { GROUP_SIZE, isQuantised, padded, STORAGE_BITS, type OwnStorage, type Storage, TILE_TOKENS } from '../spec.js';
import { halfBits, halfValue } from './half.js';
import { stored, type BufferPlan, type Role } from './plan.js';

/** Words of a group's scales in a tile: 32 halves. */
const SCALE_WORDS = TILE_TOKENS / 2;

/** Tokens reserved for a row: whole tiles. */
export const capacityOf = (tokens: number): number => Math.ceil(tokens / TILE_TOKENS) * TILE_TOKENS;

/** Components and words of a unit, by storage. */
const UNITS: Record<OwnStorage, { readonly components: number; readonly planes: number }> = {
  f32: { components: 1, planes: 1 },
  f16: { components: 2, planes: 1 },
  q8: { components: 4, planes: 1 },
  q4: { components: 8, planes: 1 },
  q3: { components: 32, planes: 3 },
  q2: { components: 16, planes: 1 },
};

/** The shape of one kind of cached row, which determines its addresses. Counts are of one tile and row. */
export interface RowLayout {
  readonly storage: Storage;
  readonly bits: number;
  /** Components of a row. */
  readonly width: number;
  readonly groupSize: number;
  /** Components that fill a unit, and its words. */
  readonly unitComponents: number;
  readonly planes: number;
  readonly units: number;
  /** Words of a token in whole quads, a multiple of four; the other words of its units follow as the rest. */
  readonly quadWords: number;
  /** Components beyond whole units. */
  readonly tail: number;
  /** Groups that have a scale of their own; 0 for f32 and f16. */
  readonly groups: number;
  /** First word of the tails and of the scales in a tile. */
  readonly tailsAt: number;
  readonly scalesAt: number;
  readonly tileWords: number;
}

/**
 * The layout of a row of `width` components.
 * @throws UserError for a group size that is not a positive multiple of 32: a unit could cross groups
 */
export function rowLayout(storage: Storage, width: number, groupSize: number = GROUP_SIZE): RowLayout {
  if (storage === 'f8') throw new Error('kernels of this project store no 8-bit floats');
  const bits = STORAGE_BITS[storage];
  const quantised = isQuantised(storage);
  if (quantised && (groupSize < 32 || groupSize % 32 !== 0)) {
    throw new UserError(
      `group size ${groupSize} is not a multiple of 32`,
      'components that share 32-bit words of the cache must share a scale: take 32, 64, 96, ...',
    );
  }
  const { components, planes } = UNITS[storage];
  const units = Math.floor(width / components);
  const tail = width - units * components;
  const groups = quantised ? Math.ceil(width / groupSize) : 0;
  const tailsAt = units * planes * TILE_TOKENS;
  const scalesAt = tailsAt + tail * bits;
  return {
    storage,
    bits,
    width,
    groupSize,
    unitComponents: components,
    planes,
    units,
    quadWords: Math.floor((units * planes) / 4) * 4,
    tail,
    groups,
    tailsAt,
    scalesAt,
    tileWords: scalesAt + groups * SCALE_WORDS,
  };
}

/** Words of one row (a sequence's head) that holds `capacity` tokens, and bytes of `rows` of them. */
const rowWords = (layout: RowLayout, capacity: number): number => (capacity / TILE_TOKENS) * layout.tileWords;
export const cacheBytes = (layout: RowLayout, capacity: number, rows: number): number =>
  4 * rows * rowWords(layout, capacity);

/** A buffer of `rows` such rows. */
export const cached = (name: string, role: Role, layout: RowLayout, capacity: number, rows: number): BufferPlan =>
  stored(name, role, layout.storage === 'f32' ? 'f32' : 'f16', cacheBytes(layout, capacity, rows));

/** The same for kernels that stream rows, 16 bytes at a time. */
export function streamed(name: string, layout: RowLayout, capacity: number, rows: number): BufferPlan {
  const buffer = cached(name, 'stream', layout, capacity, rows);
  return { ...buffer, bytes: padded(buffer.bytes, 16) };
}

/** First word of the tile that holds `token` of `row`. */
const tileWord = (layout: RowLayout, capacity: number, row: number, token: number): number =>
  (row * (capacity / TILE_TOKENS) + Math.floor(token / TILE_TOKENS)) * layout.tileWords;

/** Word `word` of the units of a tile's token `t`, from the tile's first word. */
const mainWord = ({ quadWords }: RowLayout, t: number, word: number): number =>
  word < quadWords ? t * quadWords + word : TILE_TOKENS * word + t;

/** Bits of a word, from bit `shift` up. */
export interface Field {
  readonly word: number;
  readonly shift: number;
  readonly bits: number;
}

/** The fields, low bits first, that entry `i` of a run packed as a unit takes; `word` counts from the unit's first. */
function fieldsInUnit(storage: Storage, i: number): Field[] {
  const bits = STORAGE_BITS[storage];
  // Three bits: the low two lie as those of q2, the high ones in a word of their own.
  if (storage === 'q3')
    return [
      { word: Math.floor(i / 16), shift: 2 * (i % 16), bits: 2 },
      { word: 2, shift: i, bits: 1 },
    ];
  const each = 32 / bits;
  return [{ word: Math.floor(i / each), shift: bits * (i % each), bits }];
}

/**
 * Where a component lies, low bits first: one field, or two for q3. `word` counts from the start of the buffer.
 * @param row sequence × heads + head
 */
export function fieldsOf(layout: RowLayout, capacity: number, row: number, token: number, component: number): Field[] {
  const { storage, unitComponents, planes, units } = layout;
  const tile = tileWord(layout, capacity, row, token);
  const t = token % TILE_TOKENS;
  if (component >= units * unitComponents) {
    const at = tile + layout.tailsAt + (component - units * unitComponents) * layout.bits;
    // f32 has no tails: there bits is 32 and every component a unit.
    return fieldsInUnit(storage, t).map((f) => ({ ...f, word: at + f.word }));
  }
  const unit = Math.floor(component / unitComponents);
  return fieldsInUnit(storage, component % unitComponents).map((f) => ({
    ...f,
    word: tile + mainWord(layout, t, unit * planes + f.word),
  }));
}

/** Where the f16 scale of a token's group lies. */
export function scaleField(layout: RowLayout, capacity: number, row: number, token: number, group: number): Field {
  const t = token % TILE_TOKENS;
  return {
    word: tileWord(layout, capacity, row, token) + layout.scalesAt + group * SCALE_WORDS + (t >> 1),
    shift: 16 * (t & 1),
    bits: 16,
  };
}

/** Reads word `index` of a buffer. */
export type Words = (index: number) => number;

const maskOf = (bits: number): number => (bits === 32 ? 0xffffffff : 2 ** bits - 1);
const extract = (words: Words, f: Field): number => ((words(f.word) >>> f.shift) & maskOf(f.bits)) >>> 0;

/** The stored bits of a component: an f32, an f16 or a code. */
export const storedBits = (words: Words, fields: readonly Field[]): number => {
  let value = 0;
  let shift = 0;
  for (const f of fields) {
    value += extract(words, f) * 2 ** shift;
    shift += f.bits;
  }
  return value;
};

const single = new Float32Array(1);
const singleWord = new Uint32Array(single.buffer);
const singleValue = (bits: number): number => {
  singleWord[0] = bits;
  return single[0] as number;
};
const singleBits = (value: number): number => {
  single[0] = value;
  return singleWord[0] as number;
};

/** The value of code `q` under scale `s`: s (q − (2^n − 1)/2). */
export const codeValue = (code: number, scale: number, bits: number): number => scale * (code - ((1 << bits) - 1) / 2);

/** Scalars of a buffer that stay decoded: 32 MiB. Beyond them a token is decoded each time. */
const KEPT_SCALARS = 2 ** 22;
const decoded = new WeakMap<Words, Map<string, Map<number, Float64Array>>>();

/** The decoded tokens of a buffer that is read as rows of one kind. */
function decodedTokens(words: Words, kind: string): Map<number, Float64Array> {
  const kinds = decoded.get(words) ?? new Map<string, Map<number, Float64Array>>();
  decoded.set(words, kinds);
  const tokens = kinds.get(kind) ?? new Map<number, Float64Array>();
  kinds.set(kind, tokens);
  return tokens;
}

/**
 * A component of a cache as it is stored, decoded exactly in float64. References call this for every component of every
 * token, for every query: a token is decoded as a whole when its first component is asked for, and kept.
 * @param words reads word `index` of the buffer, whose contents must not change
 */
export function cacheRow(
  words: Words,
  storage: Storage,
  width: number,
  groupSize: number,
  capacity: number,
): (row: number, token: number, component: number) => number {
  const decode = tokenDecoder(words, rowLayout(storage, width, groupSize), capacity);
  const kept = decodedTokens(words, `${storage} ${width} ${groupSize} ${capacity}`);
  let values: Float64Array = new Float64Array(width);
  let [knownRow, knownToken] = [-1, -1];
  return (row, token, component) => {
    if (token !== knownToken || row !== knownRow) {
      const at = row * capacity + token;
      const known = kept.get(at);
      if (known) values = known;
      else {
        values = new Float64Array(width);
        decode(row, token, values);
        if (kept.size * width < KEPT_SCALARS) kept.set(at, values);
      }
      [knownRow, knownToken] = [row, token];
    }
    return values[component] as number;
  };
}

/** Decodes all components of a row's token into a list of them. */
function tokenDecoder(
  words: Words,
  layout: RowLayout,
  capacity: number,
): (row: number, token: number, out: Float64Array) => void {
  const { storage, bits, width, groups, groupSize } = layout;
  const valueOf = storage === 'f32' ? singleValue : storage === 'f16' ? halfValue : (code: number): number => code;
  /** Fields of the tokens of a tile, as those of a cache of one tile: they are asked for again in each. */
  const known: { readonly components: readonly Field[][]; readonly scales: readonly Field[] }[] = [];
  const fieldsOfToken = (t: number) =>
    (known[t] ??= {
      components: Array.from({ length: width }, (_, c) => fieldsOf(layout, TILE_TOKENS, 0, t, c)),
      scales: Array.from({ length: groups }, (_, group) => scaleField(layout, TILE_TOKENS, 0, t, group)),
    });
  return (row, token, out) => {
    const tile = tileWord(layout, capacity, row, token);
    const inTile = (word: number): number => words(tile + word);
    const { components, scales } = fieldsOfToken(token % TILE_TOKENS);
    for (let i = 0; i < width; i++) out[i] = valueOf(storedBits(inTile, components[i] as readonly Field[]));
    for (const [group, field] of scales.entries()) {
      const scale = halfValue(extract(inTile, field));
      const end = Math.min(width, (group + 1) * groupSize);
      for (let i = group * groupSize; i < end; i++) out[i] = codeValue(out[i] as number, scale, bits);
    }
  };
}

/** Replaces the fields of one component. */
function putBits(words: Uint32Array, fields: readonly Field[], bits: number): void {
  let rest = bits;
  for (const f of fields) {
    const mask = maskOf(f.bits);
    const part = f.bits === 32 ? rest : rest % 2 ** f.bits;
    words[f.word] = ((words[f.word] as number) & ~((mask << f.shift) >>> 0)) | ((part << f.shift) >>> 0);
    rest = Math.floor(rest / 2 ** f.bits);
  }
}

/** Writes a component of an f32 or f16 cache, rounded, or the code of a quantised one. Neighbours keep their bits. */
export function putComponent(
  words: Uint32Array,
  layout: RowLayout,
  capacity: number,
  row: number,
  token: number,
  component: number,
  value: number,
): void {
  const bits = layout.storage === 'f32' ? singleBits(value) : layout.storage === 'f16' ? halfBits(value) : value;
  putBits(words, fieldsOf(layout, capacity, row, token, component), bits);
}

/** Writes a scale, rounded to f16. */
export function putScale(
  words: Uint32Array,
  layout: RowLayout,
  capacity: number,
  row: number,
  token: number,
  group: number,
  scale: number,
): void {
  putBits(words, [scaleField(layout, capacity, row, token, group)], halfBits(scale));
}
