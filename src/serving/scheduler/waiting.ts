/** Requests that wait for a replica, in the order of a policy. */
import { Heap } from './heap.js';
import type { Requests } from './requests.js';

export const POLICIES = ['fcfs', 'priority', 'shortest-prompt'] as const;
export type Policy = (typeof POLICIES)[number];

export class WaitingQueue {
  private readonly heap = new Heap();
  private came = 0;
  /** Tokens that they are to be computed for. */
  tokens = 0;

  constructor(
    private readonly policy: Policy,
    private readonly requests: Requests,
  ) {}

  get size(): number {
    return this.heap.size;
  }

  push(slot: number): void {
    const { requests } = this;
    const keys = { fcfs: ++this.came, priority: requests.priority[slot]!, 'shortest-prompt': requests.prompt[slot]! };
    this.put(slot, keys[this.policy]);
  }

  /** Adds a preempted request: before all that have not begun, but for `priority`, which decides alone. */
  putBack(slot: number): void {
    const { requests } = this;
    const keys = { fcfs: -++this.came, priority: requests.priority[slot]!, 'shortest-prompt': -1 };
    this.put(slot, keys[this.policy]);
  }

  private put(slot: number, key: number): void {
    this.tokens += this.requests.target[slot]!;
    this.heap.push(key, this.requests.number[slot]!, slot);
  }

  /** The request that is next. */
  peek(): number {
    return this.heap.first;
  }

  pop(): void {
    this.tokens -= this.requests.target[this.heap.first]!;
    this.heap.pop();
  }

  remove(slot: number): void {
    this.tokens -= this.requests.target[slot]!;
    this.heap.remove(slot);
  }
}
