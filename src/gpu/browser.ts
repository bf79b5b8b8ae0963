/// <reference lib="dom" />
/** The device that a browser lends a page. */
import { printable } from '../errors.js';
import { describeAdapter, type AdapterDescription } from './describe.js';
import type { Device } from './device.js';
import { deviceOf } from './opening.js';
import { SHOWN_LIMITS, type Platform } from './platform.js';

const MIB = 2 ** 20;
/** A desktop waits for a dispatch, and some drivers reset a device after two seconds: far less than either notices. */
const DISPATCH_SECONDS = 0.1;
/** Operands of one point: this share of the largest buffer that the adapter allows, and no more than that. */
const MEMORY = { share: 1 / 4, mostBytes: 512 * MIB };

/** A device, and what its adapter offers. */
export interface BrowserDevice {
  readonly device: Device;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
}

/** @returns null where the browser has no WebGPU, or no adapter */
export async function openBrowserDevice(): Promise<BrowserDevice | null> {
  // Older browsers have none.
  const gpu = navigator.gpu as GPU | undefined;
  const adapter = await gpu?.requestAdapter({ powerPreference: 'high-performance' }).catch(() => null);
  if (!adapter) return null;
  const pointBytes = Math.min(MEMORY.mostBytes, Math.floor(MEMORY.share * adapter.limits.maxBufferSize));
  const platform: Platform = {
    bounds: { dispatchSeconds: DISPATCH_SECONDS, pointBytes, roundedClocks: true },
    wait: (finished) => finished,
  };
  return {
    device: await deviceOf(adapter, named(describeAdapter(adapter, 'webgpu')), platform),
    features: [...adapter.features].sort(),
    limits: Object.fromEntries(SHOWN_LIMITS.map((name) => [name, adapter.limits[name]])),
  };
}

/** Browsers leave the adapter's name empty; WebGL has one, of the same maker where it is the same adapter. */
function named(d: AdapterDescription): AdapterDescription {
  if (d.description !== '') return d;
  const renderer = webglRenderer();
  const maker = d.vendor.toLowerCase();
  // Firefox writes "or similar" behind the name of another GPU.
  const same = maker !== '' && renderer.toLowerCase().includes(maker) && !/or similar/i.test(renderer);
  const words = [d.vendor, d.architecture, d.device].filter((word) => word !== '').join(' ');
  return { ...d, description: same ? renderer : words === '' ? 'an adapter without a name' : words };
}

/** What WebGL calls the GPU, without the words of its translator: `NVIDIA GeForce RTX 4090`. */
function webglRenderer(): string {
  const gl = document.createElement('canvas').getContext('webgl');
  const extension = gl?.getExtension('WEBGL_debug_renderer_info');
  const text: unknown = extension ? gl?.getParameter(extension.UNMASKED_RENDERER_WEBGL) : null;
  gl?.getExtension('WEBGL_lose_context')?.loseContext();
  return typeof text === 'string' ? rendererName(text) : '';
}

/** `ANGLE (NVIDIA, NVIDIA GeForce RTX 4090 (0x00002684) Direct3D11 vs_5_0, D3D11)` names its GPU in the second part. */
export function rendererName(text: string): string {
  const inner = /^ANGLE \((.*)\)$/s.exec(text)?.[1];
  const name = inner === undefined ? text : (inner.split(', ')[1] ?? inner);
  return printable(
    name
      .replace(/^ANGLE Metal Renderer: /, '')
      .replace(/\(0x[0-9a-f]+\)|Direct3D.*$|vs_\d.*$|OpenGL.*$|Vulkan \d.*$|\/PCIe.*$/gi, '')
      .replace(/\s+/g, ' ')
      .trim(),
  ).slice(0, 400);
}
