/** What a fit reports: energy kept by layer and head, and which lose most. */
import type { Codec, Path } from '../codecs/codec.js';
import { ranksText } from '../codecs/ranks.js';
import { codecLabel, coreRatio, isHybrid } from '../codecs/registry.js';
import type { Initialisation } from '../decoder/index.js';
import { latentGroups } from '../decoder/tensors.js';
import type { Geometry } from '../geometry/geometry.js';
import { present } from '../present.js';
import { columns, left, right } from '../report/text/text.js';
import { mean, type Interval } from '../numbers/statistics.js';
import { formatCount, formatShare } from '../numbers/units.js';
import type { LatentEnergy } from './fit.js';
import { AXES, letterOf } from './moments.js';
import type { FitRun } from './run.js';

export interface FitReport {
  readonly schema: 'lla-sim/fit';
  readonly schemaVersion: 1;
  readonly model: { readonly name: string; readonly fingerprint: string };
  readonly codec: Codec;
  readonly ratio: number;
  readonly initialisation: Initialisation;
  readonly tokens: number;
  readonly passes: number;
  /** Mean share of the variance that each initialisation keeps. */
  readonly meanKept: FitRun['kept'];
  readonly energy: readonly LatentEnergy[];
  /** Of weights that were trained after the fit; the shares of the variance are of the fit. */
  readonly distilled?: DistilReport;
}

export interface DistilReport {
  readonly path: Path;
  /** λ_attn of the loss. */
  readonly lambdaAttn: number;
  /** Last tokens that were attended to exactly, of codecs that have such a window. */
  readonly windowTokens?: number | undefined;
  /** Steps made, and those to the weights that were kept. */
  readonly steps: number;
  readonly bestStep: number;
  /** Held-out texts, and KL(teacher ‖ student) on them before and after, nats a token. */
  readonly texts: number;
  readonly before: Interval;
  readonly after: Interval;
  /** The same on what the student draws behind their beginnings, around the on-policy steps; null without any. */
  readonly drawn: { readonly before: Interval; readonly after: Interval } | null;
  readonly seconds: number;
}

export const fitReport = (
  g: Geometry,
  fingerprint: string,
  initialisation: Initialisation,
  run: FitRun,
  distilled: DistilReport | null = null,
): FitReport => ({
  schema: 'lla-sim/fit',
  schemaVersion: 1,
  model: { name: g.name, fingerprint },
  codec: run.fitted.codec,
  ratio: coreRatio(g, run.fitted.codec),
  initialisation,
  tokens: run.tokens,
  passes: run.passes,
  meanKept: run.kept,
  energy: run.fitted.energy,
  ...(distilled ? { distilled } : {}),
});

const nats = ({ estimate, low, high }: Interval): string =>
  `${estimate.toPrecision(2)} (${low.toPrecision(2)}–${high.toPrecision(2)})`;

function distilText(r: DistilReport): string[] {
  const exact = r.windowTokens === undefined ? '' : ` with ${r.windowTokens} exact tokens`;
  const best = r.bestStep === 0 ? 'no step was better than the fit' : `best after step ${r.bestStep}`;
  return present([
    `trained for ${r.path}${exact}, λ_attn ${r.lambdaAttn}, ${formatCount(r.steps)} steps in ` +
      `${r.seconds.toFixed(0)} s: KL from the uncompressed model on ${r.texts} held-out texts ${nats(r.before)} -> ` +
      `${nats(r.after)} nats (${best})`,
    r.drawn &&
      `on texts that it goes on with itself, by the on-policy steps: ${nats(r.drawn.before)} -> ` +
        `${nats(r.drawn.after)} nats`,
  ]);
}

/** What directions from sketches may lack. */
function sketchText(energy: readonly LatentEnergy[]): string[] {
  const below = energy.flatMap((e) => (e.below === undefined ? [] : [e.below]));
  if (below.length === 0) return [];
  return [
    `shares are lower bounds: directions come from a sketch of the covariance, and no others keep more than ` +
      `${formatShare(Math.max(...below))} of the variance beyond them (mean ${formatShare(mean(below))})`,
  ];
}

/** Latents that are listed as losing most. */
const WORST = 5;

export function fitText(g: Geometry, r: FitReport): string {
  const { heads, loops, count } = latentGroups(g, r.codec);
  const headGroups = g.kvHeads / heads;
  const hybrid = isHybrid(r.codec);
  const nameOf = (group: number): string =>
    hybrid
      ? (['first loop', 'later loops'][group] as string)
      : [
          ...(loops < g.loops ? [`loop ${Math.floor(group / headGroups)}`] : []),
          ...(headGroups > 1 ? [`head ${group % headGroups}`] : []),
        ].join(' ') || 'all';
  const rows = [...new Set(r.energy.map(({ layer }) => layer))].flatMap((layer) =>
    AXES.map((axis) => ({
      layer,
      axis,
      own: r.energy.filter((e) => e.layer === layer && e.axis === axis),
    })),
  );
  const worst = [...r.energy].sort((a, b) => a.kept - b.kept).slice(0, WORST);
  const controls = Object.entries(r.meanKept).filter(([name]) => name !== r.initialisation);
  return [
    `${codecLabel(g, r.codec)} (ranks ${ranksText(r.codec)}, ${r.initialisation}) fitted to ${g.name} on ` +
      `${formatCount(r.tokens)} tokens in ${r.passes} pass${r.passes === 1 ? '' : 'es'}`,
    '',
    'share of the variance kept, by layer and latent:',
    ...columns<(typeof rows)[number]>(
      [
        right('layer', (row) => String(row.layer)),
        left('axis', (row) => letterOf(row.axis)),
        ...Array.from({ length: hybrid ? 2 : Math.min(count, 16) }, (_, group) =>
          right(nameOf(group), (row: (typeof rows)[number]) =>
            formatShare(row.own.find((e) => e.group === group)?.kept ?? 0),
          ),
        ),
      ],
      rows,
    ),
    '',
    'loses most: ' +
      worst
        .map((e) => `layer ${e.layer} ${letterOf(e.axis)} ${nameOf(e.group)} (${formatShare(e.kept)} kept)`)
        .join(', '),
    ...sketchText(r.energy),
    'mean kept: ' +
      formatShare(r.meanKept[r.initialisation] ?? 0) +
      controls.map(([name, kept]) => `; ${name} ${formatShare(kept)}`).join(''),
    ...(r.distilled ? ['', ...distilText(r.distilled)] : []),
    '',
  ].join('\n');
}
