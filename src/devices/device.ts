/**
 * What a datasheet says of an accelerator: what a prediction falls back on when a device has no calibration.
 * Decimal units, as datasheets print them; matrix rates are dense (without sparsity) f16/bf16 with f32 accumulation.
 */

export interface DeviceSpec {
  readonly id: string;
  readonly name: string;
  readonly vendor: 'nvidia' | 'amd' | 'apple';
  /** Memory as it is advertised, read literally (80 GB = 80e9). */
  readonly vramBytes: number;
  /** Memory as the driver reports it (nvidia-smi, rocm-smi), or null where we have no such figure. */
  readonly driverBytes: number | null;
  /** The memory is the host's: the system and other programs live in `vramBytes` too. */
  readonly unifiedMemory: boolean;
  readonly memoryBytesPerSecond: number;
  /** Vector (non-tensor) single precision. */
  readonly f32FlopsPerSecond: number;
  readonly matrixFlopsPerSecond: number;
  /**
   * What a product of bf16 matrices of 10,240 square reached in PyTorch, the median of published runs; absent where
   * there is none. Power keeps large parts further below their datasheet than small ones.
   */
  readonly productFlopsPerSecond?: number;
  /**
   * The matrix rate is half of what the units do with f16 accumulation (GeForce): power does not keep kernels from it.
   */
  readonly matrixHalved: boolean;
  /** Matrix units multiply 8-bit floats, at twice the rate of 16 bits. */
  readonly multipliesFp8: boolean;
  /** Cache that all units share; null where we have no figure. */
  readonly l2Bytes: number | null;
  /** Units that work is shared out among: streaming multiprocessors, compute units, GPU cores. */
  readonly units: number;
  /** f32 lanes of a unit; each does a multiply-add a cycle. */
  readonly lanes: number;
  /** The fastest way to neighbouring devices; null where there is none. */
  readonly interconnect: Interconnect | null;
  /** Case-insensitive regular expression that recognises the WebGPU adapter description of this device. */
  readonly adapterPattern: string;
  /** Where the figures come from, and the name that its driver figure was seen under where the two differ. */
  readonly source: string;
  /** The device with the same chip whose kernels were measured: its cards differ in memory, power, units or link. */
  readonly sameChipAs?: string;
}

/** The device whose measured kernels are this one's: itself, or the one with the same chip. */
export const chipOf = ({ id, sameChipAs }: Pick<DeviceSpec, 'id' | 'sameChipAs'>): string => sameChipAs ?? id;

/** Memory of a device that plans count with: what its driver reports where that is known, else what is advertised. */
export const memoryOf = ({ driverBytes, vramBytes }: Pick<DeviceSpec, 'driverBytes' | 'vramBytes'>): number =>
  driverBytes ?? vramBytes;

/** Boost clock, hertz: that of the f32 rate. */
export const clockOf = ({ f32FlopsPerSecond, lanes, units }: DeviceSpec): number =>
  f32FlopsPerSecond / (2 * lanes * units);

/** Most GPUs of a server, unless its link says otherwise. */
export const SERVER_GPUS = 8;

/** What joins devices, bytes per second in one direction of one device. */
interface Interconnect {
  readonly name: string;
  /** Over all its links together. */
  readonly bytesPerSecondPerDirection: number;
  /**
   * Rate of the link to one neighbour where every neighbour has a link of its own: two GPUs can use one of them. Null:
   * a switch gives all of it to any peer.
   */
  readonly perPeerBytesPerSecond: number | null;
  /** Most GPUs that it joins; null where a server's are all joined. */
  readonly mostGpus: number | null;
  /** What joins more: the host's PCI Express, or the network between racks. */
  readonly beyondBytesPerSecond: number | null;
  /** The host's PCI Express is all that joins them: its board and processor decide how fast. */
  readonly throughHost: boolean;
}
