/** How predictions fared on published figures of real servers that judge, nearest to a question (docs/accuracy.md). */
import { DEVICES, type DeviceSpec } from '../../devices/catalogue.js';
import type { Geometry } from '../../geometry/geometry.js';
import { stackLabel } from '../../stacks/choose.js';
import { median } from '../../numbers/statistics.js';

export type PricedBy = 'tables' | 'attainable' | 'runtime';

/** A figure that judges, beside its prediction. */
export interface JudgedFigure {
  /** Its file of the ledger, and its row there. */
  readonly source: string;
  readonly id: string;
  readonly model: string;
  readonly kind: string;
  /** Predicted over measured, less 1. */
  readonly error: number;
  /** In the interval of the prediction. */
  readonly inside: boolean;
}

/** Figures of one server on one GPU that judge. */
export interface JudgedGroup {
  /** As the ledger names it. */
  readonly server: string;
  readonly device: string;
  readonly looped: boolean;
  /** What priced them: kernel tables of a server, what tuned kernels reach, or a server's runtime. */
  readonly priced: PricedBy;
  readonly figures: readonly JudgedFigure[];
}

/** calibrations/accuracy.json: written with docs/accuracy.md. */
export interface JudgedFile {
  readonly schema: 'lla-sim/judged';
  readonly schemaVersion: 2;
  readonly groups: readonly JudgedGroup[];
}

/** What stands behind the times of an answer. */
export interface Tested {
  /** Servers, GPUs and models of the figures, and in what they differ from the question. */
  readonly on: string;
  readonly figures: number;
  readonly inside: number;
  readonly medianError: number;
  /** On which side nearly all predictions were; null where they were on both. */
  readonly mostly: 'too fast' | 'too slow' | null;
}

/** A step to figures that are less like the question. */
type Near = readonly [matches: (g: JudgedGroup) => boolean, on: (groups: readonly JudgedGroup[]) => string];

/** Most GPUs that are named; of more their number is said. */
const MOST_NAMED = 3;

/** Kinds of figures that a plan is about: how long a first token waits only a simulation says. */
const PLANNED = ['step', 'request', 'throughput'] as const;
/** Kinds that stand behind the two targets of a simulation. */
export const SIMULATED = ['first token', 'step'] as const;

/** How predictions fared that are like those of a simulation; null where no figure judges. */
export type TestedSimulation = Readonly<Record<(typeof SIMULATED)[number], Tested | null>>;

/** What figures are near to. */
export interface TestedQuestion {
  /** Whose kernels price; null where nothing does. */
  readonly stack: string | null;
  readonly geometry: Pick<Geometry, 'loops'>;
  readonly device: { readonly id: string | null };
}

export const testedSimulation = (groups: readonly JudgedGroup[], question: TestedQuestion): TestedSimulation => ({
  'first token': testedOf(groups, question, ['first token']),
  step: testedOf(groups, question, ['step']),
});

const makerOf = (id: string | null): DeviceSpec['vendor'] | undefined => DEVICES.find((d) => d.id === id)?.vendor;

/** Fewer say nothing of most. */
const LEAST_FIGURES = 4;

/** Most of the figures of a kind lie outside their intervals: nothing that rests on such intervals is sure. */
export const mostlyOutside = (tested: TestedSimulation): (typeof SIMULATED)[number][] =>
  SIMULATED.filter((kind) => {
    const of = tested[kind];
    return of !== null && of.figures >= LEAST_FIGURES && 2 * of.inside < of.figures;
  });

/** @returns null where no figure of the server, nor of the GPU where no server prices, judges */
export function testedOf(
  groups: readonly JudgedGroup[],
  question: TestedQuestion,
  kinds: readonly string[] = PLANNED,
): Tested | null {
  const found = nearestGroups(groups, question, kinds);
  if (found === null) return null;
  const figures = found.groups.flatMap((g) => g.figures);
  return {
    on: found.on,
    figures: figures.length,
    inside: figures.filter((f) => f.inside).length,
    medianError: median(figures.map((f) => Math.abs(f.error))),
    mostly: sideOf(figures),
  };
}

/** Of so many figures, such a share is no chance. */
const ONE_SIDED = 0.8;

function sideOf(figures: readonly JudgedFigure[]): Tested['mostly'] {
  if (figures.length < LEAST_FIGURES) return null;
  // A rate that is predicted too high is a time that is too short.
  const fast = figures.filter(({ kind, error }) => (kind === 'throughput' ? error > 0 : error < 0)).length;
  if (fast >= ONE_SIDED * figures.length) return 'too fast';
  return fast <= (1 - ONE_SIDED) * figures.length ? 'too slow' : null;
}

/** `20 of 24 inside the interval, median error 12 %, too fast`. */
export const faredWords = ({ inside, figures, medianError, mostly }: Tested): string =>
  `${inside} of ${figures} inside the interval, median error ${Math.round(100 * medianError)} %` +
  (mostly === null ? '' : `, ${mostly}`);

/** The groups nearest to a question, and what they are of; null as above. */
export function nearestGroups(
  all: readonly JudgedGroup[],
  { stack, geometry, device }: TestedQuestion,
  kinds: readonly string[] = PLANNED,
): { readonly on: string; readonly groups: readonly JudgedGroup[] } | null {
  if (stack === null || stack === 'lla-sim') return null;
  const looped = geometry.loops > 1;
  const groups = all
    .map((g) => ({ ...g, figures: g.figures.filter((f) => kinds.includes(f.kind)) }))
    .filter((g) => g.figures.length > 0);
  const estimated = stack === 'attainable';
  const served = groups.filter((g) =>
    estimated ? g.priced === 'attainable' : g.server === stack && g.priced !== 'attainable',
  );
  const name = estimated ? 'servers without kernel tables' : stackLabel(stack);
  const models = looped ? 'looped models' : 'models without loops';
  const gpusOf = (own: readonly JudgedGroup[]): string => {
    const gpus = [...new Set(own.map((g) => g.device))];
    return gpus.length > MOST_NAMED ? `${gpus.length} GPUs` : gpus.join(', ');
  };
  const alike: Near = [(g) => g.looped === looped, (own) => `${name}, ${models}, none on this GPU (${gpusOf(own)})`];
  const here: Near = [
    (g) => g.device === device.id,
    () => `${name} on ${device.id}, ${looped ? 'models without loops' : 'looped models'}`,
  ];
  const maker = makerOf(device.id);
  const others: Near = [
    (g) => maker !== 'nvidia' && makerOf(g.device) === maker,
    (own) => `${name} on ${gpusOf(own)}, none on this GPU`,
  ];
  const near: readonly Near[] = [
    [(g) => g.device === device.id && g.looped === looped, () => `${name} on ${device.id}, ${models}`],
    // Tables are of the GPU, so the model is what is new. An estimate is of other GPUs, mostly NVIDIA's: the GPU is.
    ...(estimated ? [here, others, alike] : [alike, here]),
    [() => true, (own) => `${name}, other models and GPUs (${gpusOf(own)})`],
  ];
  for (const [matches, on] of near) {
    const own = served.filter(matches);
    if (own.length > 0) return { on: on(own), groups: own };
  }
  return null;
}
