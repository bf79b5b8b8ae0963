/** Whether memory still grows after many windows of runs. */
export function leaks(
  once: () => Promise<void>,
  options: {
    runs: number;
    toleranceBytes: number;
    resident: () => number;
    onWindow: (bytes: number, runs: number) => void;
  },
): Promise<boolean>;
