/** Asks the planner and the simulation what a row of the ledger measured. */
import type { Interval } from '../cost/evidence.js';
import { UserError } from '../errors.js';
import { prepare, type Sources } from '../plan/ask/prepare.js';
import { readModel, readSources } from '../plan/ask/on-disk.js';
import { evaluate } from '../plan/evaluate/evaluate.js';
import type { Row } from '../schema/ledger-file.js';
import type { FigureName } from '../schema/ledger.js';
import type { Geometry } from '../geometry/geometry.js';
import { readModelFile } from '../geometry/model-file.js';
import { findPreset, isPreset } from '../geometry/presets.js';
import type { Scenario } from '../schema/settings.js';
import { settle } from '../serving/answer.js';
import { Service } from '../serving/candidate.js';
import type { Source } from '../serving/engine.js';
import type { Bound } from '../serving/price/price.js';
import { blocksOf } from '../serving/scheduler/options.js';
import { emptyDraft } from '../serving/scheduler/requests.js';
import type { Metric, Run, RunFigures } from '../serving/types.js';
import { resolve } from 'node:path';
import { questionsOf, type Question } from './question.js';

/** Statistics that a prediction has, in the order in which one of a row is chosen to be compared. */
export const STATISTICS = ['mean', 'median', 'value', 'p90', 'p95', 'p99'] as const;
export type StatisticName = (typeof STATISTICS)[number];

/** Of a figure by statistic; the interval holds both ends whatever their order. */
type Predicted = (figure: FigureName, statistic: StatisticName) => Interval | null;

export type Priced = { readonly predicted: Predicted; readonly evidence: string } | { readonly why: string };

type Rounds = Extract<Question, { by: 'rounds' }>;

/** Batches of a row whose proposals are accepted at random. */
const DRAWS = 20;

/** Batches of requests that come at once, each long after the one before. */
function batches(count: number, size: number, promptTokens: number, outputTokens: number): Source {
  let n = 0;
  return {
    next: (draft) => {
      Object.assign(draft, emptyDraft(), { time: 1e6 * Math.floor(n / size), promptTokens, outputTokens });
      return n++ < count * size;
    },
    after: () => false,
  };
}

/** Prices rows one after another; sources that rows share are read once. */
export class Pricing {
  private readonly sources = new Map<string, Promise<Sources>>();
  private readonly services = new Map<string, Service>();

  /** @param adjust of what a question rests on: for fits of it */
  constructor(private readonly adjust: (sources: Sources) => Sources = (sources) => sources) {}

  /** @param folder that paths in the row are relative to */
  async price(row: Row, folder: string): Promise<Priced> {
    const answers: Extract<Priced, { predicted: unknown }>[] = [];
    for (const question of questionsOf(row, folder, () => geometryOf(row, folder))) {
      if (question.by === 'nothing') return { why: question.why };
      try {
        const priced = await this.answer(row, question);
        if ('why' in priced) return priced;
        answers.push(priced);
      } catch (error) {
        if (error instanceof UserError) return { why: error.message };
        throw error;
      }
    }
    const [first, ...others] = answers;
    return {
      evidence: first!.evidence,
      predicted: (figure, statistic) =>
        others.reduce(
          (hull, other) => spanning(hull, other.predicted(figure, statistic)),
          first!.predicted(figure, statistic),
        ),
    };
  }

  private async answer(row: Row, question: Exclude<Question, { by: 'nothing' }>): Promise<Priced> {
    if (question.by === 'plan') return this.steps(question);
    if (question.by === 'rounds') return this.rounds(question);
    const { scenario } = question;
    const { setting, plan } = settle(scenario, await this.read(scenario), { skipBad: false });
    const shown = plan.plans[0];
    const candidate = setting.request.candidates[0]!;
    const service = new Service(setting, candidate, shown);
    const memory = memoryOf(service, row);
    if (question.by === 'memory') return { predicted: (figure) => memory[figure] ?? null, evidence: 'memory' };
    if (service.options.blocks < 1) return { why: 'by the planner nothing is left for the cache' };
    const { run } = await service.runAll(
      () => false,
      () => {},
    );
    if (run.completed === 0) return { why: 'by the planner every request is too long for the cache' };
    return {
      predicted: (figure, statistic) => memory[figure] ?? figureOf(row, run, figure, statistic),
      evidence: run.evidence ?? 'unknown',
    };
  }

  /** Rounds of a batch from its first tokens to its last, a mean over draws of what is accepted. */
  private async rounds({ scenario, batch, promptTokens, outputTokens }: Rounds): Promise<Priced> {
    const sources = await this.read(scenario);
    // Rounds begin with first tokens: how unsure these are does not matter.
    const alone = sources.gpu ? { ...sources, gpu: { ...sources.gpu, spread: null } } : sources;
    const { setting, plan } = settle(scenario, alone, { skipBad: false });
    // Prices do not depend on what is accepted.
    const { draftAcceptance: _acceptance, ...workload } = scenario.workload ?? {};
    const key = JSON.stringify({ ...scenario, workload });
    const service = this.services.get(key) ?? new Service(setting, setting.request.candidates[0]!, plan.plans[0]);
    this.services.set(key, service);
    const rate = (bound: Bound): number => {
      const source = batches(DRAWS, batch, promptTokens, outputTokens);
      const { metrics: m } = service.run(bound, { source, requests: DRAWS * batch }, () => false, setting.server);
      return (m.outputTokens - m.completed) / (m.busySeconds - DRAWS * m.ttft.mean!);
    };
    const rates = { estimate: rate('estimate'), low: rate('high'), high: rate('low') };
    return {
      evidence: plan.plans[0]?.decode.evidence ?? 'unknown',
      predicted: (figure) => (figure === 'tokensPerSecond' ? rates : null),
    };
  }

  /** Steps of one batch, of tokens that take several depths each, or that end one after another. */
  private async steps(question: Extract<Question, { by: 'plan' }>): Promise<Priced> {
    const { batch, loops, tokensPerStep } = question;
    const step = { estimate: 0, low: 0, high: 0 };
    let evidence = 'unknown';
    for (const { loops: each, share, left } of loops) {
      const asked = { ...question.scenario, ...left };
      const scenario = { ...asked, ...(await loopsOf(asked, each)) };
      const { request } = prepare(scenario, await this.read(scenario));
      const { decode, maxBatch } = evaluate(request, request.candidates[0]!);
      if (!decode.secondsPerStep) return { why: `by the planner ${maxBatch.exact} of ${batch} sequences fit` };
      evidence = decode.evidence ?? evidence;
      for (const end of ['estimate', 'low', 'high'] as const) step[end] += share * decode.secondsPerStep[end];
    }
    const rate = (seconds: number): number => (batch * tokensPerStep) / seconds;
    return {
      evidence,
      predicted: (figure) => {
        if (figure === 'tpotSeconds' || figure === 'itlSeconds') return step;
        if (figure === 'tokensPerSecond')
          return { estimate: rate(step.estimate), low: rate(step.high), high: rate(step.low) };
        return null;
      },
    };
  }

  private read(scenario: Scenario): Promise<Sources> {
    const { model, loops, weightType, device, stack } = scenario;
    const key = JSON.stringify([model, loops, weightType, device, stack]);
    let sources = this.sources.get(key);
    if (!sources) this.sources.set(key, (sources = readSources(scenario).then(this.adjust)));
    return sources;
  }
}

/** The first interval's estimate, within the ends of both. */
const spanning = (a: Interval | null, b: Interval | null): Interval | null =>
  a && b ? { estimate: a.estimate, low: Math.min(a.low, b.low), high: Math.max(a.high, b.high) } : (a ?? b);

/** The model of a row. */
export const geometryOf = (row: Row, folder: string): Geometry => {
  if (isPreset(row.model)) return findPreset(row.model);
  return readModelFile(resolve(folder, row.model));
};

/** `--loops` where tokens take fewer than the model was trained with. */
async function loopsOf(scenario: Scenario, loops: number): Promise<Scenario> {
  const { geometry } = await readModel(scenario.model!);
  return geometry.loops === loops ? {} : { loops };
}

/** What the server's memory holds: exact, so both ends are the estimate. */
function memoryOf(service: Service, row: Row): Partial<Record<FigureName, Interval>> {
  const { capacity, options } = service;
  const tokens = options.blocks * options.blockTokens;
  const exactly = (value: number): Interval => ({ estimate: value, low: value, high: value });
  const w = row.workload;
  const length =
    'inputTokens' in w && typeof w.inputTokens === 'number' && typeof w.outputTokens === 'number'
      ? w.inputTokens + w.outputTokens
      : null;
  return {
    kvTokens: exactly(tokens),
    availableKvBytes: exactly(options.blocks * capacity.blockBytes),
    weightsBytes: exactly(capacity.weightsBytes),
    ...(row.server.maxModelLen === undefined ? {} : { requestsOfMaxLength: exactly(tokens / row.server.maxModelLen) }),
    ...(length === null ? {} : { sequences: exactly(Math.floor(options.blocks / blocksOf(length, options))) }),
  };
}

const METRICS: Partial<Record<FigureName, Metric>> = {
  tpotSeconds: 'tpot',
  itlSeconds: 'itl',
  ttftSeconds: 'ttft',
  e2elSeconds: 'e2el',
};

/** A figure of a run, both ends in order. */
function figureOf(row: Row, run: Run, figure: FigureName, statistic: StatisticName): Interval | null {
  const of = (f: RunFigures): number | null => {
    if (figure === 'tokensPerSecond') return f.output_throughput;
    if (figure === 'requestsPerSecond') return f.request_throughput;
    // A single batch is timed to its last token.
    if (figure === 'e2elSeconds' && row.workload.kind === 'single') return f.duration;
    const metric = METRICS[figure];
    if (metric === undefined) return null;
    const milliseconds = f[`${statistic === 'value' ? 'mean' : statistic}_${metric}_ms`];
    return milliseconds === null ? null : milliseconds / 1e3;
  };
  const [estimate, a, b] = [of(run.estimate), of(run.low), of(run.high)];
  if (estimate === null || a === null || b === null) return null;
  return { estimate, low: Math.min(estimate, a, b), high: Math.max(estimate, a, b) };
}
