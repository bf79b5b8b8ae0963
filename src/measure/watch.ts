/// <reference lib="dom" />
/** Whether the page is seen. Browsers slow down what is not, so measuring waits meanwhile. */
import { clockNow } from '../io/clock.js';

export class Watch {
  private left: number | null = null;
  private paused = 0;
  private count = 0;

  constructor() {
    const note = (): void => {
      if (document.hidden && this.left === null) {
        this.left = clockNow();
        this.count++;
      } else if (!document.hidden && this.left !== null) {
        this.paused += clockNow() - this.left;
        this.left = null;
      }
    };
    document.addEventListener('visibilitychange', note);
    note();
  }

  /** Seconds that the page was not seen so far. */
  pausedSeconds(): number {
    return this.paused + (this.left === null ? 0 : clockNow() - this.left);
  }

  pauses(): number {
    return this.count;
  }

  async seen(): Promise<void> {
    while (document.hidden)
      await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
  }
}
