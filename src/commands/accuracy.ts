/** `lla-sim accuracy`: predictions beside what others measured on real servers. */
import { EXIT, show, UserError, type ExitCode } from '../errors.js';
import type { AccuracyReport } from '../accuracy/report.js';
import { WIDTH } from '../report/text/plan-table.js';
import { OUTPUT, formatOption, option, type Args, type Command } from './command.js';
import { asJson, print, progressing, say } from './output.js';

const FORMATS = ['table', 'json', 'markdown', 'csv'] as const;

export const command: Command = {
  options: {
    ledger: option('price the rows of these files instead (ledger/README.md says what a row must have)', null, {
      multiple: true,
    }),
    only: option('rows whose source, campaign, id, server, GPU or model contains this text'),
    tolerance: option('exit with 5 where the median error of times, of rows that judge, is beyond this, such as 10%'),
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  examples: [
    ['accuracy', 'published rows of real servers beside their predictions, in a minute or two'],
    ['accuracy --only h100 --format csv', 'figure by figure'],
    ['accuracy --ledger mine.json --tolerance 10%', 'three rows of your own server: whether to believe the tool'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const quiet = args.isSet('quiet');
  const asked = args.flags['ledger'];
  const tolerance = toleranceOf(args.text('tolerance'));
  const { accuracy, ownLedger } = await import('../accuracy/report.js');
  const files = Array.isArray(asked) ? (asked as string[]) : ownLedger();
  let stopped = false;
  const report = await progressing(quiet, null, (progress) =>
    accuracy(files, args.text('only'), (share) => (stopped = progress(share, 'rows of the ledger'))),
  );
  await print(await render(report, format, Array.isArray(asked)), args.output());
  if (stopped) return EXIT.interrupted;
  if (tolerance === Infinity) return EXIT.ok;
  const timed = report.kinds.filter((k) => k.use === 'judges' && TIMES.has(k.kind));
  if (timed.length === 0) {
    say(quiet, '--tolerance judged nothing: no time of a row that judges was priced');
    return EXIT.outsideTolerance;
  }
  const beyond = timed.filter((k) => k.median > tolerance);
  if (beyond.length === 0) return EXIT.ok;
  const words = beyond.map(({ kind, name, median }) => {
    const models = name === 'looped' ? 'that loop' : name;
    return `${kind} of models ${models}, median ${(100 * median).toFixed(1)} %`;
  });
  say(quiet, `beyond --tolerance: ${words.join('; ')}`);
  return EXIT.outsideTolerance;
}

const TIMES: ReadonlySet<string> = new Set(['step', 'first token', 'request', 'throughput']);

/** Reads `10%` or `0.1`. A whole number without % is hardly meant as so many times. */
function toleranceOf(text: string | null): number {
  if (text === null) return Infinity;
  const isPercent = text.endsWith('%');
  const digits = isPercent ? text.slice(0, -1) : text;
  const number = /^[0-9.]+$/.test(digits) ? Number(digits) : NaN;
  const share = isPercent ? number / 100 : number;
  if (!(share >= 0 && (isPercent ? share <= 10 : share < 1)))
    throw new UserError(
      `--tolerance must be a percentage up to 1000% or a share below 1, not ${show(text)}`,
      !isPercent && number <= 1000 ? `write ${number}%` : 'write for example --tolerance 10%',
    );
  return share;
}

/** @param own the rows are the user's */
async function render(report: AccuracyReport, format: (typeof FORMATS)[number], own: boolean): Promise<string> {
  if (format === 'json') return asJson(report);
  const { accuracyCsv, accuracyMarkdown, accuracyTable, ownMarkdown } = await import('../accuracy/print.js');
  return format === 'csv'
    ? accuracyCsv(report)
    : format === 'markdown'
      ? (own ? ownMarkdown : accuracyMarkdown)(report)
      : accuracyTable(report, WIDTH);
}
