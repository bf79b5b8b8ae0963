/** `lla-sim doctor`: what adapters there are, what they can do, what is missing and how to get it. */
import { EXIT, type ExitCode } from '../errors.js';
import { diagnose, type AdapterReport, type Diagnosis } from '../gpu/diagnose.js';
import { deviceOfAdapter } from '../devices/find.js';
import { jsonText } from '../json.js';
import { formatBytes } from '../units.js';
import { VERSION } from '../version.js';
import { choiceFlag, formatOption, OUTPUT, textFlag, type Args, type Command } from './command.js';
import { print } from './output.js';

const FORMATS = ['table', 'json'] as const;

export const doctorCommand: Command = {
  options: { ...formatOption(FORMATS), ...OUTPUT },
  examples: [['doctor', 'adapters, features, limits, and what is missing']],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = choiceFlag(args, 'format', FORMATS);
  const diagnosis = await diagnose();
  const text =
    format === 'json'
      ? jsonText({
          schema: 'lla-sim/doctor',
          schemaVersion: 1,
          version: VERSION,
          node: process.version,
          platform: `${process.platform} ${process.arch}`,
          ...diagnosis,
        })
      : describe(diagnosis);
  await print(text, { file: textFlag(args, 'output'), quiet: args.flags['quiet'] === true });
  return diagnosis.adapters.length > 0 ? EXIT.ok : EXIT.noGpu;
}

function describe(d: Diagnosis): string {
  const lines = [`lla-sim ${VERSION}, Node ${process.version} on ${process.platform} ${process.arch}`, ''];
  if (d.loadError !== null) lines.push(`Dawn cannot be loaded: ${d.loadError}`);
  if (d.adapters.length === 0) lines.push('No adapter: calibrate cannot run here. plan works without one.');
  for (const adapter of d.adapters) lines.push(...describeAdapter(adapter), '');
  if (d.remedies.length > 0) lines.push('To do:', ...d.remedies.map((r) => `  - ${r}`));
  else lines.push('Nothing is missing: lla-sim calibrate measures this machine.');
  return `${lines.join('\n').trimEnd()}\n`;
}

function describeAdapter(a: AdapterReport): string[] {
  const known = deviceOfAdapter(a.description);
  const bytes = (name: string): string => (a.limits[name] === undefined ? '–' : formatBytes(a.limits[name]));
  return [
    `${a.description} (${a.backend})`,
    a.software
      ? '  a software adapter: right results, no GPU speed; its times price no GPU'
      : known
        ? `  in the catalogue as ${known.id}`
        : '  not in the catalogue: plan with --calibration and --vram',
    `  buffers up to ${bytes('maxBufferSize')}, bindings up to ${bytes('maxStorageBufferBindingSize')}, workgroup memory ${bytes('maxComputeWorkgroupStorageSize')}, ${a.limits['maxComputeInvocationsPerWorkgroup'] ?? '–'} threads a workgroup, subgroups of ${a.limits['subgroupMinSize'] ?? '–'} to ${a.limits['subgroupMaxSize'] ?? '–'}`,
    ...a.missing.map((m) => `  without ${m.what}: ${m.consequence}`),
  ];
}
