/** Finding and reading the files of serving stacks. */
import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { DEVICES, type DeviceSpec } from '../../devices/catalogue.js';
import { show } from '../../errors.js';
import { displayPath, readTextFile } from '../../io/files.js';
import { checkedBy } from '../../io/issues.js';
import { parseJson } from '../../io/json.js';
import { PACKAGE_ROOT } from '../../io/root.js';
import type { AttainableFile } from '../../stacks/attainable.js';
import { STACKS, type ServerFile, type StackTables } from '../../stacks/serving.js';
import type { RuntimeFile } from '../../stacks/runtime-schema.js';
import type { StackFile } from '../../stacks/stack-schema.js';
import type { GpuSources } from '../../stacks/gpu-pricer.js';
import { tunedOn, type Shelf } from './sources.js';
import type { JudgedFile } from './tested.js';

/** Tables and laws that come with the package. */
const BUNDLED = join(PACKAGE_ROOT, 'calibrations/');
/** As in stacks/stack-schema.ts, which loads zod. */
const MAX_FILE_BYTES = 200_000;
const MAX_VALUES = 50_000;

/** Reads a stack file. @throws UserError when it is none */
async function readStackFile(path: string): Promise<StackTables> {
  const json = parseJson(readTextFile(path, 'stack file', MAX_FILE_BYTES), `stack file ${show(path)}`, {
    maxValues: MAX_VALUES,
    hint: 'write one with lla-sim import',
  });
  // The package's own files are checked by its tests.
  if (path.startsWith(BUNDLED))
    return { path: join('calibrations', 'stacks', basename(path)), file: json as StackFile };
  const { stackFileSchema } = await import('../../stacks/stack-schema.js');
  const subject = `${show(path)} is not a stack file of this version`;
  return {
    path: displayPath(path),
    file: checkedBy(stackFileSchema, json, subject, 'write it again with lla-sim import'),
  };
}

/** Where the tables of a GPU and stack lie: the user's (./calibrations/stacks), else the package's; null for none. */
function stackPath(device: string, stack: string): string | null {
  for (const folder of [join(process.cwd(), 'calibrations', 'stacks'), join(BUNDLED, 'stacks')]) {
    const path = join(folder, `${device}-${stack}.json`);
    if (existsSync(path)) return path;
  }
  return null;
}

async function findStack(device: string, stack: string): Promise<StackTables | null> {
  const path = stackPath(device, stack);
  return path === null ? null : readStackFile(path);
}

/** A file of the package. */
const bundled = <T>(name: string): T =>
  parseJson(readTextFile(join(BUNDLED, name), 'file of the package', MAX_FILE_BYTES), name, {
    maxValues: MAX_VALUES,
    hint: 'install lla-sim again',
  }) as T;

/** Figures that judge, as `accuracy` found them. */
export const judgedGroups = (): JudgedFile['groups'] => bundled<JudgedFile>('accuracy.json').groups;

/** Tables and laws as they lie on a machine. */
export const tablesOnDisk = {
  stackFile: readStackFile,
  has: (device, stack) => stackPath(device, stack) !== null,
  tables: findStack,
  open: () => Promise.resolve(),
  bundled(device, stack) {
    const name = join('stacks', `${device}-${stack}.json`);
    if (!existsSync(join(BUNDLED, name))) return null;
    return { path: join('calibrations', name), file: bundled<StackFile>(name) };
  },
  files: () => ({
    attainable: bundled<AttainableFile>('attainable.json'),
    servers: bundled<ServerFile>('servers.json'),
    runtimes: bundled<RuntimeFile>('runtimes.json'),
  }),
  judged: judgedGroups,
} satisfies Partial<Shelf>;

/** What tuned kernels reach on a device, without a server: shown beside times of a calibration. */
export const tunedSources = (spec: DeviceSpec): GpuSources => tunedOn(tablesOnDisk, spec);

/** What a report's page needs to plan for other devices and stacks: the tables of all. */
export async function knownStacks() {
  const read = DEVICES.flatMap(({ id }) => STACKS.map((stack) => findStack(id, stack)));
  return { tables: (await Promise.all(read)).filter((t) => t !== null), files: tablesOnDisk.files() };
}
