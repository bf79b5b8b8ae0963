import { field, padded, type KernelSpec } from '../spec.js';

/**
 * Folds the split partials of a query into its output row, divided by the sum, and the row's maximum and sum. `current`
 * also folds in the exact key and value of the current token, which no cache holds yet. `rows`: sequences × query
 * heads; `keyWidth`: width of that key (0 for `f32`).
 */
export const spec: KernelSpec<'rows' | 'splits' | 'width' | 'keyWidth'> = {
  dims: ['rows', 'splits', 'width', 'keyWidth'],
  variants: ['f32', 'current'],
  work: (s, v) => {
    const [n, splits, width, key] = [field(s, 'rows'), field(s, 'splits'), field(s, 'width'), field(s, 'keyWidth')];
    const current = v === 'current';
    return {
      readBytes: n * (splits * (width + 2) + (current ? 2 * key + width : 0)) * 4,
      writeBytes: n * (width + 2) * 4,
      flops: n * (splits * (width * 2 + 4) + (current ? 2 * (key + width) + 4 : 0)),
      matrixFlops: 0,
    };
  },
  // A workgroup of 64 threads a row: widths are worked on in whole steps of 64.
  terms: (s, v) => {
    const [n, splits, width, key] = [field(s, 'rows'), field(s, 'splits'), field(s, 'width'), field(s, 'keyWidth')];
    const current = v === 'current' ? n * (padded(key, 64) + padded(width, 64)) : 0;
    return [1, n * splits * (width + 2) * 4, n, n * splits, n * splits * padded(width, 64), splits, current];
  },
  // Tuned attention merges its splits itself, with the current token among them.
  tuned: () => null,
};
