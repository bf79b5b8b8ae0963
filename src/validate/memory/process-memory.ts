/**
 * A limit on this process's address space. It ends memory on a software adapter, whose buffers are the host's memory.
 * The adapter backs buffers by shared anonymous files, which limits on the data segment do not count; address space
 * counts every mapping at once, touched or not, so nothing is overcommitted.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { UserError } from '../../errors.js';

/** Bytes of address space in use. Linux only. */
function addressSpaceBytes(): number {
  let text: string;
  try {
    text = readFileSync('/proc/self/status', 'utf8');
  } catch {
    throw unavailable('/proc/self/status cannot be read');
  }
  const kib = /^VmSize:\s+([0-9]+) kB$/m.exec(text)?.[1];
  if (kib === undefined) throw unavailable('/proc/self/status has no VmSize');
  return Number(kib) * 1024;
}

const unavailable = (reason: string): UserError =>
  new UserError(
    `a memory limit on this process cannot be set here: ${reason}`,
    'leave --vram out, or run it on Linux with util-linux (prlimit)',
  );

/**
 * Lets this process map `bytes` more than it has mapped now. A mapping beyond it fails; drivers that do not look at the
 * failure end the process when they use it.
 * @throws UserError where the platform has no such limit
 */
export function limitAddressSpace(bytes: number): void {
  const limit = addressSpaceBytes() + Math.floor(bytes);
  const set = spawnSync('prlimit', ['--pid', String(process.pid), `--as=${limit}:`], { encoding: 'utf8' });
  if (set.error || set.status !== 0) throw unavailable(set.error ? set.error.message : set.stderr.trim());
}
