/** How predictions fared on published figures of real servers that judge, nearest to a question (docs/accuracy.md). */
import { chipOf, DEVICES, type DeviceSpec } from '../../devices/catalogue.js';
import type { Geometry } from '../../geometry/geometry.js';
import { isEarlierEngine, stackLabel, type Host } from '../../stacks/serving.js';
import { median } from '../../numbers/statistics.js';
import { present } from '../../present.js';

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

/** Figures of one version of a server on one GPU that judge. */
export interface JudgedGroup {
  /** As the ledger names it. */
  readonly server: string;
  /** Null where its source does not say. */
  readonly version: string | null;
  readonly device: string;
  readonly looped: boolean;
  /** What priced them: kernel tables of a server, what tuned kernels reach, or a server's runtime. */
  readonly priced: PricedBy;
  readonly figures: readonly JudgedFigure[];
}

/** calibrations/accuracy.json: written with docs/accuracy.md. */
export interface JudgedFile {
  readonly schema: 'lla-sim/judged';
  readonly schemaVersion: 3;
  readonly groups: readonly JudgedGroup[];
}

type Side = 'too fast' | 'too slow';

/** What stands behind the times of an answer. */
export interface Tested {
  /** Kinds of the figures. */
  readonly kinds: readonly string[];
  /** Servers with versions, GPUs and models of the figures, and in what they differ from the question. */
  readonly on: string;
  readonly figures: number;
  readonly inside: number;
  readonly medianError: number;
  /** On which side nearly all predictions were; null where they were on both. */
  readonly mostly: Side | null;
  /** On which side nearly all were that lie outside; null where these are few, or on both. */
  readonly outsideMostly: Side | null;
  /** Of the GPU that was asked, and other models, where the others are of other GPUs; null where there are none. */
  readonly here: {
    readonly on: string;
    readonly figures: number;
    readonly inside: number;
    readonly medianError: number;
  } | null;
  /** As near but for the version of the server; they count in nothing above. Null where there are none. */
  readonly otherVersions: { readonly on: string; readonly figures: number; readonly inside: number } | null;
}

/** A step to figures that are less like the question. @param server as it is named, with versions */
type Near = readonly [
  matches: (g: JudgedGroup) => boolean,
  on: (server: string, groups: readonly JudgedGroup[]) => string,
];

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
  /** The server that would run, its version null for today's; null where none is known. */
  readonly server: Host | null;
  readonly geometry: Pick<Geometry, 'loops'>;
  readonly device: { readonly id: string | null };
}

/**
 * Figures of first tokens and of steps. Where those are of a server's earlier engine alone, and a plan has figures of
 * today's, these: they are nearer.
 */
export function testedSimulation(groups: readonly JudgedGroup[], question: TestedQuestion): TestedSimulation {
  const earlier = (kinds: readonly string[]): boolean =>
    nearestGroups(groups, question, kinds)?.groups.every(isEarlier) === true;
  const asksEarlier = question.server !== null && isEarlierEngine(question.server);
  const planned = asksEarlier || earlier(PLANNED) ? null : testedOf(groups, question);
  const of = (kind: string): Tested | null => (earlier([kind]) ? planned : null) ?? testedOf(groups, question, [kind]);
  return { 'first token': of('first token'), step: of('step') };
}

const isEarlier = (g: JudgedGroup): boolean => isEarlierEngine({ stack: g.server, version: g.version });

function chipOfId(id: string | null): string | null {
  const device = DEVICES.find((d) => d.id === id);
  return device ? chipOf(device) : id;
}

const makerOf = (id: string | null): DeviceSpec['vendor'] | undefined => DEVICES.find((d) => d.id === id)?.vendor;

/** Fewer say nothing of most. */
const LEAST_FIGURES = 4;

/** Most of the figures of a kind lie outside their intervals: nothing that rests on such intervals is sure. */
export const mostlyOutside = (tested: TestedSimulation): (typeof SIMULATED)[number][] =>
  SIMULATED.filter((kind) => {
    const of = tested[kind];
    return of !== null && isMostlyOutside(of);
  });

/** Most of enough figures lie outside their intervals. */
export const isMostlyOutside = ({ figures, inside }: Tested): boolean =>
  figures >= LEAST_FIGURES && 2 * inside < figures;

/** @returns null where no figure of the server, nor of the GPU where no server prices, judges */
export function testedOf(
  groups: readonly JudgedGroup[],
  question: TestedQuestion,
  kinds: readonly string[] = PLANNED,
): Tested | null {
  const found = nearestGroups(groups, question, kinds);
  if (found === null) return null;
  const figures = found.groups.flatMap((g) => g.figures);
  const others = found.others.flatMap((g) => g.figures);
  const here = found.here.flatMap((g) => g.figures);
  return {
    kinds: kinds.filter((kind) => figures.some((f) => f.kind === kind)),
    on: found.on,
    figures: figures.length,
    inside: insideOf(figures),
    medianError: medianErrorOf(figures),
    mostly: sideOf(figures),
    outsideMostly: sideOf(figures.filter((f) => !f.inside)),
    here:
      here.length === 0
        ? null
        : { on: hereWords(found.here), figures: here.length, inside: insideOf(here), medianError: medianErrorOf(here) },
    otherVersions:
      others.length === 0 ? null : { on: serversWords(found.others), figures: others.length, inside: insideOf(others) },
  };
}

const medianErrorOf = (figures: readonly JudgedFigure[]): number => median(figures.map((f) => Math.abs(f.error)));

/** `vLLM 0.10, 0.11 on h100, models without loops`. */
const hereWords = (groups: readonly JudgedGroup[]): string =>
  `${serversWords(groups)} on ${groups[0]!.device}, ${modelsWords(groups[0]!.looped)}`;

const modelsWords = (looped: boolean): string => (looped ? 'looped models' : 'models without loops');

const insideOf = (figures: readonly JudgedFigure[]): number => figures.filter((f) => f.inside).length;

/** Of so many figures, such a share is no chance. */
const ONE_SIDED = 0.8;

/** A rate that is predicted too high is a time that is too short. */
export const isTooFast = ({ kind, error }: Pick<JudgedFigure, 'kind' | 'error'>): boolean =>
  kind === 'throughput' ? error > 0 : error < 0;

function sideOf(figures: readonly JudgedFigure[]): Side | null {
  if (figures.length < LEAST_FIGURES) return null;
  const fast = figures.filter(isTooFast).length;
  if (fast >= ONE_SIDED * figures.length) return 'too fast';
  return fast <= (1 - ONE_SIDED) * figures.length ? 'too slow' : null;
}

/** Share in intervals of 90 % below which a GPU's own rows are told beside nearer ones, which say otherwise. */
const FEW_INSIDE = 0.85;

const percent = (share: number): string => `${Math.round(100 * share)} %`;

/** `20 of 24 in the interval, median error 12 %, too fast; vLLM 0.6: 8 of 28`. */
export const faredWords = ({
  inside,
  figures,
  medianError,
  mostly,
  outsideMostly,
  here,
  otherVersions: o,
}: Tested): string =>
  `${inside} of ${figures} in the interval, median error ${percent(medianError)}` +
  (mostly !== null ? `, ${mostly}` : outsideMostly !== null ? `, those outside ${outsideMostly}` : '') +
  (here === null || here.inside >= FEW_INSIDE * here.figures
    ? ''
    : `; ${here.on}: ${here.inside} of ${here.figures} inside, ${percent(here.medianError)} off`) +
  (o === null ? '' : `; ${o.on}: ${o.inside} of ${o.figures} inside`);

/** What figures of a kind are of. */
const KIND_WORDS: Readonly<Record<string, string>> = {
  'first token': 'first tokens',
  step: 'steps',
  request: 'requests',
  throughput: 'tok/s',
};

/** Where no figure judges. */
export const UNTESTED = 'no published figure of this server judges these times';

/**
 * `published steps, tok/s of vLLM 0.26 on a100-80, looped models: 9 of 16 in the interval, …`.
 * @param said what others of which was said before are of: the same is not said twice, nor are other models of the GPU
 */
export function testedText(tested: Tested, said?: string): string {
  const fared = faredWords(said === undefined ? tested : { ...tested, here: null });
  const kinds = tested.kinds.map((kind) => KIND_WORDS[kind] ?? kind);
  return `published ${kinds.join(', ')} of ${tested.on === said ? 'the same' : tested.on}: ${fared}`;
}

/** `0.10` of `0.10.2`: patches are alike. Null where no version is known. */
const lineOf = (version: string | null): string | null => /^\d+\.\d+/.exec(version ?? '')?.[0] ?? null;

/** Lines away from which a version tells less than one that is not known: vLLM 0.24 is another engine than 0.7. */
const FAR = 10;

/** Lines in order: 0.9 comes before 0.10, and a major version is far. */
function placeOf(line: string): number {
  const [major = 0, minor = 0] = line.split('.').map(Number);
  return 1000 * major + minor;
}

/** `vLLM 0.10`, `vLLM 0.15–0.19 and of unknown version`; a runtime of its own has no versions. */
function serversWords(groups: readonly JudgedGroup[]): string {
  const servers = [...new Set(groups.map((g) => g.server))];
  return servers
    .map((server) => {
      const own = groups.filter((g) => g.server === server && g.priced !== 'runtime');
      const lines = [...new Set(own.map((g) => lineOf(g.version)))];
      const known = lines.filter((line) => line !== null).sort((a, b) => placeOf(a) - placeOf(b));
      const words = present([
        known.length > 2 ? `${known[0]}–${known.at(-1)}` : known.length > 0 && known.join(', '),
        lines.includes(null) && 'of unknown version',
      ]);
      return present([stackLabel(server), words.length > 0 && words.join(' and ')]).join(' ');
    })
    .join(', ');
}

/**
 * Those of the version nearest to the server's, with the next ones until there are enough to say something, and the
 * others. Servers change from version to version: rows of an old one say little of today's. Where none is of the GPU's
 * chip, those of one other GPU say as little: what is odd there may be its machine's.
 */
function byVersion(
  groups: readonly JudgedGroup[],
  server: TestedQuestion['server'],
  device: string | null,
): { readonly nearest: readonly JudgedGroup[]; readonly others: readonly JudgedGroup[] } {
  const asked = lineOf(server?.version ?? null);
  const at = asked === null ? Infinity : placeOf(asked);
  /** The server's own first; versions that are not known after near ones. */
  const rank = (g: JudgedGroup): readonly number[] => {
    const line = lineOf(g.version);
    const place = line === null ? -Infinity : placeOf(line);
    const away = at === Infinity ? -place : line === null ? FAR : Math.abs(place - at);
    return [Number(server !== null && g.server !== server.stack), away, -place];
  };
  const compare = (a: JudgedGroup, b: JudgedGroup): number => {
    const [x, y] = [rank(a), rank(b)];
    const i = x.findIndex((value, at) => value !== y[at]);
    return i < 0 ? 0 : x[i]! < y[i]! ? -1 : 1;
  };
  const sorted = [...groups].sort(compare);
  const nearest: JudgedGroup[] = [];
  const say = (): boolean =>
    nearest.reduce((sum, g) => sum + g.figures.length, 0) >= LEAST_FIGURES &&
    nearest.some((g) => chipOfId(g.device) === chipOfId(device) || g.device !== nearest[0]!.device);
  for (const g of sorted) {
    const last = nearest.at(-1);
    if (last && compare(last, g) !== 0 && say()) break;
    nearest.push(g);
  }
  // Of an earlier engine nothing is told beside today's.
  const others = sorted.slice(nearest.length);
  return { nearest, others: nearest.every(isEarlier) ? others : others.filter((g) => !isEarlier(g)) };
}

interface Nearest {
  /** What they are of. */
  readonly on: string;
  readonly groups: readonly JudgedGroup[];
  /** Of other versions of the server. */
  readonly others: readonly JudgedGroup[];
  /** Of the GPU that was asked, where none of the groups is: all versions, so that no machine says it alone. */
  readonly here: readonly JudgedGroup[];
}

/** The groups nearest to a question; null as above. */
export function nearestGroups(
  all: readonly JudgedGroup[],
  { stack, server, geometry, device }: TestedQuestion,
  kinds: readonly string[] = PLANNED,
): Nearest | null {
  if (stack === null || stack === 'lla-sim') return null;
  const looped = geometry.loops > 1;
  const groups = all
    .map((g) => ({ ...g, figures: g.figures.filter((f) => kinds.includes(f.kind)) }))
    .filter((g) => g.figures.length > 0);
  const estimated = stack === 'attainable';
  const exact = (g: JudgedGroup): boolean => g.device === device.id && g.looped === looped;
  const ofStack = groups.filter((g) => g.server === stack);
  const tabled = ofStack.filter((g) => g.priced !== 'attainable');
  // Rows of this GPU and of such models come first, though laws priced them.
  const served = estimated
    ? groups.filter((g) => g.priced === 'attainable')
    : tabled.some(exact)
      ? tabled
      : [...tabled, ...ofStack.filter((g) => g.priced === 'attainable' && exact(g))];
  // Rows of an earlier engine say more of it than those of today's on a model that is more alike.
  const ofEarlier = server !== null && isEarlierEngine(server) && served.some(isEarlier);
  const models = modelsWords(looped);
  const gpusOf = (own: readonly JudgedGroup[]): string => {
    const gpus = [...new Set(own.map((g) => g.device))];
    return gpus.length > MOST_NAMED ? `${gpus.length} GPUs` : gpus.join(', ');
  };
  const alike: Near = [(g) => g.looped === looped, (name, own) => `${name}, ${models} on ${gpusOf(own)}, none here`];
  const here: Near = [(g) => g.device === device.id, (name) => `${name} on ${device.id}, ${modelsWords(!looped)}`];
  const hasChip = (g: JudgedGroup): boolean => chipOfId(g.device) === chipOfId(device.id);
  const sisters = (own: boolean): Near => [
    (g) => hasChip(g) && (g.looped === looped || !own),
    (name, of) => `${name} on ${gpusOf(of)}, which has the same chip, ${own ? models : 'other models'}`,
  ];
  const maker = makerOf(device.id);
  const others: Near = [
    (g) => maker !== 'nvidia' && makerOf(g.device) === maker,
    (name, own) => `${name} on ${gpusOf(own)}, none here`,
  ];
  const near: readonly Near[] = [
    [exact, (name) => `${name} on ${device.id}, ${models}`],
    sisters(true),
    // Tables are of the GPU, so the model is what is new. An estimate is of other GPUs, mostly NVIDIA's: the GPU is.
    ...(estimated ? [here, others, alike] : [alike, here]),
    sisters(false),
    [() => true, (name, own) => `${name}, other models and GPUs (${gpusOf(own)})`],
  ];
  for (const [matches, on] of near) {
    const own = served.filter(matches);
    if (own.length === 0 || (ofEarlier && !own.some(isEarlier))) continue;
    const { nearest, others: further } = byVersion(own, server, device.id);
    const name = estimated ? `servers without kernel tables (${serversWords(nearest)})` : serversWords(nearest);
    const ofHere = served.filter((g) => g.device === device.id);
    const today = ofHere.filter((g) => !isEarlier(g));
    const isHere = nearest.some((g) => g.device === device.id);
    return {
      on: on(name, nearest),
      groups: nearest,
      others: further,
      here: isHere ? [] : today.length > 0 ? today : ofHere,
    };
  }
  return null;
}
