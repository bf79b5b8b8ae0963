/**
 * What the program around the kernels of a server costs: a host that launches them one by one, or replays a graph of
 * one loop, while the GPU works. A pass over the looped layers takes the longer of both:
 *
 *   host = s · (launches of a pass) + s · launches.row · rows          s: the host's seconds a launch
 *   GPU  = kernels as priced + gap · (launches that no price stands for)
 *   pass = max(host, GPU) where the host works ahead; else s · launches.row · rows + max(s · launches, GPU)
 *
 * Launches are counted from the model's layers, in units of s, so that they hold for other models and hosts.
 * calibrations/runtimes.json has the numbers and says which rows of the ledger they were fitted to.
 */
import { requireOneOf, UserError } from '../errors.js';
import type { Interval } from '../cost/evidence.js';
import type { Geometry } from '../geometry/geometry.js';
import type { Execution } from '../schema/serving.js';
import type { AttentionTerms, RuntimeFile, RuntimeTerms } from './runtime-schema.js';
import type { RuntimeName } from './serving.js';

/** A runtime on one machine, before the settings of a question: plain data. */
export interface RuntimeSource {
  readonly name: RuntimeName;
  /** Id of the catalogue. */
  readonly device: string;
  readonly terms: RuntimeTerms;
  readonly host: Interval;
  /** What says how fast the host is; null where nobody measured one. */
  readonly hostFrom: HostSource | null;
}

/** A row of the ledger, or a step that the user measured. */
type HostSource = { readonly row: string } | { readonly step: string };

/** Half-width of the time of a host that one step tells, log seconds: that of the ledger's hosts. */
const ONE_STEP = 0.12;

/** The same runtime beside a host that takes so many seconds a launch, as a step of the user's server tells. */
export const besideHost = (source: RuntimeSource, secondsPerLaunch: number, step: string): RuntimeSource => ({
  ...source,
  host: around(secondsPerLaunch, ONE_STEP),
  hostFrom: { step },
});

const around = (seconds: number, spread: number): Interval => ({
  estimate: seconds,
  low: seconds * Math.exp(-spread),
  high: seconds * Math.exp(spread),
});

/** How a server is started. */
export interface RuntimeChoice {
  readonly execution: Execution;
  /** As `--attention` names it. */
  readonly attentionName: string;
  readonly attention: AttentionTerms;
  /** The host submits a pass before it has read the signals of the one before. */
  readonly asynchronous: boolean;
}

/** @param device id of the catalogue */
export function runtimeSource(file: RuntimeFile, name: RuntimeName, device: string): RuntimeSource {
  const { measured, others } = file.hosts;
  const own = Object.hasOwn(measured, device) ? measured[device]! : null;
  return {
    name,
    device,
    terms: file.runtimes[name],
    host: own ? around(own.secondsPerLaunch, own.spread) : others,
    hostFrom: own && { row: own.row },
  };
}

/**
 * @param asked `--execution` and `--attention`
 * @throws UserError for what the server does not have
 */
export function runtimeChoice(
  { name, terms, device }: RuntimeSource,
  asked: { readonly execution?: string | undefined; readonly attention?: string | undefined },
  asynchronous: boolean,
): RuntimeChoice {
  const execution = (asked.execution ?? 'eager') as Execution;
  if (execution === 'graphs')
    throw new UserError(
      `--execution graphs: ${name} captures the looped layers alone`,
      'write --execution loop-graphs, or eager',
    );
  const attention = asked.attention ?? terms.defaults.attention;
  requireOneOf('--attention', attention, Object.keys(terms.attention), terms.defaults.attention);
  const found = terms.attention[attention]!;
  if (!runsOn(found, device))
    throw new UserError(
      `--attention ${attention} does not run on ${device}: FlashAttention 4 is for Hopper and data-centre Blackwell`,
      `write --attention ${terms.defaults.attention}, or leave it out`,
    );
  return { execution, attentionName: attention, attention: found, asynchronous };
}

const runsOn = ({ devices }: AttentionTerms, device: string): boolean => devices?.includes(device) ?? true;

/** The same with a kernel of attention that divides sequences and packs prompts, where the GPU has another such one. */
export function withDividingAttention(runtime: Runtime): Runtime | null {
  const { source, choice } = runtime;
  const divides = (of: AttentionTerms): boolean => of.unsplit === null && of.packsQueries && runsOn(of, source.device);
  const found = Object.entries(source.terms.attention).find(
    ([name, of]) => name !== choice.attentionName && divides(of),
  );
  return found ? runtime.with(source, { ...choice, attentionName: found[0], attention: found[1] }) : null;
}

/** What the GPU and the host need at one end of their intervals. */
export interface Ends {
  /** Seconds of the kernels, as priced. */
  readonly kernels: number;
  /** The host's seconds a launch. */
  readonly launch: number;
}

/** Prices of what a server runs for one model. Seconds. */
export class Runtime {
  private readonly layer: number;
  private readonly unpriced: number;

  constructor(
    readonly source: RuntimeSource,
    readonly choice: RuntimeChoice,
    private readonly g: Geometry,
    /** Launches of a layer's call beyond the full cache's. */
    private readonly more = 0,
  ) {
    const { norm, layer, layerPriced } = source.terms.launches;
    this.layer = norm * g.normsPerLayer + layer + choice.attention.callLaunches + more;
    this.unpriced = (norm - 1) * g.normsPerLayer + layer - layerPriced;
  }

  /** The same model on another machine, or of a server that was started otherwise. */
  with(source: RuntimeSource, choice: RuntimeChoice): Runtime {
    return new Runtime(source, choice, this.g, this.more);
  }

  /** The same with so many launches of a layer's call beyond the full cache's. */
  withMore(launches: number): Runtime {
    return launches === this.more ? this : new Runtime(this.source, this.choice, this.g, launches);
  }

  /** Rows of a pass, of so many sequences that are under way. */
  rowsOfPass(sequences: number): number {
    const { terms } = this.source;
    const drifts = this.replays(sequences) && this.choice.asynchronous;
    return drifts && sequences > 1 ? 1 + (sequences - 1) * terms.replayedAsyncShare : sequences;
  }

  /** One pass over the looped layers. @param rows sequences in it */
  pass(rows: number, { kernels, launch }: Ends): number {
    const { terms } = this.source;
    const { launches, gapSeconds } = terms;
    const { layers } = this.g;
    const replayed = this.replays(rows);
    const host = launch * (replayed ? launches.replay : layers * this.layer + launches.loop);
    const gpu = kernels + layers * this.unpriced * (replayed ? gapSeconds.replayed : gapSeconds.eager);
    const books = launch * launches.row * rows;
    return this.choice.asynchronous ? Math.max(host + books, gpu) : books + Math.max(host, gpu);
  }

  /** The step before the loops, or after them. @param layers that it has itself */
  boundary(layers: number, { kernels, launch }: Ends): number {
    const { launches, gapSeconds } = this.source.terms;
    return Math.max(
      launch * (launches.boundary + layers * this.layer),
      kernels + layers * this.unpriced * gapSeconds.eager,
    );
  }

  /** A chunk of prompts with all its loops, which are launched one by one. */
  chunk(tokens: number, { kernels, launch }: Ends): number {
    const { launches, gapSeconds } = this.source.terms;
    const { layers, loops, preludeLayers, codaLayers } = this.g;
    const runs = layers * loops + preludeLayers + codaLayers;
    const perToken = this.choice.attention.promptTokenLaunches;
    const host = runs * this.layer + loops * (launches.loop + tokens * perToken) + launches.boundary;
    return Math.max(launch * host, kernels + runs * this.unpriced * gapSeconds.eager);
  }

  /** Copies of keys and values for loops that were left out. @param planes loops of tokens */
  copies(planes: number, launch: number): number {
    return launch * this.source.terms.launches.copiedPlane * planes;
  }

  /** An end of an interval: what its parts give there, spread as rows that were held out. */
  readonly widened = (estimate: number, end: 'low' | 'high', seconds: number): number => {
    const half = Math.hypot(Math.log(seconds / estimate), this.source.terms.spread);
    return estimate * Math.exp(end === 'low' ? -half : half);
  };

  private replays(rows: number): boolean {
    return this.choice.execution === 'loop-graphs' && rows <= this.source.terms.mostReplayedRows;
  }
}
