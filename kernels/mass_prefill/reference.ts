/** The float64 reference of mass_prefill, and the comparison of its outputs with it. */
import { dim, type Checker, type Subject } from '../reference.js';
import { operandsOf, scoreOf, type QueryPlace } from '../shared/attention/prefill.reference.js';
import type { Shape } from '../spec.js';

/** Scores of a check's queries, each prepared once: every token asks for those of all queries after it. */
const scores = new WeakMap<Subject, Map<number, (token: number) => number>>();

/** The mass of each token of each evicting row. */
export const reference: Checker = {
  outputs: ['mass'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'rows') * (dim(shape, 'context') + dim(shape, 'queries')),
  row: (s, row) => {
    const { shape } = s.call;
    const [context, queries, rows] = [dim(shape, 'context'), dim(shape, 'queries'), dim(shape, 'rows')];
    const { room = context + queries, begins = true, ...o } = s.options.massPrefill ?? {};
    const heads = dim(shape, 'kvHeads') * dim(shape, 'group');
    const [evicting, token] = [Math.floor(row / (context + queries)), row % (context + queries)];
    const at = evicting * room + token;
    const operands = operandsOf(s, o, context + queries).scores;
    const prepared = scores.get(s) ?? new Map<number, (token: number) => number>();
    scores.set(s, prepared);
    const statistics = s.input('statistics');
    const given = givenMass(shape, { sequence: Math.floor(evicting / rows), row: evicting % rows, token }, (query) => {
      const of = (query.sequence * queries + query.token) * heads + query.head;
      const score = prepared.get(of) ?? scoreOf(shape, operands, query);
      prepared.set(of, score);
      return { score, top: statistics(2 * of) * Math.LN2, mass: statistics(2 * of + 1) };
    });
    return {
      expected: [given + (begins && token >= context ? 0 : s.input('mass')(at))],
      actual: () => s.output('mass')(at),
    };
  },
};

/**
 * The mass that the queries of a chunk give a token, pooled over the query heads of a row that evicts on its own: the
 * weights of all queries after the token. The specification of mass_prefill.
 * @param query its score of a token, its largest score (natural logarithm) and its mass
 */
function givenMass(
  shape: Shape,
  { sequence, row, token }: { sequence: number; row: number; token: number },
  query: (at: QueryPlace) => { score: (token: number) => number; top: number; mass: number },
): number {
  const { kvHeads, rows, group, queries, context } = shape as Readonly<
    Record<'kvHeads' | 'rows' | 'group' | 'queries' | 'context', number>
  >;
  const pooled = (kvHeads / rows) * group;
  let sum = 0;
  for (let i = Math.max(0, token + 1 - context); i < queries; i++) {
    for (let head = row * pooled; head < (row + 1) * pooled; head++) {
      const { score, top, mass } = query({ sequence, token: i, head });
      sum += Math.exp(score(token) - top) / mass;
    }
  }
  return sum;
}
