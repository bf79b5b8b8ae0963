/** `lla-sim plan --link`: the question and its answer as a link. `lla-sim open LINK`: the plan that a link asks for. */
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { answer, type ModelSource } from '../plan/ask/prepare.js';
import { readSources } from '../plan/ask/on-disk.js';
import { isModelFile } from '../plan/ask/sources.js';
import { planFleet, readUsers } from '../plan/decide/fleet.js';
import { runsOf } from '../plan/ask/runs.js';
import { changedWords, fleetGist, gistOf } from '../report/gist.js';
import { addressOf, linkOf, linkedModel, readLink, type LinkedModel } from '../report/link.js';
import type { Scenario } from '../schema/settings.js';
import { print, say, type OutputOptions } from './output.js';
import { Args, type Command } from './command.js';
import { planOutput, planScenario } from './plan.js';

/** @throws UserError for what a link cannot carry, and as `plan` does */
export async function printLink(scenario: Scenario, output: OutputOptions): Promise<ExitCode> {
  await print(`${await linkOfScenario(scenario, await answeredBy(scenario, null))}\n`, output);
  return EXIT.ok;
}

/** A scenario as an address. @throws UserError for what a link cannot carry */
export const linkOfScenario = async (scenario: Scenario, was: string | null = null): Promise<string> =>
  addressOf(linkOf(scenario, await modelOf(scenario), was));

async function modelOf({ model }: Scenario): Promise<LinkedModel | null> {
  if (model === undefined || !isModelFile(model)) return null;
  const [{ readConfig }, { neededFields }] = await Promise.all([
    import('../geometry/model-file.js'),
    import('../geometry/hf-config.js'),
  ]);
  const { json, name } = readConfig(model);
  return { name, config: neededFields(json, name) };
}

/**
 * What a scenario is answered, in a few characters a run.
 * @throws UserError where prices come from a file that no link carries
 */
export async function answeredBy(scenario: Scenario, model: ModelSource | null): Promise<string> {
  const gists: string[] = [];
  for (const one of runsOf(scenario)) {
    const sources = await readSources(one, model);
    if (sources.calibration)
      throw new UserError(
        `a link carries settings, not files: times are those of ${sources.calibration.file}`,
        'name the kernels of a server with --stack, or send the file with the command line',
      );
    const users = readUsers(one);
    gists.push(
      users === null
        ? gistOf(answer(one, sources, { everyRow: false }))
        : fleetGist(planFleet(one, users, sources).fleet),
    );
  }
  return gists.join(',');
}

export const command: Command = {
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
  if (changed !== null) say(args.isSet('quiet'), changed);
  // No file was named: errors name flags.
  return planScenario(link.scenario, new Args(args.flags), model);
}
