/** Bound steps of planned calls. */
import type { BoundStep, Buffer, Device, OperationPlan, Step } from '../../gpu/index.js';
import type { PricedOp } from '../../schedule/configuration.js';

/** A planned call and its buffers, by the plan's names. */
interface Dispatch {
  readonly plan: OperationPlan;
  readonly buffers: Readonly<Record<string, Buffer>>;
}

/** One operation, ready to run. */
export interface Operation {
  readonly op: PricedOp;
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
          `${dispatch.plan.steps[0]?.source}: ${planned.name} takes ${planned.bytes} bytes, ` +
            `buffer ${given.label} has ${given.bytes}`,
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
