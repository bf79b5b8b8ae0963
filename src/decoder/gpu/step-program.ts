/** Bound operations of steps over a growing context, bound again when the planned context changes. */
import type { BoundStep } from '../../gpu/index.js';
import type { Visit } from '../../schedule/expand.js';
import type { Executors } from './dense.js';
import { plannedContext } from './options.js';
import { Binder, compile, type Operation } from './program.js';
import type { DecodeStep } from './step.js';

export class StepProgram {
  private bound: { context: number; operations: readonly Operation[]; steps: readonly BoundStep[] } | undefined;

  /** @param visits the operations of a step over so many tokens */
  constructor(
    private readonly machine: DecodeStep,
    private readonly executors: Executors<DecodeStep>,
    private readonly binder: Binder,
    private readonly visits: (context: number) => Iterable<Visit>,
  ) {}

  get operations(): readonly Operation[] {
    return this.bound?.operations ?? [];
  }

  get uniformBytes(): number {
    return this.binder.uniforms.reduce((sum, b) => sum + b.bytes, 0);
  }

  /** Binds the operations of a step over `longest` tokens, unless those of the last step can be used again. */
  async prepare(longest: number): Promise<readonly BoundStep[]> {
    const { machine } = this;
    const context = plannedContext(longest, machine.contextTokens);
    if (this.bound?.context === context) return this.bound.steps;
    this.free();
    try {
      machine.longest = machine.spanAt(context);
      const operations = await compile(machine, this.executors, this.binder, [...this.visits(context)]);
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
