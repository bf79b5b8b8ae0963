/** Opening a device. */
import type { AdapterDescription } from './describe.js';
import { Device } from './device.js';
import { WANTED_FEATURES, WANTED_LIMITS, type DeviceLimits, type MatrixConfig, type Platform } from './platform.js';

/** Opens an adapter's device with all that kernels use of it. @throws GpuError or the adapter's own error */
export async function deviceOf(
  adapter: GPUAdapter,
  description: AdapterDescription,
  platform: Platform,
): Promise<Device> {
  const features = WANTED_FEATURES.filter((f) => adapter.features.has(f));
  const requiredLimits: Record<string, number> = {};
  for (const name of WANTED_LIMITS) requiredLimits[name] = adapter.limits[name];
  const raw = await adapter.requestDevice({ requiredFeatures: features, requiredLimits });
  const processor = description.software ? (platform.processorClock?.() ?? null) : null;
  const limits = Object.fromEntries(WANTED_LIMITS.map((name) => [name, raw.limits[name]])) as DeviceLimits;
  const info = adapter.info as GPUAdapterInfo & { readonly subgroupMatrixConfigs?: readonly MatrixConfig[] };
  // Copied out: Dawn's object is not plain data.
  const matrixConfigs = (info.subgroupMatrixConfigs ?? []).map((of): MatrixConfig => {
    const { componentType, resultComponentType, M, N, K } = of;
    return { componentType, resultComponentType, M, N, K };
  });
  const units = { matrixConfigs, subgroupSizes: [info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0] as const };
  const described = { ...description, ...(processor && { clock: 'processor' as const }) };
  return new Device(raw, described, [...adapter.features].sort(), limits, platform, units, processor);
}
