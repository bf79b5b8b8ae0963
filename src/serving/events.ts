/** The event queue: a binary heap keyed (time, priority, sequence), so that equal times have one order. */

/** What happens at a time. Of events at one time the kind with the smaller number comes first. */
export const EVENT = { iterationEnd: 0, transfer: 1, arrival: 2 } as const;
export type EventKind = (typeof EVENT)[keyof typeof EVENT];

/** Times, kinds and subjects of events to come. Storage grows; nothing is allocated for an event. */
export class EventQueue {
  private times = new Float64Array(64);
  private kinds = new Uint8Array(64);
  private sequences = new Float64Array(64);
  private subjects = new Int32Array(64);
  private next = 0;
  size = 0;

  /** @param subject a replica or a request, by its number */
  push(time: number, kind: EventKind, subject: number): void {
    if (this.size === this.times.length) this.grow();
    let at = this.size++;
    const sequence = this.next++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const before =
        time < this.times[parent]! ||
        (time === this.times[parent]! &&
          (kind < this.kinds[parent]! || (kind === this.kinds[parent]! && sequence < this.sequences[parent]!)));
      if (!before) break;
      this.move(parent, at);
      at = parent;
    }
    this.set(at, time, kind, sequence, subject);
  }

  /** Time of the next event; Infinity without one. */
  get time(): number {
    return this.size === 0 ? Infinity : this.times[0]!;
  }
  get kind(): EventKind {
    return this.kinds[0] as EventKind;
  }
  get subject(): number {
    return this.subjects[0]!;
  }

  /** Removes the next event. */
  pop(): void {
    const last = --this.size;
    if (last === 0) return;
    const [time, kind, sequence, subject] = [
      this.times[last]!,
      this.kinds[last]! as EventKind,
      this.sequences[last]!,
      this.subjects[last]!,
    ];
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= last) break;
      if (child + 1 < last && this.before(child + 1, child)) child++;
      const earlier =
        this.times[child]! < time ||
        (this.times[child]! === time &&
          (this.kinds[child]! < kind || (this.kinds[child]! === kind && this.sequences[child]! < sequence)));
      if (!earlier) break;
      this.move(child, at);
      at = child;
    }
    this.set(at, time, kind, sequence, subject);
  }

  private before(a: number, b: number): boolean {
    if (this.times[a]! !== this.times[b]!) return this.times[a]! < this.times[b]!;
    if (this.kinds[a]! !== this.kinds[b]!) return this.kinds[a]! < this.kinds[b]!;
    return this.sequences[a]! < this.sequences[b]!;
  }

  private move(from: number, to: number): void {
    this.set(to, this.times[from]!, this.kinds[from]! as EventKind, this.sequences[from]!, this.subjects[from]!);
  }

  private set(at: number, time: number, kind: EventKind, sequence: number, subject: number): void {
    this.times[at] = time;
    this.kinds[at] = kind;
    this.sequences[at] = sequence;
    this.subjects[at] = subject;
  }

  private grow(): void {
    const double = <T extends Float64Array | Uint8Array | Int32Array>(old: T, into: T): T => {
      into.set(old);
      return into;
    };
    const length = 2 * this.times.length;
    this.times = double(this.times, new Float64Array(length));
    this.kinds = double(this.kinds, new Uint8Array(length));
    this.sequences = double(this.sequences, new Float64Array(length));
    this.subjects = double(this.subjects, new Int32Array(length));
  }
}
