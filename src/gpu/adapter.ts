/** Finds an adapter through Dawn. */
import { tmpdir } from 'node:os';
import { create, globals } from 'webgpu';
import { EXIT, show, UserError } from '../errors.js';
import { describeAdapter, type AdapterDescription } from './describe.js';
import { threadsNow } from './processor-time.js';

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

export interface AdapterOptions {
  /** Part of the name of the adapter wanted, where a machine has several. */
  adapter?: string;
  /** Dawn backend: vulkan, metal, d3d12. The platform's own unless given. */
  backend?: string;
}

const PLATFORM_BACKENDS: Partial<Record<NodeJS.Platform, string>> = { darwin: 'metal', win32: 'd3d12' };

/** The backend that Dawn takes on this platform, unless another is named. */
export const ownBackend = (): string => PLATFORM_BACKENDS[process.platform] ?? 'vulkan';

export interface OpenAdapter {
  /** Must stay referenced for as long as the device lives, or Dawn frees it. */
  gpu: GPU;
  adapter: GPUAdapter;
  description: AdapterDescription;
  /** Of this process, before Dawn looked for adapters. */
  threads: ReadonlySet<string>;
}

/** @throws UserError (exit code 6) when Dawn finds no adapter */
export async function openAdapter(options: AdapterOptions = {}): Promise<OpenAdapter> {
  // Vulkan's window-system layer prints a warning without it.
  process.env.XDG_RUNTIME_DIR ??= tmpdir();
  // GPUBufferUsage and its sisters are globals in a browser, and the type package expects them there.
  Object.assign(globalThis, globals);
  const flags = [...DAWN_FLAGS];
  if (options.adapter !== undefined) flags.push(`adapter=${options.adapter}`);
  if (options.backend !== undefined) flags.push(`backend=${options.backend}`);
  const threads = threadsNow();
  const gpu = create(flags);
  const adapter = await request(gpu);
  if (!('requestDevice' in adapter)) {
    const found = [...new Set(adapter)].map(show).join(' or ');
    throw new UserError(
      options.adapter !== undefined && found !== ''
        ? `no usable GPU: no adapter has ${show(options.adapter)} in its name`
        : 'no usable GPU: Dawn found no adapter',
      options.adapter !== undefined && found !== ''
        ? `give --adapter a part of ${found}, or leave it out`
        : 'install a Vulkan 1.3 driver for the GPU, or a software one with `npm run setup:gpu` ' +
            '(scripts/setup-software-gpu.sh)',
      EXIT.noGpu,
    );
  }
  return { gpu, adapter, description: describeAdapter(adapter, options.backend ?? ownBackend()), threads };
}

/** The adapter, or the names of those that Dawn found instead. */
async function request(gpu: GPU): Promise<GPUAdapter | readonly string[]> {
  try {
    return (await gpu.requestAdapter({ powerPreference: 'high-performance' })) ?? [];
  } catch (error) {
    // Where a name matches nothing Dawn lists its adapters: ` * backend: 'vulkan', name: 'llvmpipe (LLVM 15.0.6)'`.
    return [...String((error as Error).message).matchAll(/, name: '(.*)'/g)].map(([, name = '']) => name);
  }
}
