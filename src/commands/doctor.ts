/** `lla-sim doctor`: what adapters there are, what they can do, what is missing and how to get it. */
import { describeHost } from '../bench/host.js';
import { EXIT, type ExitCode } from '../errors.js';
import { diagnose, type AdapterReport, type Diagnosis } from '../gpu/diagnose.js';
import { deviceOfAdapter } from '../devices/find.js';
import { staleKernels } from '../plan/ask/on-disk.js';
import { calibrationHere } from '../plan/ask/calibrations.js';
import { otherMachine } from '../schema/machine.js';
import { formatBytes } from '../numbers/units.js';
import { VERSION } from '../version.js';
import { OUTPUT, formatOption, type Args, type Command } from './command.js';
import { asJson, print } from './output.js';

const FORMATS = ['table', 'json'] as const;

export const command: Command = {
  options: { ...formatOption(FORMATS), ...OUTPUT },
  examples: [['doctor', 'adapters, features, limits, and what is missing']],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const { adapters, ...found } = await diagnose();
  const diagnosis: Found = {
    ...found,
    adapters: await Promise.all(adapters.map(async (a) => ({ ...a, calibration: await calibrationOf(a) }))),
  };
  const text =
    format === 'json'
      ? asJson({
          schema: 'lla-sim/doctor',
          schemaVersion: 1,
          version: VERSION,
          node: process.version,
          platform: `${process.platform} ${process.arch}`,
          ...diagnosis,
        })
      : describe(diagnosis);
  await print(text, args.output());
  return diagnosis.adapters.length > 0 ? EXIT.ok : EXIT.noGpu;
}

/** An adapter, and the calibration that `validate` would predict with on it. */
type Adapter = AdapterReport & {
  readonly calibration: {
    readonly file: string;
    /** How this machine differs from the measured one; null for the same. */
    readonly difference: string | null;
    readonly stale: readonly string[];
  } | null;
};

/** What `lla-sim doctor --format json` prints. */
export interface DoctorJson extends Found {
  readonly schema: 'lla-sim/doctor';
  readonly schemaVersion: 1;
  readonly version: string;
  /** Node's version. */
  readonly node: string;
  readonly platform: string;
}

type Found = Omit<Diagnosis, 'adapters'> & { readonly adapters: readonly Adapter[] };

async function calibrationOf(adapter: AdapterReport): Promise<Adapter['calibration']> {
  const host = describeHost();
  const loaded = await calibrationHere(adapter, host);
  return (
    loaded && {
      file: loaded.file,
      difference: otherMachine(adapter, host, loaded.calibration),
      stale: await staleKernels(loaded),
    }
  );
}

/** Whether this machine is measured, and what to do where it is not. */
function calibrated({ calibration }: Adapter): string {
  if (!calibration) return 'not calibrated: lla-sim calibrate measures it';
  const { file, difference, stale } = calibration;
  if (difference !== null)
    return `calibrated on another machine (${file}: ${difference}): measure this one with lla-sim calibrate`;
  return stale.length === 0
    ? `calibrated: ${file}`
    : `calibrated: ${file}; ${stale.join(', ')} changed since: lla-sim calibrate --resume -o ${file}`;
}

function describe(d: Found): string {
  const lines = [`lla-sim ${VERSION}, Node ${process.version} on ${process.platform} ${process.arch}`, ''];
  if (d.loadError !== null) lines.push(`Dawn cannot be loaded: ${d.loadError}`);
  if (d.adapters.length === 0) lines.push('No adapter: calibrate cannot run here. plan works without one.');
  for (const adapter of d.adapters) lines.push(...describeAdapter(adapter), '');
  if (d.remedies.length > 0) lines.push('To do:', ...d.remedies.map((r) => `  - ${r}`));
  else lines.push('Nothing is missing.');
  return `${lines.join('\n').trimEnd()}\n`;
}

function describeAdapter(a: Adapter): string[] {
  const known = deviceOfAdapter(a.description);
  const bytes = (name: string): string => (a.limits[name] === undefined ? '–' : formatBytes(a.limits[name]));
  return [
    `${a.description} (${a.backend})`,
    a.software
      ? '  a software adapter: right results, no GPU speed; its times price no GPU'
      : known
        ? `  in the catalogue as ${known.id}`
        : '  not in the catalogue: plan with --calibration and --vram',
    `  buffers up to ${bytes('maxBufferSize')}, bindings up to ${bytes('maxStorageBufferBindingSize')}, workgroup ` +
      `memory ${bytes('maxComputeWorkgroupStorageSize')}, ${a.limits['maxComputeInvocationsPerWorkgroup'] ?? '–'} ` +
      `threads a workgroup, subgroups of ${a.limits['subgroupMinSize'] ?? '–'} to ` +
      `${a.limits['subgroupMaxSize'] ?? '–'}`,
    `  ${calibrated(a)}`,
    ...a.missing.map((m) => `  without ${m.what}: ${m.consequence}`),
  ];
}
