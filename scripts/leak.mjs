/** Tells a leak from a warm-up: a warm-up comes to rest, however long it takes; a leak does not. */

/** Windows that are watched at least, and at most: what still grows then leaks. */
const LEAST_WINDOWS = 8;
const MOST_WINDOWS = 24;
/** Readings of a window. It counts by the least of them: what comes and goes lies above it. */
const READINGS = 20;

/**
 * Runs something again and again until memory has not grown from one window to the next three times in a row. Once
 * would not do: pages that are given back hide the growth of one window, and half of the next one's.
 * @param {() => Promise<void>} once what is run
 * @param {object} options
 * @param {number} options.runs of a window
 * @param {number} options.toleranceBytes growth of a window that counts as none: the allocators' own slack
 * @param {() => number} options.resident reads the memory in use, bytes
 * @param {(bytes: number, runs: number) => void} options.onWindow is told of each window
 * @returns {Promise<boolean>} whether it leaks
 */
export async function leaks(once, { runs, toleranceBytes, resident, onWindow }) {
  const windows = [];
  const grew = (i) => windows[i] - windows[i - 1] > toleranceBytes;
  while (windows.length < MOST_WINDOWS) {
    let least = Infinity;
    for (let i = 1; i <= runs; i++) {
      await once();
      if (Math.floor((i * READINGS) / runs) > Math.floor(((i - 1) * READINGS) / runs))
        least = Math.min(least, resident());
    }
    windows.push(least);
    onWindow(least, windows.length * runs);
    const last = windows.length - 1;
    if (windows.length >= LEAST_WINDOWS && !grew(last) && !grew(last - 1) && !grew(last - 2)) return false;
  }
  return true;
}
