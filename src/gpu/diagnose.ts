/**
 * What adapters Dawn offers on this machine, for people: names, features, limits, and what is missing with its remedy.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { ownBackend } from './adapter.js';
import { describeAdapter } from './describe.js';
import { countsThreads } from './processor-time.js';

export interface AdapterReport {
  readonly description: string;
  readonly device: string;
  readonly driver: string;
  readonly vendor: string;
  readonly architecture: string;
  readonly backend: string;
  readonly software: boolean;
  /** What times it, where that is neither its timestamps nor the wall clock. */
  readonly clock?: 'processor';
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

const LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'subgroupMinSize',
  'subgroupMaxSize',
] as const;

/** Features that matter, and the consequence of their absence. */
const WANTED: readonly (readonly [feature: string, consequence: string])[] = [
  ['timestamp-query', 'kernels are timed by the wall clock'],
  ['subgroups', 'reductions go through workgroup memory'],
  ['shader-f16', 'arithmetic is f32 only (storage in f16 works all the same)'],
  ['chromium-experimental-subgroup-matrix', 'matrix units cannot be used'],
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
  const d = describeAdapter(adapter, ownBackend());
  const limits: Record<string, number> = {};
  for (const name of LIMITS) {
    const value =
      (adapter.limits as unknown as Record<string, number>)[name] ??
      (adapter.info as unknown as Record<string, number>)[name];
    if (typeof value === 'number') limits[name] = value;
  }
  const features = [...adapter.features].sort();
  return {
    description: d.description,
    device: d.device,
    driver: d.driver,
    vendor: d.vendor,
    architecture: d.architecture,
    backend: d.backend,
    software: d.software,
    ...(d.software && countsThreads() ? { clock: 'processor' as const } : {}),
    features,
    limits,
    missing: WANTED.filter(([feature]) => !features.includes(feature)).map(([what, consequence]) => ({
      what,
      consequence,
    })),
  };
}

const NVIDIA_ICD = [
  '/usr/share/vulkan/icd.d',
  '/etc/vulkan/icd.d',
  '/usr/local/share/vulkan/icd.d',
  '/usr/local/nvidia/share/vulkan/icd.d',
];

/** Next steps: a GPU whose driver Dawn does not see, or a software driver where there is none at all. */
function remediesFor(adapters: readonly AdapterReport[]): string[] {
  const remedies: string[] = [];
  if (adapters.some((a) => !a.software)) return remedies;
  if (process.platform === 'linux') {
    const nvidia = existsSync('/dev/nvidia0') || existsSync('/proc/driver/nvidia/version');
    const loader = [
      '/usr/lib/x86_64-linux-gnu/libvulkan.so.1',
      '/usr/lib/aarch64-linux-gnu/libvulkan.so.1',
      '/usr/lib64/libvulkan.so.1',
      '/lib/x86_64-linux-gnu/libvulkan.so.1',
    ].some((f) => existsSync(f));
    if (!loader)
      remedies.push(
        `install the Vulkan loader: ` +
          `${isDebian() ? 'sudo apt-get install libvulkan1' : 'the package that holds libvulkan.so.1'}`,
      );
    if (nvidia) {
      const icd = NVIDIA_ICD.flatMap((d) =>
        existsSync(d)
          ? readdirSync(d)
              .filter((f) => f.includes('nvidia'))
              .map((f) => `${d}/${f}`)
          : [],
      )[0];
      remedies.push(
        icd
          ? `point the loader at NVIDIA's driver: export VK_DRIVER_FILES=${icd}`
          : "install NVIDIA's Vulkan driver (libnvidia-gl; in a container: NVIDIA_DRIVER_CAPABILITIES=all)",
      );
    } else if (existsSync('/dev/dri')) {
      remedies.push(
        'a GPU is there (/dev/dri) without a Vulkan driver that Dawn accepts: install Mesa 24 or later ' +
          '(mesa-vulkan-drivers), and give this user access to /dev/dri (group render)',
      );
    }
  } else if (process.platform === 'darwin') {
    if (adapters.length === 0)
      remedies.push('Dawn uses Metal: macOS 13 or later on a Mac with a Metal 2 GPU is needed');
  } else if (process.platform === 'win32') {
    if (adapters.length === 0) remedies.push("install the GPU maker's current driver (Direct3D 12 or Vulkan)");
  }
  if (adapters.length === 0 && process.platform === 'linux')
    remedies.push(
      `without a GPU: ` +
        `${isDebian() ? 'npm run setup:gpu installs a software driver' : 'install Mesa 24 or later with lavapipe'} ` +
        `(correct results, no GPU speed)`,
    );
  return remedies;
}

function isDebian(): boolean {
  try {
    return /^ID(_LIKE)?=.*(debian|ubuntu)/m.test(readFileSync('/etc/os-release', 'utf8'));
  } catch {
    return false;
  }
}
