/**
 * What adapters Dawn offers on this machine, for people: names, features, limits, and what is missing with its remedy.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { present } from '../present.js';
import { ownBackend } from './adapter.js';
import { describeAdapter, type AdapterDescription } from './describe.js';
import { MATRIX_FEATURE, SHOWN_LIMITS } from './platform.js';
import { countsThreads } from './processor-time.js';

export interface AdapterReport extends Readonly<AdapterDescription> {
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  /** What lla-sim would use and this adapter lacks. */
  readonly missing: readonly { readonly what: string; readonly consequence: string }[];
}

export interface Diagnosis {
  readonly adapters: readonly AdapterReport[];
  /** Exact next steps for this operating system; empty when nothing needs doing. */
  readonly remedies: readonly string[];
  /** Why Dawn itself could not be loaded, or null. */
  readonly loadError: string | null;
}

/** Features that matter, and the consequence of their absence. */
const WANTED: AdapterReport['missing'] = [
  { what: 'timestamp-query', consequence: 'kernels are timed by the wall clock' },
  { what: 'subgroups', consequence: 'reductions go through workgroup memory' },
  { what: 'shader-f16', consequence: 'arithmetic is f32 only (storage in f16 works all the same)' },
  { what: MATRIX_FEATURE, consequence: 'matrix units cannot be used' },
];

/** Asks Dawn for the fast, the frugal and the software adapter of every backend that this platform has. */
export async function diagnose(): Promise<Diagnosis> {
  process.env['XDG_RUNTIME_DIR'] ??= tmpdir();
  let dawn: typeof import('webgpu');
  try {
    dawn = await import('webgpu');
  } catch (error) {
    return {
      adapters: [],
      remedies: ['reinstall the package webgpu for this platform: npm ci'],
      loadError: (error as Error).message.split('\n')[0] as string,
    };
  }
  Object.assign(globalThis, dawn.globals);
  const found = new Map<string, AdapterReport>();
  const gpu = dawn.create(['enable-dawn-features=vulkan_enable_f16_on_nvidia,allow_unsafe_apis']);
  for (const options of [
    { powerPreference: 'high-performance' },
    { powerPreference: 'low-power' },
    { forceFallbackAdapter: true },
  ] as GPURequestAdapterOptions[]) {
    const adapter = await gpu.requestAdapter(options).catch(() => null);
    if (!adapter) continue;
    const report = reportOf(adapter);
    found.set(`${report.backend}/${report.description}`, report);
  }
  const adapters = [...found.values()];
  return { adapters, remedies: remediesFor(adapters), loadError: null };
}

function reportOf(adapter: GPUAdapter): AdapterReport {
  const { description, device, driver, ...others } = describeAdapter(adapter, ownBackend());
  const { limits: bounds, info } = adapter as unknown as Record<'limits' | 'info', Record<string, number>>;
  const limits: Record<string, number> = {};
  for (const name of [...SHOWN_LIMITS, 'subgroupMinSize', 'subgroupMaxSize']) {
    const value = bounds[name] ?? info[name];
    if (typeof value === 'number') limits[name] = value;
  }
  const features = [...adapter.features].sort();
  const missing = WANTED.filter(({ what }) => !features.includes(what));
  const clock = others.software && countsThreads() ? { clock: 'processor' as const } : {};
  return { description, device, driver, ...others, ...clock, features, limits, missing };
}

const NVIDIA_ICD = [
  '/usr/share/vulkan/icd.d',
  '/etc/vulkan/icd.d',
  '/usr/local/share/vulkan/icd.d',
  '/usr/local/nvidia/share/vulkan/icd.d',
];

/** Next steps: a GPU whose driver Dawn does not see, or a software driver where there is none at all. */
function remediesFor(adapters: readonly AdapterReport[]): string[] {
  if (adapters.some((a) => !a.software)) return [];
  const none = adapters.length === 0;
  const { platform } = process;
  if (platform !== 'linux')
    return present([
      none && platform === 'darwin' && 'Dawn uses Metal: macOS 13 or later on a Mac with a Metal 2 GPU is needed',
      none && platform === 'win32' && "install the GPU maker's current driver (Direct3D 12 or Vulkan)",
    ]);
  const nvidia = existsSync('/dev/nvidia0') || existsSync('/proc/driver/nvidia/version');
  return present([
    !LOADERS.some((file) => existsSync(file)) &&
      `install the Vulkan loader: ` +
        `${isDebian() ? 'sudo apt-get install libvulkan1' : 'the package that holds libvulkan.so.1'}`,
    nvidia && nvidiaRemedy(),
    !nvidia &&
      existsSync('/dev/dri') &&
      'a GPU is there (/dev/dri) without a Vulkan driver that Dawn accepts: install Mesa 24 or later ' +
        '(mesa-vulkan-drivers), and give this user access to /dev/dri (group render)',
    none &&
      `without a GPU: ` +
        `${isDebian() ? 'npm run setup:gpu installs a software driver' : 'install Mesa 24 or later with lavapipe'} ` +
        `(correct results, no GPU speed)`,
  ]);
}

const LOADERS = [
  '/usr/lib/x86_64-linux-gnu/libvulkan.so.1',
  '/usr/lib/aarch64-linux-gnu/libvulkan.so.1',
  '/usr/lib64/libvulkan.so.1',
  '/lib/x86_64-linux-gnu/libvulkan.so.1',
];

function nvidiaRemedy(): string {
  const files = NVIDIA_ICD.filter((folder) => existsSync(folder)).flatMap((folder) =>
    readdirSync(folder).map((file) => ({ folder, file })),
  );
  const icd = files.find(({ file }) => file.includes('nvidia'));
  return icd
    ? `point the loader at NVIDIA's driver: export VK_DRIVER_FILES=${icd.folder}/${icd.file}`
    : "install NVIDIA's Vulkan driver (libnvidia-gl; in a container: NVIDIA_DRIVER_CAPABILITIES=all)";
}

function isDebian(): boolean {
  try {
    return /^ID(_LIKE)?=.*(debian|ubuntu)/m.test(readFileSync('/etc/os-release', 'utf8'));
  } catch {
    return false;
  }
}
