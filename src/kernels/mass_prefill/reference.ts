/** The float64 reference of mass_prefill, and the comparison of its outputs with it. */
import { dim, type Checker } from '../reference.js';
import { operandsOf, scoreOf, type QueryPlace, type ScoreOperands } from '../shared/prefill.reference.js';
import type { Shape } from '../spec.js';

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
    const given = givenMass(
      shape,
      operandsOf(s, o, context + queries).scores,
      { sequence: Math.floor(evicting / rows), row: evicting % rows, token },
      (query) => {
        const of = 2 * ((query.sequence * queries + query.token) * heads + query.head);
        return { top: s.input('statistics')(of) * Math.LN2, mass: s.input('statistics')(of + 1) };
      },
    );
    return {
      expected: [given + (begins && token >= context ? 0 : s.input('mass')(at))],
      actual: () => s.output('mass')(at),
    };
  },
};

/**
 * The mass that the queries of a chunk give a token, pooled over the query heads of a row that evicts on its own: the
 * weights of all queries after the token. The specification of mass_prefill.
 * @param statistics largest score (natural logarithm) and mass of a query
 */
function givenMass(
  shape: Shape,
  operands: ScoreOperands,
  { sequence, row, token }: { sequence: number; row: number; token: number },
  statistics: (at: QueryPlace) => { top: number; mass: number },
): number {
  const { kvHeads, rows, group, queries, context } = shape as Readonly<
    Record<'kvHeads' | 'rows' | 'group' | 'queries' | 'context', number>
  >;
  const pooled = (kvHeads / rows) * group;
  let sum = 0;
  for (let i = Math.max(0, token + 1 - context); i < queries; i++) {
    for (let head = row * pooled; head < (row + 1) * pooled; head++) {
      const at = { sequence, token: i, head };
      const { top, mass } = statistics(at);
      sum += Math.exp(scoreOf(shape, operands, at)(token) - top) / mass;
    }
  }
  return sum;
}
