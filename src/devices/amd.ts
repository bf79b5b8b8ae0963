/** AMD's accelerators, by their datasheets. */
import type { DeviceSpec } from './device.js';

const GB = 1e9;
const TERA = 1e12;

const GIB = 2 ** 30;
/** What drivers keep, by rocm-smi: of 64 GiB (gfx90a), 192 (MI300X) and 288 (MI355X) the same. */
const KEPT_BYTES = 2 ** 24;
/** Boxes say GB for the GiB of their stacks: what a driver has of them. */
const inStacks = (gib: number): number => gib * GIB - KEPT_BYTES;

/**
 * An AMD accelerator. Infinity Fabric joins each pair by a link of its own (`perPeer`, GB/s in one direction): `peers`
 * of them on a device, and beyond that many neighbours PCI Express.
 */
function amd(
  id: string,
  name: string,
  adapterPattern: string,
  n: {
    vramGb: number;
    driverBytes: number | null;
    memory: number;
    f32: number;
    matrix: number;
    fp8?: boolean;
    units: number;
    lanes: number;
    perPeer: number;
    peers: number;
    pcie: number;
  },
  source: string,
): DeviceSpec {
  return {
    id,
    name: `AMD ${name}`,
    vendor: 'amd',
    adapterPattern,
    source,
    vramBytes: n.vramGb * GB,
    driverBytes: n.driverBytes,
    unifiedMemory: false,
    memoryBytesPerSecond: n.memory * GB,
    f32FlopsPerSecond: n.f32 * TERA,
    matrixFlopsPerSecond: n.matrix * TERA,
    matrixHalved: false,
    multipliesFp8: n.fp8 ?? true,
    l2Bytes: null,
    units: n.units,
    lanes: n.lanes,
    interconnect: {
      name: 'Infinity Fabric',
      bytesPerSecondPerDirection: n.perPeer * n.peers * GB,
      perPeerBytesPerSecond: n.perPeer * GB,
      mostGpus: n.peers + 1,
      beyondBytesPerSecond: n.pcie * GB,
      throughHost: false,
    },
  };
}

/** AMD devices. */
export const AMD: readonly DeviceSpec[] = [
  amd(
    'mi300x',
    'Instinct MI300X',
    'mi300x',
    {
      vramGb: 192,
      driverBytes: inStacks(192),
      memory: 5300,
      f32: 163.4,
      matrix: 1307.4,
      units: 304,
      lanes: 128,
      perPeer: 64,
      peers: 7,
      pcie: 64,
    },
    'AMD Instinct MI300X data sheet; rocm-smi',
  ),
  amd(
    'mi325x',
    'Instinct MI325X',
    'mi325x',
    {
      vramGb: 256,
      driverBytes: inStacks(256),
      memory: 6000,
      f32: 163.4,
      matrix: 1307.4,
      units: 304,
      lanes: 128,
      perPeer: 64,
      peers: 7,
      pcie: 64,
    },
    'AMD Instinct MI325X data sheet',
  ),
  amd(
    'mi355x',
    'Instinct MI355X',
    'mi355x',
    {
      vramGb: 288,
      driverBytes: inStacks(288),
      memory: 8000,
      f32: 157.3,
      matrix: 2516.6,
      units: 256,
      lanes: 128,
      perPeer: 76.8,
      peers: 7,
      pcie: 64,
    },
    'AMD Instinct MI355X data sheet; AMD CDNA 4 white paper (Infinity Fabric)',
  ),
  amd(
    'mi210',
    'Instinct MI210',
    'mi210',
    {
      vramGb: 64,
      driverBytes: inStacks(64),
      memory: 1600,
      f32: 22.6,
      matrix: 181,
      fp8: false,
      units: 104,
      lanes: 64,
      perPeer: 50,
      peers: 3,
      pcie: 32,
    },
    'AMD Instinct MI210 data sheet',
  ),
];
