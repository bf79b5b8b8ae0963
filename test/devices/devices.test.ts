import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { clockOf, DEVICES, type DeviceSpec } from '../../src/devices/catalogue.js';
import { deviceOfAdapter, devicesByVram, findDevice } from '../../src/devices/find.js';
import { nearestName } from '../../src/nearest.js';
import { UserError } from '../../src/errors.js';
import { expectGolden } from '../golden/golden.js';

describe('device catalogue', () => {
  it('has unique ids and names', () => {
    expect(new Set(DEVICES.map((d) => d.id)).size).toBe(DEVICES.length);
    expect(new Set(DEVICES.map((d) => d.name)).size).toBe(DEVICES.length);
  });

  it.each(DEVICES.map((d) => [d.id, d] as const))('%s is in a sane range', (_, d) => {
    expect(d.id).toMatch(/^[a-z0-9-]+$/);
    expect(d.source.length).toBeGreaterThan(8);
    expect(d.vramBytes).toBeGreaterThanOrEqual(16e9);
    expect(d.vramBytes).toBeLessThanOrEqual(600e9);
    // GiB and GB, ECC and reserved memory: at most 8 % apart
    if (d.driverBytes !== null) expect(Math.abs(d.driverBytes / d.vramBytes - 1)).toBeLessThan(0.08);
    expect(d.memoryBytesPerSecond).toBeGreaterThan(0.1e12);
    expect(d.memoryBytesPerSecond).toBeLessThan(20e12);
    expect(d.f32FlopsPerSecond).toBeGreaterThan(1e12);
    expect(d.f32FlopsPerSecond).toBeLessThan(400e12);
    expect(d.matrixFlopsPerSecond).toBeGreaterThanOrEqual(d.f32FlopsPerSecond);
    expect(d.matrixFlopsPerSecond).toBeLessThan(10e15);
    // The boost clock that the f32 rate, units and lanes make.
    expect(clockOf(d)).toBeGreaterThan(1.2e9);
    expect(clockOf(d)).toBeLessThan(2.7e9);
    if (d.interconnect) {
      expect(d.interconnect.bytesPerSecondPerDirection).toBeGreaterThan(10e9);
      expect(d.interconnect.bytesPerSecondPerDirection).toBeLessThan(d.memoryBytesPerSecond);
    }
  });

  it('has every figure of the device with the same chip, but those of the link', () => {
    const cards = DEVICES.filter((d) => d.sameChipAs !== undefined);
    for (const { sameChipAs, memoryBytesPerSecond, lanes, l2Bytes, multipliesFp8 } of cards) {
      const measured = findDevice(sameChipAs!);
      expect(measured).toMatchObject({ lanes, multipliesFp8 });
      // A part of the L2 may be switched off.
      expect(l2Bytes! / measured.l2Bytes!).toBeGreaterThan(0.7);
      expect(l2Bytes).toBeLessThanOrEqual(measured.l2Bytes!);
      expect(memoryBytesPerSecond / measured.memoryBytesPerSecond).toBeGreaterThan(0.5);
    }
    const twins = cards.filter(({ source }) => source.includes('with NVLink at 400 GB/s') && !source.includes('PCIe'));
    expect(twins.map((d) => d.id)).toEqual(['h800', 'a800']);
    for (const { id: _id, name: _name, adapterPattern: _pattern, source, sameChipAs, interconnect, ...d } of twins) {
      const other = findDevice(sameChipAs!);
      expect(other).toMatchObject(d);
      expect(source).toContain(`: an ${other.name.split(' ')[1]} with NVLink at 400 GB/s`);
      expect(interconnect!.bytesPerSecondPerDirection).toBeLessThan(other.interconnect!.bytesPerSecondPerDirection);
    }
  });

  // Against slips: what a datasheet says is kept twice.
  it('has the figures of golden/devices.txt', () => {
    const line = ({ interconnect: link, ...d }: DeviceSpec): string =>
      [d, link ?? {}]
        .flatMap((part) => Object.entries(part))
        .filter(([name]) => !['adapterPattern', 'source', 'sameChipAs'].includes(name))
        .map(([, value]) => String(value as string | number | boolean | null))
        .join(', ');
    expectGolden('devices.txt', DEVICES.map(line));
  });

  it('has the figures of the H200 datasheet (SXM), and the memory that its driver reports', () => {
    const h200 = findDevice('h200');
    expect(h200).toMatchObject({
      vramBytes: 141e9,
      memoryBytesPerSecond: 4.8e12,
      f32FlopsPerSecond: 67e12,
      matrixFlopsPerSecond: 989e12,
    });
    expect(h200.driverBytes).toBe(143_771 * 1024 ** 2);
  });
});

describe('devicesByVram', () => {
  it('takes 141 GB as an H200, and names the others of its memory', () => {
    expect(devicesByVram(141e9).map((d) => d.id)).toEqual(['h200', 'h200-nvl', 'h20-3e', 'l20x']);
  });

  it('names every 80 GB device, fastest memory first', () => {
    expect(devicesByVram(80e9).map((d) => d.id)).toEqual([
      'h100',
      'h800',
      'a100-80',
      'a800',
      'h100-pcie',
      'h800-pcie',
      'a100-80-pcie',
      'a800-pcie',
    ]);
  });

  it('understands what a driver reports', () => {
    expect(devicesByVram(143_771 * 1024 ** 2)[0]?.id).toBe('h200');
    expect(devicesByVram(81_559 * 1024 ** 2).map((d) => d.id)).toContain('h100');
    expect(devicesByVram(183e9)[0]?.id).toBe('b200');
    expect(devicesByVram(192e9).map((d) => d.id)).toContain('b200'); // by its driver figure
  });

  it('finds nothing far from every device', () => {
    expect(devicesByVram(1e9)).toEqual([]);
    expect(devicesByVram(110e9)).toEqual([]);
  });
});

describe('findDevice', () => {
  it.each([
    ['H200', 'h200'],
    ['nvidia h200 sxm', 'h200'],
    ['RTX4090', 'rtx-4090'],
    ['GeForce RTX 4090', 'rtx-4090'],
    ['MI300X', 'mi300x'],
    ['apple m3 max', 'm3-max'],
    ['NVIDIA A100-SXM4-80GB', 'a100-80'],
    ['NVIDIA H200/PCIe/SSE2', 'h200'],
    ['Tesla H100 80GiB', 'h100'],
    ['NVIDIA H100 80GB HBM3', 'h100'],
  ])('%s is %s', (asked, id) => {
    expect(findDevice(asked).id).toBe(id);
  });

  it.each([
    ['h20o', 'h20 or h200'],
    ['rtx 409', 'rtx-4090'],
    ['a100', 'a100-40'],
  ])('suggests for %s', (asked, meant) => {
    try {
      findDevice(asked);
      expect.unreachable();
    } catch (error) {
      expect((error as UserError).exitCode).toBe(2);
      expect((error as UserError).hint).toMatch(new RegExp(`^did you mean ${meant}\\b`));
      expect((error as UserError).hint).toContain('lla-sim models --devices lists all');
    }
  });

  it.each([
    ['h100-mig-1g.10gb', 'a part of a GPU'],
    ['NVIDIA A100-SXM4-40GB MIG 1g.5gb', 'a part of a GPU'],
    ['h200/2', 'a part of a GPU'],
    ['h100:0.5', 'a part of a GPU'],
    ['H200 half', 'a part of a GPU'],
    ['h100 sxm 64gb', 'h100 has 80 GB'],
    ['b200/b300', 'one device is planned here'],
  ])('does not take %s for a whole GPU', (asked, why) => {
    expect(() => findDevice(asked)).toThrow(why);
  });

  it('throws nothing but UserError', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          findDevice(text);
        } catch (error) {
          expect(error).toBeInstanceOf(UserError);
        }
      }),
    );
  });
});

describe('deviceOfAdapter', () => {
  it.each([
    ['NVIDIA H200', 'h200'],
    ['NVIDIA H200 NVL', 'h200-nvl'],
    ['NVIDIA H100 80GB HBM3', 'h100'],
    ['NVIDIA H100 PCIe', 'h100-pcie'],
    ['NVIDIA H100 NVL', 'h100-nvl'],
    ['NVIDIA H800', 'h800'],
    ['NVIDIA H800 PCIe', 'h800-pcie'],
    ['NVIDIA H20', 'h20'],
    ['NVIDIA H20-3e', 'h20-3e'],
    ['NVIDIA L20X', 'l20x'],
    ['NVIDIA A800-SXM4-80GB', 'a800'],
    ['NVIDIA A800 80GB PCIe', 'a800-pcie'],
    ['NVIDIA GeForce RTX 5080', 'rtx-5080'],
    ['AMD Instinct MI355X', 'mi355x'],
    ['NVIDIA A100-SXM4-40GB', 'a100-40'],
    ['NVIDIA A100-PCIE-40GB', 'a100-40'],
    ['NVIDIA A100-SXM4-80GB', 'a100-80'],
    ['NVIDIA A100 80GB PCIe', 'a100-80-pcie'],
    ['NVIDIA B200', 'b200'],
    ['NVIDIA B300 SXM6 AC', 'b300'],
    ['NVIDIA GB200', 'gb200'],
    ['NVIDIA GB300', 'gb300'],
    ['NVIDIA RTX PRO 6000 Blackwell Server Edition', 'rtx-pro-6000'],
    ['NVIDIA L40S', 'l40s'],
    ['NVIDIA L4', 'l4'],
    ['NVIDIA A10G', 'a10g'],
    ['NVIDIA A10', 'a10'],
    ['NVIDIA A40', 'a40'],
    ['NVIDIA RTX A6000', 'rtx-a6000'],
    ['NVIDIA GeForce RTX 5090', 'rtx-5090'],
    ['NVIDIA GeForce RTX 4090', 'rtx-4090'],
    ['NVIDIA GeForce RTX 3090', 'rtx-3090'],
    ['NVIDIA RTX 6000 Ada Generation', 'rtx-6000-ada'],
    ['AMD Instinct MI300X', 'mi300x'],
    ['Apple M2 Ultra', 'm2-ultra'],
    ['Apple M4 Max', 'm4-max'],
  ])('%s is %s, and no other entry', (description, id) => {
    expect(deviceOfAdapter(description)?.id).toBe(id);
    expect(DEVICES.filter((d) => new RegExp(d.adapterPattern, 'i').test(description)).map((d) => d.id)).toEqual([id]);
  });

  it.each([
    'NVIDIA GeForce RTX 3090 Ti',
    'NVIDIA GeForce RTX 4090 Laptop GPU',
    'NVIDIA GeForce RTX 4090 D',
    'NVIDIA L40',
    'NVIDIA L20',
    'NVIDIA A800 40GB Active',
    'NVIDIA GeForce RTX 5080 Laptop GPU',
    'NVIDIA A100X',
    'llvmpipe (LLVM 19.1.4, 256 bits)',
    '',
  ])('knows no %s', (description) => {
    expect(deviceOfAdapter(description)).toBeUndefined();
  });
});

describe('nearestName', () => {
  it('suggests only what is close', () => {
    expect(nearestName('lal', ['lla', 'cla', 'full'])).toBe('lla');
    expect(nearestName('zzzzzz', ['lla', 'cla', 'full'])).toBeUndefined();
    expect(nearestName('', ['lla'])).toBeUndefined();
  });
});
