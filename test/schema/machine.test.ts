/** Whose times a calibration holds. */
import { describe, expect, it } from 'vitest';
import { isSameAdapter, otherMachine, type AdapterIdentity, type HostIdentity } from '../../src/schema/machine.js';
import type { Calibration } from '../../src/schema/calibration.js';

const gpu = (description: string, driver = '570.1', backend = 'vulkan'): AdapterIdentity => ({
  description,
  device: '0x2330',
  driver,
  backend,
  software: false,
});
const software: AdapterIdentity = { ...gpu('llvmpipe (LLVM 15)'), software: true };
const here: HostIdentity = { cpu: 'AMD EPYC', cores: 2, memoryBytes: 25e9 };
type Measured = Pick<Calibration, 'device' | 'host' | 'clock'>;
const of = (device: AdapterIdentity, host: HostIdentity, kind: Measured['clock']['kind'] = 'gpu-timestamp'): Measured =>
  ({ device, host, clock: { kind, resolutionSeconds: 1e-9 } }) as Measured;

describe('the machine of a calibration', () => {
  it('is the same where adapter, driver and backend are; the processor belongs to software adapters alone', () => {
    const h200 = gpu('NVIDIA H200');
    expect(otherMachine(h200, here, of(h200, { ...here, cpu: 'Xeon', cores: 64 }))).toBeNull();
    expect(otherMachine(software, here, of(software, { ...here, memoryBytes: 25.1e9 }))).toBeNull();
    expect(otherMachine(software, here, of(software, { ...here, cpu: 'Xeon' }))).toContain('processor Xeon');
    expect(otherMachine(software, here, of(software, { ...here, cores: 8 }))).toContain('8 cores');
    expect(otherMachine(software, here, of(software, { ...here, memoryBytes: 64e9 }))).toContain('memory 64');
    const counting: AdapterIdentity = { ...software, clock: 'processor' };
    expect(otherMachine(counting, here, of(software, here, 'processor'))).toBeNull();
    expect(otherMachine(counting, here, of(software, here))).toContain('another clock (gpu-timestamp)');
    expect(otherMachine(software, here, of(software, here, 'processor'))).toContain('another clock (processor)');
    expect(otherMachine(h200, here, of(gpu('NVIDIA H200', '535.5'), here))).toContain('driver 535.5');
    expect(otherMachine(h200, here, of(gpu('NVIDIA H200', '570.1', 'webgpu'), here))).toContain('backend webgpu');
  });
  it('has one adapter under two names where the catalogue knows both', () => {
    expect(isSameAdapter(gpu('NVIDIA H200'), gpu('NVIDIA H200 SXM'))).toBe(true);
    expect(isSameAdapter(gpu('NVIDIA H200'), gpu('NVIDIA H100 80GB HBM3'))).toBe(false);
    expect(isSameAdapter(gpu('an adapter without a name'), gpu('another without a name'))).toBe(false);
    expect(isSameAdapter(software, { ...software, description: 'SwiftShader' })).toBe(false);
  });
});
