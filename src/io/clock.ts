/** The steady clock of Node and of browsers. */

/** Seconds since a fixed moment. Browsers round it, to 5 or 100 µs. */
export const clockNow = (): number => performance.now() / 1e3;
