/**
 * Finds an adapter through Dawn and says what it is. Together with device.ts the only importer of `webgpu`.
 */
import { tmpdir } from 'node:os';
import { create, globals } from 'webgpu';
import { EXIT, printable, UserError } from '../errors.js';

/**
 * Dawn toggles, joined as its command line wants them (unknown names are ignored silently):
 * - timestamp_quantization off: timestamps would be rounded to 65,536 ns
 * - vulkan_enable_f16_on_nvidia: shader-f16 on NVIDIA drivers before 615
 * - allow_unsafe_apis: subgroup matrices where the driver has them
 */
const DAWN_FLAGS = [
  'disable-dawn-features=timestamp_quantization',
  'enable-dawn-features=vulkan_enable_f16_on_nvidia,allow_unsafe_apis',
];

const SOFTWARE = /llvmpipe|lavapipe|swiftshader|softpipe|basic render/i;

export interface AdapterOptions {
  /** Part of the name of the adapter wanted, where a machine has several. */
  adapter?: string;
  /** Dawn backend: vulkan, metal, d3d12. The platform's own unless given. */
  backend?: string;
}

export interface AdapterDescription {
  vendor: string;
  architecture: string;
  device: string;
  description: string;
  /** Dawn reports the driver's own description; that is the only driver text it has. */
  driver: string;
  backend: string;
  /** The adapter runs on the CPU: right results, no GPU's speed. */
  software: boolean;
}

const PLATFORM_BACKENDS: Partial<Record<NodeJS.Platform, string>> = { darwin: 'metal', win32: 'd3d12' };

export interface OpenAdapter {
  /** Must stay referenced for as long as the device lives, or Dawn frees it. */
  gpu: GPU;
  adapter: GPUAdapter;
  description: AdapterDescription;
}

/**
 * @throws UserError (exit code 6) when Dawn finds no adapter
 */
export async function openAdapter(options: AdapterOptions = {}): Promise<OpenAdapter> {
  // Vulkan's window-system layer prints a warning without it.
  process.env.XDG_RUNTIME_DIR ??= tmpdir();
  // GPUBufferUsage and its sisters are globals in a browser, and the type package expects them there.
  Object.assign(globalThis, globals);
  const flags = [...DAWN_FLAGS];
  if (options.adapter !== undefined) flags.push(`adapter=${options.adapter}`);
  if (options.backend !== undefined) flags.push(`backend=${options.backend}`);
  const gpu = create(flags);
  const adapter = await request(gpu);
  if (!adapter) {
    throw new UserError(
      options.adapter === undefined
        ? 'no usable GPU: Dawn found no adapter'
        : `no usable GPU: Dawn found no adapter whose name contains "${options.adapter}"`,
      'install a Vulkan 1.3 driver for the GPU, or a software one with `npm run setup:gpu` (scripts/setup-software-gpu.sh)',
      EXIT.noGpu,
    );
  }
  return { gpu, adapter, description: describeAdapter(adapter, options.backend) };
}

async function request(gpu: GPU): Promise<GPUAdapter | null> {
  try {
    return await gpu.requestAdapter({ powerPreference: 'high-performance' });
  } catch {
    // A name that matches nothing rejects where an empty machine resolves to null; both mean the same here.
    return null;
  }
}

/** Names an adapter and tells whether it runs on the CPU. */
export function describeAdapter(adapter: GPUAdapter, backend?: string): AdapterDescription {
  const info = adapter.info;
  // A driver's words go to the terminal and into files.
  const [vendor, architecture, device, description] = [
    info.vendor,
    info.architecture,
    info.device,
    info.description,
  ].map((words) => printable(words).slice(0, 400)) as [string, string, string, string];
  const text = `${vendor} ${architecture} ${device} ${description}`;
  return {
    vendor,
    architecture,
    device,
    description,
    driver: description,
    backend: backend ?? PLATFORM_BACKENDS[process.platform] ?? 'vulkan',
    software: info.isFallbackAdapter || info.architecture === 'software' || SOFTWARE.test(text),
  };
}
