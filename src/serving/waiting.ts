/** Requests that wait for a replica, in the order of a policy. */
import type { Requests } from './requests.js';

export const POLICIES = ['fcfs', 'priority', 'shortest-prompt'] as const;
export type Policy = (typeof POLICIES)[number];

export interface WaitingQueue {
  readonly size: number;
  push(slot: number): void;
  /** Adds a preempted request: before all that have not begun, but for `priority`, which decides alone. */
  putBack(slot: number): void;
  peek(): number;
  pop(): number;
}

export const makeQueue = (policy: Policy, requests: Requests): WaitingQueue =>
  policy === 'fcfs' ? new Deque() : new Sorted(policy, requests);

/** First come, first served. */
class Deque implements WaitingQueue {
  private items = new Int32Array(64);
  private head = 0;
  size = 0;

  push(slot: number): void {
    this.makeRoom();
    this.items[(this.head + this.size++) % this.items.length] = slot;
  }

  putBack(slot: number): void {
    this.makeRoom();
    this.head = (this.head + this.items.length - 1) % this.items.length;
    this.items[this.head] = slot;
    this.size++;
  }

  peek(): number {
    return this.items[this.head]!;
  }

  pop(): number {
    const slot = this.items[this.head]!;
    this.head = (this.head + 1) % this.items.length;
    this.size--;
    return slot;
  }

  private makeRoom(): void {
    const { length } = this.items;
    if (this.size < length) return;
    const longer = new Int32Array(2 * length);
    for (let i = 0; i < length; i++) longer[i] = this.items[(this.head + i) % length]!;
    this.items = longer;
    this.head = 0;
  }
}

/** A heap by (key, arrival). */
class Sorted implements WaitingQueue {
  private readonly items: number[] = [];
  private readonly keys: number[] = [];

  constructor(
    private readonly policy: 'priority' | 'shortest-prompt',
    private readonly requests: Requests,
  ) {}

  get size(): number {
    return this.items.length;
  }

  push(slot: number): void {
    const { policy, requests } = this;
    this.insert(slot, policy === 'priority' ? requests.priority[slot]! : requests.prompt[slot]!);
  }

  putBack(slot: number): void {
    this.insert(slot, this.policy === 'priority' ? this.requests.priority[slot]! : -1);
  }

  peek(): number {
    return this.items[0]!;
  }

  pop(): number {
    const { items, keys } = this;
    const first = items[0]!;
    const [slot, key] = [items.pop()!, keys.pop()!];
    if (items.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.isBefore(child + 1, items[child]!, keys[child]!)) child++;
      if (!this.isBefore(child, slot, key)) break;
      [items[at], keys[at]] = [items[child]!, keys[child]!];
      at = child;
    }
    [items[at], keys[at]] = [slot, key];
    return first;
  }

  private insert(slot: number, key: number): void {
    const { items, keys } = this;
    let at = items.length;
    items.push(slot);
    keys.push(key);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.isBefore(parent, slot, key)) break;
      [items[at], keys[at]] = [items[parent]!, keys[parent]!];
      at = parent;
    }
    [items[at], keys[at]] = [slot, key];
  }

  private isBefore(at: number, slot: number, key: number): boolean {
    const own = this.keys[at]!;
    if (own !== key) return own < key;
    return this.requests.number[this.items[at]!]! < this.requests.number[slot]!;
  }
}
