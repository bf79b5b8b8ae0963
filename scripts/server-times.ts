/**
 * What a server adds to its kernels: seconds a decode step, and seconds a sequence of it. Fitted to the rows of the
 * ledger that fit (AIConfigurator's closed loops: vLLM and TRT-LLM on H100), each replayed by the simulation; written
 * to calibrations/servers.json.
 *
 *   npm run servers -- [--write | --check]      --check: fails where the file says something else
 *     --keep: times stay, spreads are computed anew
 *
 * Least absolute relative errors of TPOT, by reweighting; the simulation is run again with each answer until it stays.
 * Between a user and the scheduler: what first tokens take longer than predicted where requests come at random (vLLM on
 * RTX 4090). Intervals: a tenth of the rows of up to 16 users needs less a step than `low`, a tenth more than `high`;
 * of the others the same of a sequence.
 *
 * Spreads: a group is a server, a GPU and who measured it. Rows of GPUStack are in none: their H100 reads as an H100
 * PCIe does (src/accuracy/causes.ts); nor are rows whose limit of lengths is not known. A group asks for the least
 * width at which nine tenths of its figures lie inside; figures that do so without one ask for none. `elsewhere`: the
 * largest of the server's groups (with so few nothing less covers nine in ten), each by the times of another server
 * where it gave the server's own; of `all`: the largest over all groups by the times of another server. `here`: that
 * of the GPU's own groups; `elsewhere` where that is larger and they gave times or have fewer than nine figures, of
 * which no nine tenths can be told.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Pricing } from '../src/accuracy/price.js';
import type { Interval, ServerSpread } from '../src/cost/evidence.js';
import { PACKAGE_ROOT } from '../src/io/root.js';
import { readLedger, type Row } from '../src/schema/ledger-file.js';
import { quantile } from '../src/numbers/statistics.js';
import { type ServerFile, type ServerTime, isRuntime, STACK_LABELS } from '../src/stacks/serving.js';

const { values } = parseArgs({
  options: {
    write: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
  },
});
const FOLDER = join(PACKAGE_ROOT, 'ledger');
const FEW_USERS = 16;
/** A fourth moves no time by more than a hundredth. */
const ROUNDS = 3;
const round = (x: number): number => Number(Math.max(0, x).toPrecision(3));

interface Residual {
  readonly users: number;
  readonly measured: number;
  /** Measured less predicted, seconds a step. */
  readonly missing: number;
}

const exactly = (x: number): Interval => ({ estimate: x, low: x, high: x });
const timeOf = (step: number, sequence: number): ServerTime => ({
  secondsPerStep: exactly(step),
  secondsPerSequence: exactly(sequence),
  secondsPerRequest: exactly(0),
});

async function residualsOf(rows: readonly Row[], server: ServerTime): Promise<Residual[]> {
  const pricing = new Pricing((sources) => (sources.gpu ? { ...sources, gpu: { ...sources.gpu, server } } : sources));
  const found: Residual[] = [];
  for (const row of rows) {
    const priced = await pricing.price(row, FOLDER);
    const measured = row.figures.tpotSeconds?.mean;
    const predicted = 'predicted' in priced ? priced.predicted('tpotSeconds', 'mean') : null;
    if (!predicted || measured === undefined || row.workload.kind !== 'closed-loop') continue;
    found.push({ users: row.workload.concurrency, measured, missing: measured - predicted.estimate });
  }
  return found;
}

/** Measured less predicted means of the time to the first token, of rows that fit with requests at random times. */
async function missingFirstTokens(file: string): Promise<number[]> {
  const server = timeOf(0, 0);
  const pricing = new Pricing((sources) => (sources.gpu ? { ...sources, gpu: { ...sources.gpu, server } } : sources));
  const found: number[] = [];
  for (const row of readLedger(join(FOLDER, file)).rows) {
    const measured = row.figures.ttftSeconds?.mean;
    if (row.use !== 'fits' || measured === undefined) continue;
    const priced = await pricing.price(row, FOLDER);
    const predicted = 'predicted' in priced ? priced.predicted('ttftSeconds', 'mean') : null;
    if (predicted) found.push(measured - predicted.estimate);
  }
  return found;
}

/** Least absolute relative residuals of `missing = step + sequence · users`. */
function line(residuals: readonly Residual[]): { step: number; sequence: number } {
  let answer = { step: 0, sequence: 0 };
  for (let i = 0; i < 50; i++) {
    let [s0, s1, s2, t0, t1] = [0, 0, 0, 0, 0];
    for (const { users, measured, missing } of residuals) {
      const left = Math.abs(missing - answer.step - answer.sequence * users) / measured;
      const weight = 1 / Math.max(left, 1e-4) / measured ** 2;
      s0 += weight;
      s1 += weight * users;
      s2 += weight * users ** 2;
      t0 += weight * missing;
      t1 += weight * users * missing;
    }
    const determinant = s0 * s2 - s1 ** 2;
    answer = { step: (s2 * t0 - s1 * t1) / determinant, sequence: (s0 * t1 - s1 * t0) / determinant };
  }
  return answer;
}

/** What times of steps, and of requests, were fitted to. */
const [STEPS, FIRST_TOKENS] = ['aiconfigurator', 'vllm-workstation-gpus'];
const { rows } = readLedger(join(FOLDER, `${STEPS}.json`));
const fits = rows.filter((r) => r.use === 'fits' && r.figures.tpotSeconds && r.workload.kind === 'closed-loop');
/**
 * From users at random times who find little queue: vLLM on RTX 4090. Less where a user shares the server's process.
 * Two rows have no quantile: the high end is a quarter above the larger one.
 */
const late = await missingFirstTokens(`${FIRST_TOKENS}.json`);
const request: Interval = { estimate: round(quantile(late, 0.5)), low: 0, high: round(1.25 * Math.max(...late)) };
const servers: Record<string, ServerTime & { rows: number }> = {};
const FILES = ['aiconfigurator', 'llmservingsim', 'vllm-workstation-gpus', 'io-net'];
/** Fewer rows than this tell no nine tenths. */
const LEAST_ROWS = 9;
const LIMIT_UNKNOWN = 'the longest length: ';

/** Rows of requests that fit, by server, GPU and source. */
function groups(): Map<string, Row[]> {
  const found = new Map<string, Row[]>();
  for (const file of FILES)
    for (const row of readLedger(join(FOLDER, `${file}.json`)).rows) {
      const { use, server, device, figures, open } = row;
      if (use !== 'fits' || isRuntime(server.name) || !figures.tpotSeconds?.mean) continue;
      if (open?.some((text) => text.startsWith(LIMIT_UNKNOWN))) continue;
      const key = [server.name, device, file].join(' ');
      found.set(key, [...(found.get(key) ?? []), row]);
    }
  return found;
}

/** The least width at which nine tenths of the rows' figures lie inside: none for those that do so without one. */
async function spreadOf(rows: readonly Row[], server: ServerTime): Promise<ServerSpread> {
  const pricing = new Pricing((sources) =>
    sources.gpu ? { ...sources, gpu: { ...sources.gpu, server, spread: null } } : sources,
  );
  const errors = { tpotSeconds: [] as number[], ttftSeconds: [] as number[] };
  for (const row of rows) {
    const priced = await pricing.price(row, FOLDER);
    if (!('predicted' in priced)) continue;
    for (const figure of ['tpotSeconds', 'ttftSeconds'] as const) {
      const measured = row.figures[figure]?.mean;
      const predicted = priced.predicted(figure, 'mean');
      if (measured === undefined || !predicted) continue;
      const inside = measured >= predicted.low && measured <= predicted.high;
      errors[figure].push(inside ? 0 : Math.abs(Math.log(measured / predicted.estimate)));
    }
  }
  const within = (list: readonly number[]): number => round(quantile(list, 0.9));
  return { step: within(errors.tpotSeconds), firstToken: within(errors.ttftSeconds) };
}

/** A group's spreads: by its server's times, and by those of another server where its rows set its own. */
interface Group {
  readonly stack: string;
  readonly device: string;
  readonly file: string;
  readonly rows: number;
  readonly own: ServerSpread;
  /** By the times of another server. */
  readonly leftOut: ServerSpread;
  readonly free: ServerSpread;
  readonly isFree: Readonly<Record<keyof Omit<ServerSpread, 'of'>, boolean>>;
}

/** The spreads of every server, and of one that nobody measured. */
async function spreads(
  fitted: Readonly<Record<string, ServerTime>>,
): Promise<Record<string, { here: Record<string, ServerSpread>; elsewhere: ServerSpread }>> {
  const found: Group[] = [];
  for (const [key, rows] of groups()) {
    const [stack, device, file] = key.split(' ') as [string, string, string];
    const other = Object.keys(fitted).find((name) => name !== stack && name !== 'all')!;
    const own = await spreadOf(rows, fitted[stack]!);
    const leftOut = await spreadOf(rows, fitted[other]!);
    const isFree = { step: file !== STEPS, firstToken: file !== FIRST_TOKENS };
    const free = {
      step: (isFree.step ? own : leftOut).step,
      firstToken: (isFree.firstToken ? own : leftOut).firstToken,
    };
    found.push({ stack, device, file, rows: rows.length, own, leftOut, free, isFree });
    console.log(key, rows.length, JSON.stringify({ own, leftOut }));
  }
  const both = (of: (figure: 'step' | 'firstToken') => number): ServerSpread => ({
    step: of('step'),
    firstToken: of('firstToken'),
  });
  /** The group that sets a width of steps, as explanations name it. */
  const worst = (groups: readonly Group[], of: 'free' | 'leftOut'): string => {
    const { stack, device, file, rows, isFree } = [...groups].sort((a, b) => b[of].step - a[of].step)[0]!;
    const other = Object.keys(fitted).find((name) => name !== stack && name !== 'all')!;
    const by =
      of === 'leftOut' || !isFree.step
        ? `; the server’s time around its kernels taken from ${STACK_LABELS[other]}, as these rows had set that of ` +
          `${STACK_LABELS[stack]}`
        : '';
    const among = groups.length > 1 ? `; the worst of ${groups.length} such groups` : '';
    return `${STACK_LABELS[stack]} on ${device}, ${rows} rows of ${file}${by}${among}`;
  };
  const all = {
    ...both((figure) => Math.max(...found.map(({ leftOut }) => leftOut[figure]))),
    of: worst(found, 'leftOut'),
  };
  const answer: Record<string, { here: Record<string, ServerSpread>; elsewhere: ServerSpread }> = {
    all: { here: {}, elsewhere: all },
  };
  for (const stack of new Set(found.map((group) => group.stack))) {
    const own = found.filter((group) => group.stack === stack);
    const elsewhere = {
      ...both((figure) => Math.max(...own.map(({ free }) => free[figure]))),
      of: worst(own, 'free'),
    };
    const here = (device: string): ServerSpread => {
      const at = own.filter((group) => group.device === device);
      const tells = (figure: 'step' | 'firstToken'): boolean =>
        at.some(({ rows, isFree }) => isFree[figure] && rows >= LEAST_ROWS);
      const ofOthers = (figure: 'step' | 'firstToken'): number[] => (tells(figure) ? [] : [elsewhere[figure]]);
      return {
        ...both((figure) => Math.max(...at.map((group) => group.own[figure]), ...ofOthers(figure))),
        of: tells('step') ? `its own ${at.reduce((sum, { rows }) => sum + rows, 0)} rows on this GPU` : elsewhere.of,
      };
    };
    const devices = [...new Set(own.map(({ device }) => device))];
    answer[stack] = { here: Object.fromEntries(devices.map((device) => [device, here(device)])), elsewhere };
  }
  return answer;
}

const FILE = join(PACKAGE_ROOT, 'calibrations/servers.json');
const known = JSON.parse(readFileSync(FILE, 'utf8')) as ServerFile;
if (values.keep) Object.assign(servers, known.servers);
else
  for (const stack of [...new Set(fits.map((r) => r.server.name)), 'all']) {
    const own = fits.filter((r) => stack === 'all' || r.server.name === stack);
    let [step, sequence] = [0, 0];
    let residuals: Residual[] = [];
    for (let i = 0; i < ROUNDS; i++) {
      residuals = await residualsOf(own, timeOf(step, sequence));
      if (i === ROUNDS - 1) break;
      const more = line(residuals);
      [step, sequence] = [Math.max(0, step + more.step), Math.max(0, sequence + more.sequence)];
    }
    const few = residuals.filter((r) => r.users <= FEW_USERS).map((r) => step + r.missing);
    const many = residuals.filter((r) => r.users > FEW_USERS).map((r) => sequence + r.missing / r.users);
    const spread = (middle: number, list: readonly number[]): Interval => ({
      estimate: round(middle),
      low: round(Math.min(middle, quantile(list, 0.1))),
      high: round(Math.max(middle, quantile(list, 0.9))),
    });
    servers[stack] = {
      rows: own.length,
      secondsPerStep: spread(step, few),
      secondsPerSequence: spread(sequence, many),
      secondsPerRequest: request,
    };
    const errors = residuals.map((r) => Math.abs(r.missing / r.measured));
    console.log(
      `${stack}: ${own.length} rows, median error ${(100 * quantile(errors, 0.5)).toFixed(1)} %, 90th percentile ` +
        `${(100 * quantile(errors, 0.9)).toFixed(1)} %: ${JSON.stringify(servers[stack])}`,
    );
  }
if (values.write || values.check) {
  const spread = await spreads(servers);
  const file: ServerFile = {
    schema: 'lla-sim/servers',
    schemaVersion: 3,
    source: 'rows of the ledger that fit (scripts/server-times.ts)',
    servers: Object.fromEntries(
      Object.entries(servers).map(([name, own]) => [name, { ...own, spread: spread[name]! }]),
    ),
  };
  const text = `${JSON.stringify(file, null, 1)}\n`;
  if (values.write) writeFileSync(FILE, text);
  else if (text !== readFileSync(FILE, 'utf8')) {
    console.error('calibrations/servers.json is of other prices: run scripts/server-times.ts with --write');
    process.exitCode = 1;
  }
}
