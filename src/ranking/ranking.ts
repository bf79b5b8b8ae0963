/** Codecs of a plan in the order of the users that they serve, those without scores apart. */
import { verdictOn } from '../plan/decide/decide.js';
import { isUseless, representatives } from '../plan/decide/representatives.js';
import type { DecodeFigures, Plan, PlanReport } from '../plan/types.js';
import { shownDecode } from '../plan/words/words.js';

/** A codec setting by its best path. */
export interface Ranked {
  readonly planId: string;
  readonly label: string;
  /** Sequences at once within the targets: the largest batch that meets --tpot; without it all that memory holds. */
  readonly users: number;
}

export interface Ranking {
  /** Every published score keeps the asked share. */
  readonly kept: readonly Ranked[];
  /** A score keeps less. */
  readonly lost: readonly Ranked[];
  /** Nothing is published at this context. */
  readonly unknown: readonly Ranked[];
  /** Codec settings of which no path meets the targets, with the first reason. */
  readonly outside: readonly { readonly label: string; readonly reason: string }[];
}

/** Without a target memory decides: all that it holds. */
const byMemory = ({ settings: { targets, batch } }: PlanReport): boolean =>
  batch === null && targets.secondsPerToken === null;

const usersOf = (p: Plan, report: PlanReport): number =>
  byMemory(report) ? p.maxBatch.exact : (p.knee?.batch ?? p.maxBatch.exact);

/** The figures of a row at its users. */
export const figuresOf = (p: Plan, report: PlanReport): DecodeFigures => (byMemory(report) ? p.decode : shownDecode(p));

/** Most users first; of equal ones the faster, by the slow end. */
export function rankingOf(report: PlanReport): Ranking {
  const shown = representatives(report.plans).filter((p) => !p.beside && p.eviction === null && !isUseless(p));
  const rate = (p: Plan): number => figuresOf(p, report).tokensPerSecond?.low ?? 0;
  const sorted = shown.sort((a, b) => usersOf(b, report) - usersOf(a, report) || rate(b) - rate(a));
  const those = (verdict: ReturnType<typeof verdictOn>): Ranked[] =>
    sorted
      .filter((p) => verdictOn(p, report.settings.keep) === verdict)
      .map((p) => ({ planId: p.id, label: labelOf(p.id), users: usersOf(p, report) }));
  const labels = new Set(shown.map((p) => labelOf(p.id)));
  const outside = new Map<string, string>();
  for (const { id, reason } of report.removed)
    if (!labels.has(labelOf(id)) && !outside.has(labelOf(id))) outside.set(labelOf(id), reason);
  return {
    kept: those('kept'),
    lost: those('lost'),
    unknown: those('unknown'),
    outside: [...outside].map(([label, reason]) => ({ label, reason })),
  };
}

/** The codec and its setting, without the path. */
export const labelOf = (planId: string): string => planId.split('/')[0] as string;

/** Bytes of a sequence that do not depend on its length: exact windows, tails. */
export const fixedBytes = ({ memory: m }: Plan): number => m.kvBytesAt1M - m.kvBytesPerToken * 2 ** 20;
