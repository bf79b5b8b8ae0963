/** Requests that wait for a replica, in the order of a policy. */
import type { SERVER_SETTINGS } from '../../schema/serving.js';
import { Heap } from './heap.js';
import type { Requests } from './requests.js';

export type Policy = (typeof SERVER_SETTINGS.policy.choices)[number];

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
    this.put(slot, this.policy === 'fcfs' ? ++this.came : this.requests.prompt[slot]!);
  }

  /** Adds a preempted request: before all that have not begun. */
  putBack(slot: number): void {
    this.put(slot, this.policy === 'fcfs' ? -++this.came : -1);
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
