/** Bound operations of steps over a growing context, bound again when the planned context changes. */
import type { BoundStep } from '../../gpu/index.js';
import { boundStep } from '../../schedule/bind/index.js';
import type { Visit } from '../../schedule/configuration.js';
import type { Op } from '../../schedule/op.js';
import type { Machine } from './machine.js';
import { plannedContext } from './options.js';
import type { Binder, Operation } from './program.js';

export class StepProgram {
  private bound: { context: number; operations: readonly Operation[]; steps: readonly BoundStep[] } | undefined;

  /** @param visits the operations of a step over so many tokens */
  constructor(
    private readonly machine: Machine,
    private readonly binder: Binder,
    private readonly visits: (context: number) => Iterable<Visit<Op>>,
  ) {}

  get operations(): readonly Operation[] {
    return this.bound?.operations ?? [];
  }

  get uniformBytes(): number {
    return this.binder.uniforms.reduce((sum, b) => sum + b.bytes, 0);
  }

  /** Binds the operations of a step over `longest` tokens, unless those of the last step can be used again. */
  async prepare(longest: number): Promise<readonly BoundStep[]> {
    const { setting, caches } = this.machine;
    const context = plannedContext(longest, setting.contextTokens);
    if (this.bound?.context === context) return this.bound.steps;
    this.free();
    try {
      const visits = boundStep(setting, caches, context, this.visits(context));
      const operations = await this.machine.compile(this.binder, visits);
      this.bound = { context, operations, steps: operations.flatMap((operation) => operation.steps) };
      return this.bound.steps;
    } catch (error) {
      this.free();
      throw error;
    }
  }

  free(): void {
    this.binder.free();
    this.bound = undefined;
  }
}
