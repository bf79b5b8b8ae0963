/** NVIDIA's accelerators of data centres, by their datasheets; cards without HBM are in nvidia-cards.ts. */
import type { DeviceSpec } from './device.js';

const GB = 1e9;
const MIB = 2 ** 20;
const TERA = 1e12;

/**
 * An NVIDIA part: they differ in numbers only. `f32`, `matrix` and `product` in TFLOP/s (products: medians of
 * zzc0721/torch-performance-test-data 9d82827, database.md, read 2026-11-28), `memory` and `link` in GB/s, `sms`
 * streaming multiprocessors. A bridge, or a rack's switches, join so many `gpus`; more are joined by `pcie` (GB/s, one
 * direction), for a rack its network.
 */
export function nvidia(
  id: string,
  name: string,
  adapterPattern: string,
  n: {
    vramGb: number;
    driverMib: number | null;
    memory: number;
    f32: number;
    matrix: number;
    product?: number;
    sms: number;
    l2Mib: number;
    lanes?: number;
    halved?: boolean;
    fp8?: boolean;
  },
  link: readonly [name: string, gbPerSecondPerDirection: number, bridge?: { gpus: number; pcie: number }],
  source: string,
  sameChipAs?: string,
): DeviceSpec {
  return {
    ...(sameChipAs === undefined ? {} : { sameChipAs }),
    id,
    name: `NVIDIA ${name}`,
    vendor: 'nvidia',
    adapterPattern,
    source,
    vramBytes: n.vramGb * GB,
    driverBytes: n.driverMib === null ? null : n.driverMib * MIB,
    unifiedMemory: false,
    memoryBytesPerSecond: n.memory * GB,
    f32FlopsPerSecond: n.f32 * TERA,
    matrixFlopsPerSecond: n.matrix * TERA,
    ...(n.product === undefined ? {} : { productFlopsPerSecond: n.product * TERA }),
    matrixHalved: n.halved ?? false,
    multipliesFp8: n.fp8 ?? true,
    l2Bytes: n.l2Mib * MIB,
    units: n.sms,
    lanes: n.lanes ?? 128,
    interconnect: {
      name: link[0],
      bytesPerSecondPerDirection: link[1] * GB,
      perPeerBytesPerSecond: null,
      mostGpus: link[2]?.gpus ?? null,
      beyondBytesPerSecond: link[2] ? link[2].pcie * GB : null,
      throughHost: link[0].startsWith('PCIe'),
    },
  };
}

/** NVIDIA devices with HBM. */
export const NVIDIA: readonly DeviceSpec[] = [
  nvidia(
    'h200',
    'H200 SXM',
    'h200(?! nvl)',
    { vramGb: 141, driverMib: 143_771, memory: 4800, f32: 67, matrix: 989, product: 790.3, sms: 132, l2Mib: 50 },
    ['NVLink 4', 450],
    'NVIDIA H200 datasheet (SXM); nvidia-smi',
  ),
  nvidia(
    'h200-nvl',
    'H200 NVL',
    'h200 nvl',
    { vramGb: 141, driverMib: 143_771, memory: 4800, f32: 60, matrix: 835, sms: 132, l2Mib: 50 },
    ['NVLink bridge', 450, { gpus: 4, pcie: 64 }],
    'NVIDIA H200 datasheet (NVL); nvidia-smi',
    'h200',
  ),
  nvidia(
    'h100',
    'H100 SXM 80GB',
    'h100(?! (nvl|pcie))',
    { vramGb: 80, driverMib: 81_559, memory: 3350, f32: 67, matrix: 989, product: 790.6, sms: 132, l2Mib: 50 },
    ['NVLink 4', 450],
    'NVIDIA H100 datasheet (SXM); nvidia-smi',
  ),
  nvidia(
    'h100-pcie',
    'H100 PCIe 80GB',
    'h100 pcie',
    { vramGb: 80, driverMib: 81_559, memory: 2000, f32: 51, matrix: 756, product: 499.9, sms: 114, l2Mib: 50 },
    ['NVLink bridge', 300, { gpus: 2, pcie: 64 }],
    'NVIDIA H100 datasheet (PCIe, 2022 edition); nvidia-smi',
    'h100',
  ),
  nvidia(
    'h100-nvl',
    'H100 NVL 94GB',
    'h100 nvl',
    { vramGb: 94, driverMib: 95_830, memory: 3900, f32: 60, matrix: 835, sms: 132, l2Mib: 50 },
    ['NVLink bridge', 300, { gpus: 2, pcie: 64 }],
    'NVIDIA H100 datasheet (NVL, one card); nvidia-smi',
    'h100',
  ),
  nvidia(
    'h800',
    'H800 SXM 80GB',
    'h800(?! pcie)',
    { vramGb: 80, driverMib: 81_559, memory: 3350, f32: 67, matrix: 989, sms: 132, l2Mib: 50 },
    ['NVLink 4', 200],
    'NVIDIA H800 datasheet (SXM: an H100 with NVLink at 400 GB/s both ways); nvidia-smi',
    'h100',
  ),
  nvidia(
    'h800-pcie',
    'H800 PCIe 80GB',
    'h800 pcie',
    { vramGb: 80, driverMib: 81_559, memory: 2000, f32: 51, matrix: 756, product: 499.9, sms: 114, l2Mib: 50 },
    ['NVLink bridge', 200, { gpus: 2, pcie: 64 }],
    'NVIDIA H800 datasheet (PCIe: an H100 PCIe with NVLink at 400 GB/s both ways); nvidia-smi',
    'h100',
  ),
  nvidia(
    'h20',
    'H20 96GB',
    'h20(?!-3e|0)',
    { vramGb: 96, driverMib: 97_871, memory: 4000, f32: 44, matrix: 148, product: 142.1, sms: 78, l2Mib: 60 },
    ['NVLink 4', 450],
    'NVIDIA H20 datasheet (its f32 rate is 11 % more than 78 units do at the 1.98 GHz of the driver); nvidia-smi',
  ),
  nvidia(
    'gh200',
    'GH200',
    'gh200(?! 144)[^,]*',
    { vramGb: 96, driverMib: 97_871, memory: 4000, f32: 67, matrix: 989, sms: 132, l2Mib: 50 },
    ['NVLink 4', 450, { gpus: 32, pcie: 50 }],
    'NVIDIA GH200 Grace Hopper datasheet (96 GB HBM3); nvidia-smi; racks of 32, joined by InfiniBand of 400 Gb/s',
    'h100',
  ),
  nvidia(
    'h20-3e',
    'H20-3e 141GB',
    'h20-3e',
    { vramGb: 141, driverMib: 143_771, memory: 4800, f32: 44, matrix: 148, product: 142.1, sms: 78, l2Mib: 60 },
    ['NVLink 4', 450],
    'NVIDIA H20 datasheet (141 GB HBM3e); nvidia-smi',
  ),
  nvidia(
    'l20x',
    'L20X 141GB',
    'l20x',
    { vramGb: 141, driverMib: 143_771, memory: 4800, f32: 67, matrix: 989, sms: 132, l2Mib: 50 },
    ['NVLink 4', 450],
    'no datasheet is public: memory, 132 units and compute capability 9.0 by its driver, matrix rate by ByteDance ' +
      'VeOmni; the rest taken from the H200, which has the same',
    'h200',
  ),
  nvidia(
    'a100-40',
    'A100 40GB (SXM or PCIe)',
    'a100.*40 ?gb',
    {
      vramGb: 40,
      driverMib: 40_960,
      memory: 1555,
      f32: 19.5,
      matrix: 312,
      product: 240.2,
      sms: 108,
      l2Mib: 40,
      lanes: 64,
      fp8: false,
    },
    ['NVLink 3', 300],
    'NVIDIA A100 datasheet (40GB); nvidia-smi',
    'a100-80',
  ),
  nvidia(
    'a100-80',
    'A100 SXM 80GB',
    'a100-sxm4?-80 ?gb',
    {
      vramGb: 80,
      driverMib: 81_920,
      memory: 2039,
      f32: 19.5,
      matrix: 312,
      product: 264.5,
      sms: 108,
      l2Mib: 40,
      lanes: 64,
      fp8: false,
    },
    ['NVLink 3', 300],
    'NVIDIA A100 datasheet (80GB SXM); nvidia-smi',
  ),
  nvidia(
    'a100-80-pcie',
    'A100 PCIe 80GB',
    'a100[ -](80 ?gb )?pcie(-80 ?gb)?$',
    { vramGb: 80, driverMib: 81_920, memory: 1935, f32: 19.5, matrix: 312, sms: 108, l2Mib: 40, lanes: 64, fp8: false },
    ['NVLink bridge', 300, { gpus: 2, pcie: 32 }],
    'NVIDIA A100 datasheet (80GB PCIe); nvidia-smi',
    'a100-80',
  ),
  nvidia(
    'a800',
    'A800 SXM 80GB',
    'a800-sxm4?-80 ?gb',
    { vramGb: 80, driverMib: 81_920, memory: 2039, f32: 19.5, matrix: 312, sms: 108, l2Mib: 40, lanes: 64, fp8: false },
    ['NVLink 3', 200],
    'NVIDIA A800 datasheet (80GB SXM: an A100 with NVLink at 400 GB/s both ways); nvidia-smi',
    'a100-80',
  ),
  nvidia(
    'a800-pcie',
    'A800 PCIe 80GB',
    'a800[ -](80 ?gb )?pcie(-80 ?gb)?$',
    { vramGb: 80, driverMib: 81_920, memory: 1935, f32: 19.5, matrix: 312, sms: 108, l2Mib: 40, lanes: 64, fp8: false },
    ['NVLink bridge', 200, { gpus: 2, pcie: 32 }],
    'NVIDIA A800 datasheet (80GB PCIe: an A100 PCIe with NVLink at 400 GB/s both ways); nvidia-smi',
    'a100-80',
  ),
  nvidia(
    'b200',
    'B200 SXM',
    '(?<!g)b200',
    { vramGb: 180, driverMib: 183_359, memory: 8000, f32: 80, matrix: 2250, product: 1696, sms: 148, l2Mib: 126 },
    ['NVLink 5', 900],
    'NVIDIA Blackwell architecture technical brief (HGX B200, 1000 W), DGX B200 datasheet (1,440 GB over 8; the ' +
      'chip carries 192 GB); nvidia-smi',
  ),
  nvidia(
    'b300',
    'B300 SXM',
    '(?<!g)b300',
    { vramGb: 288, driverMib: 275_040, memory: 8000, f32: 75, matrix: 2250, sms: 148, l2Mib: 126 },
    ['NVLink 5', 900],
    'NVIDIA HGX B300 and DGX B300 specifications (Blackwell Ultra, 2.3 TB over 8); nvidia-smi',
  ),
  nvidia(
    'gb200',
    'GB200 (one GPU)',
    'gb200',
    { vramGb: 186, driverMib: 189_471, memory: 8000, f32: 80, matrix: 2500, sms: 152, l2Mib: 126 },
    ['NVLink 5', 900, { gpus: 72, pcie: 50 }],
    'NVIDIA GB200 NVL72 datasheet over 72 (13.4 TB, 576 TB/s, 360 PFLOP/s sparse; 400 Gb/s of network ' +
      'each); nvidia-smi',
  ),
  nvidia(
    'gb300',
    'GB300 (one GPU)',
    'gb300',
    { vramGb: 288, driverMib: 284_208, memory: 8000, f32: 80, matrix: 2500, sms: 152, l2Mib: 126 },
    ['NVLink 5', 900, { gpus: 72, pcie: 50 }],
    'NVIDIA GB300 NVL72 datasheet over 72 (576 TB/s, 360 PFLOP/s sparse; the chip carries 288 GB); nvidia-smi',
  ),
];
