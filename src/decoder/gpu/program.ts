/** From listed operations to bound ones: in order, each by the executor of its label. */
import { GpuError, type BoundStep, type Buffer, type Device, type Step } from '../../gpu/index.js';
import type { Visit } from '../../schedule/expand.js';
import type { Op } from '../../schedule/schedule.js';
import type { Executors } from './dense.js';
import type { Dispatch, Machine } from './machine.js';

/** One operation, ready to run. */
export interface Operation {
  readonly op: Op;
  readonly steps: readonly BoundStep[];
}

/** Binds steps, equal ones once: loops repeat most of theirs. */
export class Binder {
  private readonly bound = new Map<string, BoundStep>();

  constructor(
    private readonly device: Device,
    private readonly unused: Buffer,
  ) {}

  async bind(dispatch: Dispatch): Promise<BoundStep[]> {
    for (const planned of dispatch.plan.buffers) {
      const given = dispatch.buffers[planned.name];
      if (given && given.bytes < planned.bytes)
        throw new Error(
          `${dispatch.plan.steps[0]?.source}: ${planned.name} takes ${planned.bytes} bytes, buffer ${given.label} has ${given.bytes}`,
        );
    }
    const steps: BoundStep[] = [];
    for (const step of dispatch.plan.steps) steps.push(await this.bindStep(step, dispatch.buffers));
    return steps;
  }

  private async bindStep(step: Step, buffers: Dispatch['buffers']): Promise<BoundStep> {
    const names = step.buffers.map(({ name }) => [(buffers[name] ?? this.unused).label, buffers[name]?.offset ?? 0]);
    const key = JSON.stringify([step.source, step.element, step.constants, step.uniforms, step.workgroups, names]);
    const known = this.bound.get(key);
    if (known) return known;
    const bound = await this.device.bind(
      step,
      new Map(step.buffers.map(({ name }) => [name, buffers[name] ?? this.unused])),
    );
    this.bound.set(key, bound);
    return bound;
  }

  /** Uniform blocks and their bytes. */
  get uniforms(): readonly Buffer[] {
    return [...this.bound.values()].map((step) => step.uniforms);
  }

  free(): void {
    this.device.free(...this.uniforms);
    this.bound.clear();
  }
}

/**
 * Binds operations in order.
 * @throws GpuError `unsupported` for an operation that has no executor, or a shape that its kernel refuses
 */
export async function compile<M extends Machine>(
  m: M,
  executors: Executors<M>,
  binder: Binder,
  visits: readonly Visit[],
): Promise<Operation[]> {
  const operations: Operation[] = [];
  for (const visit of visits) {
    const executor = executors[visit.op.label];
    if (!executor)
      throw new GpuError(
        'unsupported',
        `the decoder has no executor for ${visit.op.label} (${visit.op.kernel}, ${visit.op.variant})`,
      );
    operations.push({ op: visit.op, steps: await binder.bind(await executor(m, visit)) });
  }
  return operations;
}
