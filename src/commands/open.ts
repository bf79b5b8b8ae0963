/** `lla-sim open LINK`: the plan that a link asks for. */
import { UserError, type ExitCode } from '../errors.js';
import { changedWords } from '../report/gist.js';
import { linkedModel, readLink } from '../report/link.js';
import { type Args, type Command } from './command.js';
import { answeredBy } from './link.js';
import { planOutput, planScenario } from './plan.js';

export const openCommand: Command = {
  positional: {
    name: 'link',
    help: 'address with a fragment, or the fragment alone, as plan --link and the page make',
  },
  options: planOutput,
  examples: [
    ['open plan.html#v0.1.0/ctx=4096/device=h200', 'the plan, as a table'],
    ['open plan.html#v0.1.0/ctx=4096/device=h200 --format json', 'the same bytes as plan --format json'],
  ],
  run,
};

/** The answer goes to stdout, what changed since the link was made to stderr. */
async function run(args: Args): Promise<ExitCode> {
  if (args.positional === null)
    throw new UserError('no link is given', 'lla-sim plan --link prints one; write it after open');
  const link = readLink(args.positional);
  const model = linkedModel(link);
  const changed = changedWords(link, await answeredBy(link.scenario, model));
  if (changed !== null && args.flags['quiet'] !== true) process.stderr.write(`${changed}\n`);
  // No file was named: errors name flags.
  return planScenario(link.scenario, { ...args, positional: null }, model);
}
