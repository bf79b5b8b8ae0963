/** Terms that element-wise kernels share. */
import { field, type Shape, type Work } from '../../spec.js';

/** Scalars of a call's rows. */
export const scalars = (s: Shape): number => field(s, 'rows') * field(s, 'width');

/** Scalars of the heads of a call's rows. */
export const headScalars = (s: Shape): number => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim');

/** Work and terms of a kernel whose time is that of the f32 scalars that it reads and writes. */
export const elementwise = (
  scalarsRead: (s: Shape, v: string) => number,
  scalarsWritten: (s: Shape, v: string) => number,
  flopsPerWrite: number,
) => ({
  work: (s: Shape, v: string): Work => {
    const written = scalarsWritten(s, v);
    return {
      readBytes: 4 * scalarsRead(s, v),
      writeBytes: 4 * written,
      flops: flopsPerWrite * written,
      matrixFlops: 0,
    };
  },
  terms: (s: Shape, v: string) => [1, 4 * (scalarsRead(s, v) + scalarsWritten(s, v))],
});
