/** The kernels of H2O: what each reads, writes and computes, and the terms of its time. */
import { field, storageOfVariant, STORAGES, storedBytes, type KernelSpec, type Shape } from './kernel-spec.js';

const stored = (s: Shape, v: string, width: number) => storedBytes(storageOfVariant(v), width, field(s, 'groupSize'));

/**
 * H2O: turns the scores of this step into softmax weights and adds them to the mass of each cached token. `rows`:
 * sequences × rows that evict on their own; `group`: query heads pooled into one of them.
 */
const mass: KernelSpec = {
  dims: ['rows', 'group', 'context'],
  variants: ['f32'],
  work: (s) => {
    const [n, group, context] = [field(s, 'rows'), field(s, 'group'), field(s, 'context')];
    return {
      readBytes: n * (group * (context + 2) + context) * 4,
      writeBytes: n * context * 4,
      flops: n * group * context * 4,
      matrixFlops: 0,
    };
  },
  terms: (s) => {
    const w = mass.work(s, 'f32');
    return [1, w.readBytes + w.writeBytes, w.flops];
  },
};

/**
 * H2O: the token that leaves the ring of recent ones replaces the lightest pinned one where it is heavier: its row,
 * mass and position are copied. `rows`: sequences × rows that evict on their own; `context`: pinned tokens of a row;
 * `width`: scalars of all rows of a token that go together (key, value and, where there is one, rotary branch).
 */
const evict: KernelSpec = {
  dims: ['rows', 'context', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const [n, context] = [field(s, 'rows'), field(s, 'context')];
    const copied = stored(s, v, field(s, 'width')) + 8;
    return { readBytes: n * (context * 4 + copied), writeBytes: n * copied, flops: n * context, matrixFlops: 0 };
  },
  terms: (s, v) => {
    const w = evict.work(s, v);
    return [1, w.readBytes, w.writeBytes, field(s, 'context')];
  },
};

/**
 * H2O while a prompt is taken in whole: what a chunk's queries give to the tokens before them and each other is added
 * to the mass of these, once more from scores, and from the statistics of attention. `rows`: rows of a sequence that
 * evict on their own; the variant is the type of the keys.
 */
const massPrefill: KernelSpec = {
  dims: ['sequences', 'kvHeads', 'rows', 'group', 'queries', 'context', 'keyWidth'],
  variants: ['f16', 'f32'],
  work: (s, v) => {
    const [sequences, tokens, context, key] = [
      field(s, 'sequences'),
      field(s, 'queries'),
      field(s, 'context'),
      field(s, 'keyWidth'),
    ];
    const heads = sequences * field(s, 'kvHeads');
    const scores = heads * field(s, 'group') * (tokens * context + (tokens * (tokens - 1)) / 2);
    const masses = sequences * field(s, 'rows') * (context + tokens) * 4;
    return {
      readBytes:
        heads * ((context + tokens) * key * (v === 'f32' ? 4 : 2) + field(s, 'group') * tokens * (key + 2) * 4) +
        masses,
      writeBytes: masses,
      flops: scores * (2 * key + 4),
      matrixFlops: scores * 2 * key,
    };
  },
  terms: (s, v) => {
    const w = massPrefill.work(s, v);
    return [1, w.readBytes, w.flops, w.writeBytes];
  },
};

/** Passes over the masses of a prompt that find the lightest one that stays, and over those that stay. */
const CHOOSING_PASSES = 6;

/**
 * H2O after a prompt was taken in whole: of its `context` tokens `kept` stay, the last ones and the heaviest of the
 * others, and are copied with their masses and positions. `rows` and `width` are those of `evict`.
 */
const evictPrefill: KernelSpec = {
  dims: ['rows', 'context', 'kept', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const [n, context, kept] = [field(s, 'rows'), field(s, 'context'), field(s, 'kept')];
    const copied = kept * (stored(s, v, field(s, 'width')) + 4);
    return {
      readBytes: n * (context * 4 + copied),
      writeBytes: n * (copied + kept * 4),
      flops: n * CHOOSING_PASSES * context,
      matrixFlops: 0,
    };
  },
  // One workgroup a row: the last term is its serial walk.
  terms: (s, v) => {
    const w = evictPrefill.work(s, v);
    return [1, w.readBytes, w.writeBytes, field(s, 'context')];
  },
};

/**
 * The same after a chunk behind `held` cached tokens, which are among the `context` that are chosen from: those that
 * stay where they are are not copied, at most the chunk's and as many that leave the ring are.
 */
const evictChunk: KernelSpec = {
  dims: ['rows', 'held', 'context', 'kept', 'width', 'groupSize'],
  variants: STORAGES,
  work: (s, v) => {
    const [n, context, kept] = [field(s, 'rows'), field(s, 'context'), field(s, 'kept')];
    const copied = Math.min(kept, 2 * (context - field(s, 'held'))) * stored(s, v, field(s, 'width'));
    return {
      readBytes: n * (context * 4 + copied + kept * 4),
      writeBytes: n * (copied + kept * 12),
      flops: n * CHOOSING_PASSES * context,
      matrixFlops: 0,
    };
  },
  terms: (s, v) => {
    const w = evictChunk.work(s, v);
    return [1, w.readBytes, w.writeBytes, field(s, 'context')];
  },
};

export const EVICTION_KERNELS = {
  mass,
  evict,
  mass_prefill: massPrefill,
  evict_prefill: evictPrefill,
  evict_chunk: evictChunk,
} as const satisfies Record<string, KernelSpec>;
