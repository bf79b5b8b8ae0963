/** Bound steps of planned calls. */
import type { BoundStep, Buffer, Device, OperationPlan, RunTime, Step } from '../../gpu/index.js';
import type { PricedOp } from '../../schedule/configuration.js';

/** One operation, ready to run. */
export interface Operation {
  readonly op: PricedOp;
  readonly steps: readonly BoundStep[];
}

/** By timestamps where the device has them, else from submission to completion. */
export const secondsOf = ({ deviceSeconds, wallSeconds }: RunTime): number => deviceSeconds ?? wallSeconds;

/** Runs a step alone. @param buffers by the step's names */
export async function runAlone(device: Device, step: Step, buffers: Readonly<Record<string, Buffer>>): Promise<void> {
  const bound = await device.bind(step, new Map(Object.entries(buffers)));
  try {
    await device.run([bound]);
  } finally {
    device.free(bound.uniforms);
  }
}

/** Binds steps, equal ones once: loops repeat most of theirs. */
export class Binder {
  private readonly bound = new Map<string, BoundStep>();

  constructor(
    private readonly device: Device,
    private readonly unused: Buffer,
  ) {}

  /** @param buffers by the plan's names */
  async bind(plan: OperationPlan, buffers: Readonly<Record<string, Buffer>>): Promise<BoundStep[]> {
    for (const { name, bytes } of plan.buffers) {
      const given = buffers[name];
      if (given && given.bytes < bytes)
        throw new Error(
          `${plan.steps[0]?.source}: ${name} takes ${bytes} bytes, buffer ${given.label} has ${given.bytes}`,
        );
    }
    const steps: BoundStep[] = [];
    for (const step of plan.steps)
      steps.push(
        await this.bindStep(step, new Map(step.buffers.map(({ name }) => [name, buffers[name] ?? this.unused]))),
      );
    return steps;
  }

  private async bindStep(step: Step, buffers: ReadonlyMap<string, Buffer>): Promise<BoundStep> {
    const places = [...buffers.values()].map(({ label, offset = 0 }) => [label, offset]);
    const key = JSON.stringify([step.source, step.element, step.constants, step.uniforms, step.workgroups, places]);
    const bound = this.bound.get(key) ?? (await this.device.bind(step, buffers));
    this.bound.set(key, bound);
    return bound;
  }

  get uniformBytes(): number {
    return [...this.bound.values()].reduce((sum, { uniforms }) => sum + uniforms.bytes, 0);
  }

  free(): void {
    this.device.free(...[...this.bound.values()].map(({ uniforms }) => uniforms));
    this.bound.clear();
  }
}
