/** `lla-sim paper`: the figures of the paper's systems part beside the planner's own. */
import { EXIT, type ExitCode } from '../errors.js';
import { PaperModel } from '../paper/model.js';
import { paperDevice } from '../paper/pricing.js';
import { holds, paperReport } from '../paper/report.js';
import { counted } from '../numbers/units.js';
import type { PaperReport } from '../paper/types.js';
import { OUTPUT, formatOption, option, type Args, type Command } from './command.js';
import { asJson, hasColour, print, say } from './output.js';

const FORMATS = ['table', 'markdown', 'json'] as const;

export const command: Command = {
  options: {
    calibration: option('price from this calibration of an H200 instead of the datasheet', 'Device'),
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  examples: [
    ['paper', 'every systems figure of the paper, with a verdict'],
    ['paper --format markdown --output paper.md', 'the same as a document'],
  ],
  run,
};

/** Runs the command. Exit code 5 when a figure that must be exact is not; the report is printed all the same. */
async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const { file, quiet } = args.output();
  const report = paperReport(new PaperModel(await paperDevice(args.text('calibration'))));
  await print(await render(report, format, hasColour(file)), { file, quiet });
  if (holds(report)) return EXIT.ok;
  const wrong = report.comparisons.filter((c) => c.verdict === 'wrong');
  say(
    quiet,
    `${counted(wrong.length, 'figure')} that must be exact ` +
      `${wrong.length === 1 ? 'is' : 'are'} not: ${wrong.map((c) => c.id).join(', ')}`,
  );
  return EXIT.outsideTolerance;
}

async function render(report: PaperReport, format: (typeof FORMATS)[number], colour: boolean): Promise<string> {
  switch (format) {
    case 'json':
      return asJson(report);
    case 'markdown':
      return (await import('../paper/print-markdown.js')).paperMarkdown(report);
    case 'table':
      return (await import('../paper/print-table.js')).paperTable(report, { colour });
  }
}
