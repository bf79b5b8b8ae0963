/** What the measuring page says in words: features and limits, what to do without WebGPU, what was checked. */
import type { Calibration } from '../schema/calibration.js';
import { formatBytes } from '../numbers/units.js';

/** What an adapter's features and limits mean for the kernels. */
export function featureWords(
  features: readonly string[],
  limits: Readonly<Record<string, number>>,
  subgroupSizes: readonly [number, number],
  pointBytes: number,
): string[] {
  const has = (name: string): boolean => features.includes(name);
  const [least, most] = subgroupSizes;
  const threads = least === most ? `${least}` : `${least} to ${most}`;
  return [
    has('timestamp-query')
      ? 'timestamp-query: the GPU times its own work, as exactly as this browser lets it.'
      : 'No timestamp-query: kernels are timed by the clock of the page, in longer runs.',
    !has('subgroups')
      ? 'No subgroups: a cached row is read by one thread, and kernels that pass values among threads are left out.'
      : least < 8
        ? `Subgroups of ${threads} threads: fewer threads share a cached row, and kernels that need eight are left out.`
        : `Subgroups of ${threads} threads: threads share cached rows as the kernels are written.`,
    has('shader-f16')
      ? 'shader-f16: the rate of 16-bit arithmetic is measured. Kernels store 16 bits and compute in 32.'
      : 'No shader-f16: the 16-bit ceiling is not measured. Kernels store 16 bits and compute in 32 all the same.',
    has('chromium-experimental-subgroup-matrix')
      ? 'Matrix units: products of 16 rows and more use them.'
      : 'No matrix units for pages: products run on the ordinary units.',
    `A buffer has at most ${formatBytes(limits['maxBufferSize'] ?? 0)}, of which a binding shows ` +
      `${formatBytes(limits['maxStorageBufferBindingSize'] ?? 0)}.`,
    `A point takes at most ${formatBytes(pointBytes)}, all points that are measured in turn twice ` +
      'that. It is given back at the end.',
  ];
}

/** What to do where the page finds no GPU. */
export function remedyFor(browser: string, system: string, hasWebGpu: boolean): string {
  if (hasWebGpu)
    return system === 'Linux' && browser !== 'Firefox'
      ? 'The browser has WebGPU and found no adapter for it. On Linux, open chrome://flags, enable ' +
          '"Unsafe WebGPU Support" and "Vulkan", and start the browser again; chrome://gpu says what it ' +
          'refuses.'
      : 'The browser has WebGPU and found no adapter for it. Turn on hardware acceleration in its ' +
          'settings, update the GPU driver, and start it again.';
  switch (browser) {
    case 'Firefox':
      return (
        'Firefox has WebGPU on Windows from version 141 and on Macs with Apple processors from 145. ' +
        'Update it; elsewhere set dom.webgpu.enabled in about:config, or open this file in Chrome or ' +
        'Edge.'
      );
    case 'Safari':
      return 'Safari has WebGPU from version 26 on. Update the system, or open this file in Chrome.';
    default:
      return (
        'Chrome and Edge have WebGPU from version 113 on (on Linux from 144 for some GPUs, or with ' +
        '--enable-unsafe-webgpu). Update the browser, or open this file in another one.'
      );
  }
}

/** What was compared with float64 before it was timed. */
export function checkedWords(c: Calibration): string {
  const samples = c.kernels.flatMap((k) => k.samples);
  const kernels = c.kernels.filter((k) => k.samples.length > 0);
  const worst = samples.reduce((most, s) => Math.max(most, s.relativeError), 0);
  return (
    `${samples.length} shapes of ${kernels.length} kernels ` +
    `(${kernels.map((k) => k.kernel).join(', ')}) were compared with a computation in float64 before ` +
    `they were timed; the largest relative error was ${worst.toExponential(1)}.`
  );
}

/** What could not be measured, one line a reason. */
export function gapWords(c: Calibration): string[] {
  const reasons = new Map<string, Set<string>>();
  for (const k of c.kernels)
    for (const gap of k.gaps) {
      const reason = gap.reason.replace(/ \(and \d+ more shapes.*\)$/, '');
      reasons.set(reason, (reasons.get(reason) ?? new Set()).add(`${k.kernel} ${gap.variant}`));
    }
  return [...reasons].map(([reason, kernels]) => `${[...kernels].join(', ')}: ${reason}`);
}

/** Which clock timed, and how finely. */
export function clockWords(c: Calibration): string {
  const step = c.clock.resolutionSeconds;
  const shown = step < 1e-6 ? `${Math.round(step * 1e9)} ns` : `${Number((step * 1e6).toPrecision(3))} µs`;
  const browser = c.host.browser ? ` in ${c.host.browser.name} ${c.host.browser.version}` : '';
  return c.clock.kind === 'gpu-timestamp'
    ? `Timed by the GPU's timestamps, which${browser} come in steps of ${shown}; each run was at least ` +
        'a hundred steps long.'
    : `Timed by the clock of the page, which${browser} comes in steps of ${shown}: timestamps are missing or coarser.`;
}
