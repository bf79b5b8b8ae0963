/** The README is true: every plan that it shows runs, and the output that it shows is what the program prints. */
import { describe, expect, it } from 'vitest';
import { join } from 'node:path';
import { plan, read, ROOT } from './program.js';

const README = read(join(ROOT, 'README.md'));

/** Lines of the shell blocks that call the program. */
const COMMANDS = [...README.matchAll(/```sh\n([\s\S]*?)```/g)]
  .flatMap((m) => (m[1] as string).split('\n'))
  .map((line) => /npx lla-sim (.+?)(?:\s+#.*)?$/.exec(line.trim())?.[1])
  .filter((line): line is string => line !== undefined);

describe('README', () => {
  const plans = COMMANDS.filter((c) => c.startsWith('plan'));

  it('shows plans', () => expect(plans.length).toBeGreaterThan(6));

  it.each(plans)('lla-sim %s', async (command) => {
    const outcome = await plan(...command.split(/\s+/).slice(1));
    expect(outcome.code, outcome.err).toBe(0);
    expect(outcome.out.length).toBeGreaterThan(200);
  });

  it('prints what the program prints', async () => {
    const shown = /```text\n([\s\S]*?)```/.exec(README)?.[1];
    const outcome = await plan('--vram', '141GB', '--ctx', '4096');
    expect(shown).toBe(outcome.out);
  });
});
