/** `lla-sim validate`: compares the predictions with the bundled decoder. */
import { asJson, interruptible, print, ProgressLine, say, writePicture } from './output.js';
import { readBudget } from '../io/budget.js';
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { findPreset, PRESET_NAMES } from '../geometry/presets.js';
import { displayPath } from '../io/files.js';
import { openDevice } from '../gpu/index.js';
import { parseBytes } from '../numbers/units.js';
import { validationMarkdown, validationTable } from '../validate/print.js';
import { outsideTolerance } from '../validate/checks.js';
import { SECTIONS, type Section, type ValidationReport } from '../validate/report.js';
import { validate } from '../validate/validate.js';
import { formatOption, OUTPUT, type Args, type Command, ADAPTER, option, toggle } from './command.js';
import { checkWritable } from '../io/write.js';
import { closing } from './model/run.js';

const FORMATS = ['table', 'json', 'markdown'] as const;
const BUDGET = { quick: '3m', whole: '15m' } as const;
/** With less, hardly anything is opened on a software adapter. */
const LEAST_SECONDS = { sections: 30, serving: 60 };

export const command: Command = {
  options: {
    quick: toggle(
      'a few minutes: memory, capacity and correctness decide the exit code; times are shown and not ' +
        'judged, as CI machines are noisy',
    ),
    budget: option(
      `time to spend at most, from ${LEAST_SECONDS.sections}s on, with --serving from ` +
        `${LEAST_SECONDS.serving}s: 90s, 15m [${BUDGET.whole}; ${BUDGET.quick} with --quick]`,
    ),
    only: option('only these sections [all]', null, { multiple: true, choices: SECTIONS }),
    serving: toggle(
      'serve requests with continuous batching and simulate the same requests; without the sections ' +
        'unless --only names some',
    ),
    model: option('preset whose steps are measured; one layer of it on a software adapter [ouro-1.4b]', null, {
      proposals: PRESET_NAMES,
    }),
    calibration: option('calibration file to predict with [the one that fits the device]'),
    vram: option('memory of the GPU; on a software adapter what a decoder may take [as the catalogue says; 2GiB]'),
    picture: option('write a scatter of predicted against measured step times to this file (PNG)', 'Output'),
    ...ADAPTER,
    seed: option('of fabricated weights and of the shapes that are drawn [from the clock]'),
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  shown: ['quick', 'budget', 'only', 'model', 'calibration', 'vram', 'picture', 'adapter', 'format', 'output', 'quiet'],
  examples: [
    ['validate', 'everything; exit code 5 when a tolerance is missed'],
    ['validate --quick', 'what CI runs: exit code 5 for memory, capacity and correctness only'],
    ['validate --serving', 'continuous batching on the device against the simulation of the same requests'],
    ['validate --only latency --budget 5m --format markdown -o validation.md', 'step times alone, as a page'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const quick = args.isSet('quick');
  const quiet = args.isSet('quiet');
  const serving = args.isSet('serving');
  const budget = readBudget(
    args.text('budget') ?? (quick ? BUDGET.quick : BUDGET.whole),
    serving ? LEAST_SECONDS.serving : LEAST_SECONDS.sections,
  );
  const seed = args.seed(String(Date.now() % 2 ** 31));
  const sections = args.choices<Section>('only') ?? (serving ? [] : SECTIONS);
  // Before a device is opened, and minutes of other sections.
  findPreset(args.text('model') ?? 'ouro-1.4b');
  const vram = args.text('vram');
  const memoryBytes = vram === null ? null : parseBytes(vram, '--vram');
  const [output, pictureFile] = [args.text('output'), args.text('picture')];
  if (output !== null) checkWritable(output, '--output');
  if (pictureFile !== null) checkWritable(pictureFile, '--picture');
  const line = new ProgressLine(quiet);
  const report = await interruptible((signal) =>
    closing(async (opened) => {
      try {
        return await validate(opened(await openDevice(args.adapter())), {
          budget,
          quick,
          seed,
          sections,
          serving,
          memoryBytes,
          calibration: args.text('calibration'),
          model: args.text('model'),
          cli: process.argv[1] ?? null,
          signal,
          onProgress: ({ elapsedSeconds: spent, budgetSeconds, section, doing }) =>
            line.time(spent, Math.max(0, budgetSeconds - spent), `${section} ${doing}`),
        });
      } catch (error) {
        if (!signal.aborted || error instanceof UserError) throw error;
        throw new UserError('interrupted: no result is printed', 'run it again', EXIT.interrupted);
      } finally {
        line.clear();
      }
    }),
  );
  const picture = await drawSteps(report, pictureFile, quiet);
  const text = {
    json: () => asJson(report),
    markdown: () => validationMarkdown(report, picture),
    table: () => validationTable(report),
  }[format]();
  await print(text, { file: output, quiet });
  return outsideTolerance(report.checks) ? EXIT.outsideTolerance : EXIT.ok;
}

/** Draws the scatter; the file's name where there is one. */
async function drawSteps(report: ValidationReport, file: string | null, quiet: boolean): Promise<string | null> {
  if (file === null) return null;
  const scatter = (await import('../validate/picture.js')).scatterPicture(report);
  if (scatter) await writePicture(file, scatter);
  else say(quiet, `warning: no step was measured, so that there is no picture to write to ${displayPath(file)}`);
  return scatter && file;
}
