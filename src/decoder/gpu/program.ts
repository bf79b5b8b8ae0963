/** From a schedule to bound steps: every operation in order, each by the executor of its label. */
import { GpuError, type BoundStep, type Buffer, type Device, type Step } from '../../gpu/index.js';
import { schedule, type Choice, type Op } from '../../schedule/schedule.js';
import type { Sampling } from '../sampler.js';
import { appendFullWidth, ATTENTION_EXECUTORS, attendFullWidth, ropeSinks } from './attention.js';
import { evict, mass } from './eviction.js';
import { appendByPath, attendLatent, LATENT_EXECUTORS, ropeSinksAbsorbed } from './latent.js';
import { denseExecutors, type Executor } from './dense.js';
import type { Dispatch, Machine } from './machine.js';
import { readsLatents } from '../../schedule/eviction-ops.js';
import { pathSpec } from '../../codecs/paths.js';
import { expand, type Visit } from '../../schedule/expand.js';

/** One operation of a step, ready to run. */
export interface Operation {
  readonly op: Op;
  readonly steps: readonly BoundStep[];
}

/** True where attention scores latents, and a rotary branch beside them. */
const scoresLatents = (m: Machine, { place }: Visit): boolean =>
  place !== undefined && readsLatents(m.c, place.block) && pathSpec(m.c.path).branch === true;

/** Executors by label. */
export function executorsOf(sampling: Sampling): Readonly<Record<string, Executor>> {
  const attend: Executor = (m, visit) => {
    if (visit.op.kernel === 'attend_rebuild') return attendLatent.rebuild(m, visit);
    if (visit.op.kernel === 'attend_block_absorbed') return attendLatent.blocks(m, visit);
    return scoresLatents(m, visit) ? attendLatent.absorbed(m, visit) : attendFullWidth(m, visit);
  };
  const sinks: Executor = (m, visit) => (scoresLatents(m, visit) ? ropeSinksAbsorbed(m, visit) : ropeSinks(m, visit));
  return {
    ...denseExecutors(sampling),
    ...ATTENTION_EXECUTORS,
    ...LATENT_EXECUTORS,
    mass,
    evict,
    attend,
    'rope-sinks': sinks,
    'append-k': appendByPath('key', appendFullWidth('key')),
    'append-v': appendByPath('value', appendFullWidth('value')),
  };
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
 * Binds all operations of a step.
 * @param context tokens of the longest sequence before the step, evicted ones included (≥ 1)
 * @param choice how tokens are chosen
 * @throws GpuError `unsupported` for an operation that has no executor, or a shape that its kernel refuses
 */
export async function compile(
  m: Machine,
  executors: Readonly<Record<string, Executor>>,
  binder: Binder,
  context: number,
  choice: Choice,
): Promise<Operation[]> {
  const operations: Operation[] = [];
  for (const visit of expand(m.c, schedule(m.c, m.batch, context, { slots: m.caches.slots.capacity, choice }))) {
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
