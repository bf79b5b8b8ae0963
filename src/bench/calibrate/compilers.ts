/** Devices that compile ahead of a calibration, beside the one that measures. */
import { availableParallelism } from 'node:os';
import type { AdapterOptions } from '../../gpu/adapter.js';
import { openDevice, type Device } from '../../gpu/index.js';

/** Mesa's llvmpipe keeps what it compiled on disk, where other devices find it. */
const SHARES = /llvmpipe/i;
/** Unless that is switched off, with one of these. */
const SWITCHES = ['MESA_SHADER_CACHE_DISABLE', 'MESA_GLSL_CACHE_DISABLE'];
const MOST = 8;

/** Opens a device for each further core, none where a device does not find what another compiled. */
export async function compilersFor(device: Device, options: AdapterOptions): Promise<Device[]> {
  const isOff = SWITCHES.some((name) => /^(1|y|yes|true)$/i.test(process.env[name] ?? ''));
  const count = isOff || !SHARES.test(device.description.description) ? 0 : Math.min(MOST, availableParallelism()) - 1;
  const others: Device[] = [];
  while (others.length < count) others.push(await openDevice(options));
  return others;
}
