/** What a device runs on, and what it is asked for when it is opened. */
/** Limits that people are shown. */
export const SHOWN_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
] as const;
/** The default of the standard is far below what the adapter allows, and limits are granted on request only. */
export const WANTED_LIMITS = [
  ...SHOWN_LIMITS,
  'maxComputeWorkgroupSizeX',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupsPerDimension',
] as const;
export type DeviceLimits = Readonly<Record<(typeof WANTED_LIMITS)[number], number>>;

/** Feature of Dawn that the standard's types do not name. */
export const MATRIX_FEATURE = 'chromium-experimental-subgroup-matrix';
export const WANTED_FEATURES = ['timestamp-query', 'shader-f16', 'subgroups', MATRIX_FEATURE] as GPUFeatureName[];

/** A product that the matrix units do: left is rows × depth, right depth × columns. */
export interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

/** Shapes of the matrix units, none where there are no such units; least and most threads of a subgroup. */
export interface Units {
  readonly matrixConfigs: readonly MatrixConfig[];
  readonly subgroupSizes: readonly [number, number];
}

/** What a measurement may ask of a device. */
export interface Bounds {
  /** Longest dispatch: a driver resets a device that does not answer, and a desktop waits for it. */
  readonly dispatchSeconds: number;
  /** Operands of one call with all their copies, bytes; points that are open at once have as much in all. */
  readonly pointBytes: number;
  /** Clocks are rounded, by how much is to be measured (bench/resolution.ts). */
  readonly roundedClocks: boolean;
}

/** Processor time of what the device runs on, where that is threads of this process (processor-time.ts). */
export interface ProcessorClock {
  /**
   * Seconds that its threads have run, over the number of them that share the work: a difference is what work for all
   * of them takes while nothing else runs.
   */
  now(): number;
  close(): void;
}

/** What times a run. */
export type Clock = 'gpu-timestamp' | 'processor' | 'wall';

export interface RunTime {
  /** Host time from submission until the queue was done. */
  wallSeconds: number;
  /**
   * By the device's own clock: between timestamps round the pass, or processor time of a software adapter. Null where
   * the device has neither.
   */
  deviceSeconds: number | null;
}

/** What a device runs on: Dawn in Node (dawn.ts) or a browser (browser.ts), chosen where the program begins. */
export interface Platform {
  readonly bounds: Bounds;
  /**
   * Waits until the queue is done.
   * @param since when the work was submitted, by clockNow()
   * @param timed the device measures the time itself, on the cores that wait: a software adapter with timestamps
   */
  wait(finished: Promise<unknown>, since: number, timed: boolean): Promise<unknown>;
  /** Counts what a software adapter computes, once its device is open; null where the system does not. */
  processorClock?(): ProcessorClock | null;
}
