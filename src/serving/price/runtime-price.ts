/** Prices of passes, boundaries and prompts under a runtime, from those of their kernels. */
import type { Geometry } from '../../geometry/geometry.js';
import type { Runtime } from '../../stacks/runtime.js';
import type { MixedBatch } from '../scheduler/batch.js';
import { LoopCostPricer, type LoopPricer } from './loop-price.js';
import type { Bound, PriceTables } from './price.js';

export class RuntimeLoopPricer implements LoopPricer {
  readonly knots: Float64Array;
  private readonly kernels: Readonly<Record<Bound, LoopCostPricer>>;
  /** Share of the layers outside the loops that lie before them. */
  private readonly before: number;
  private readonly geometry: Geometry;
  readonly readsTogether: boolean;

  constructor(
    private readonly runtime: Runtime,
    tables: PriceTables,
    private readonly bound: Bound,
  ) {
    const of = (end: Bound): LoopCostPricer => new LoopCostPricer(tables, end);
    this.kernels = { low: of('low'), estimate: of('estimate'), high: of('high') };
    this.knots = tables.knots;
    this.geometry = tables.c.geometry;
    this.readsTogether = runtime.choice.attention.packsQueries;
    const { preludeLayers, codaLayers } = this.geometry;
    this.before = preludeLayers / Math.max(1, preludeLayers + codaLayers);
  }

  pass(batch: MixedBatch, rowsEach = 1): number {
    const { size } = batch;
    if (size === 0) return 0;
    const sequences = this.runtime.rowsOfPass(size);
    const share = sequences / size;
    return this.priced((kernels, launch) => {
      const ends = { kernels: kernels.pass(batch, rowsEach, share), launch };
      return this.runtime.pass(sequences * rowsEach, ends) / share;
    });
  }

  outside(begun: number, _promptTokens: number, ended: number, skipped: number): number {
    const { preludeLayers, codaLayers } = this.geometry;
    if (begun + ended === 0) return 0;
    return this.priced((kernels, launch) => {
      const all = kernels.outside(begun, 0, ended);
      const at = (share: number) => ({ kernels: share * all, launch });
      return (
        (begun > 0 ? this.runtime.boundary(preludeLayers, at(this.before)) : 0) +
        (ended > 0 ? this.runtime.boundary(codaLayers, at(1 - this.before)) : 0) +
        this.runtime.copies(skipped, launch)
      );
    });
  }

  prompts(batch: MixedBatch): number {
    const { total, ending } = batch.chunks;
    const { loops, codaLayers } = this.geometry;
    return this.priced((kernels, launch) => {
      const all = loops * kernels.pass(batch) + kernels.outside(0, total, ending);
      const chosen = ending > 0 ? this.runtime.boundary(codaLayers, { kernels: 0, launch }) : 0;
      return this.runtime.chunk(total, { kernels: all, launch }) + chosen;
    });
  }

  private priced(seconds: (kernels: LoopCostPricer, launch: number) => number): number {
    const { runtime, bound, kernels } = this;
    const { host } = runtime.source;
    const estimate = seconds(kernels.estimate, host.estimate);
    if (bound === 'estimate' || estimate === 0) return estimate;
    return runtime.widened(estimate, bound, seconds(kernels[bound], host[bound]));
  }
}
