export function faults(options: {
  /** The program, as node runs it, and the folder of the same build's modules. */
  cli: string;
  dist: string;
  kills: number;
  seed: number;
  only?: readonly string[] | null;
  /** Latest moment of a kill. */
  maxSeconds?: number;
  budget?: string;
  /** That a calibration measures, separated by commas; all of them unless given. */
  kernels?: string;
  log?: (line: string) => void;
}): Promise<string[]>;
