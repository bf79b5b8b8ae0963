/** The float64 reference of mass_prefill, and the comparison of its outputs with it. */
import { dim, dimsOf, type Checker, type Subject } from '../reference.js';
import { operandsOf, scoreOf } from '../shared/attention/prefill.reference.js';

/** Scores of a check's queries, each prepared once: every token asks for those of all queries after it. */
const scores = new WeakMap<Subject, Map<number, (token: number) => number>>();

/**
 * The mass of each token of each evicting row: the weights that all queries of the chunk after the token give it,
 * pooled over the query heads of the row.
 */
export const reference: Checker = {
  outputs: ['mass'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'rows') * (dim(shape, 'context') + dim(shape, 'queries')),
  row: (s, row) => {
    const { context, queries, rows, kvHeads, group } = dimsOf<'mass_prefill'>(s);
    const { room = context + queries, begins = true, ...o } = s.options.massPrefill ?? {};
    const heads = kvHeads * group;
    const [evicting, token] = [Math.floor(row / (context + queries)), row % (context + queries)];
    const at = evicting * room + token;
    const operands = operandsOf(s, o, context + queries).scores;
    const prepared = scores.get(s) ?? new Map<number, (token: number) => number>();
    scores.set(s, prepared);
    const statistics = s.input('statistics');
    const sequence = Math.floor(evicting / rows);
    const pooled = heads / rows;
    const firstHead = (evicting % rows) * pooled;
    let given = 0;
    for (let i = Math.max(0, token + 1 - context); i < queries; i++) {
      for (let head = firstHead; head < firstHead + pooled; head++) {
        const of = (sequence * queries + i) * heads + head;
        const score = prepared.get(of) ?? scoreOf(s.call.shape, operands, { sequence, token: i, head });
        prepared.set(of, score);
        given += Math.exp(score(token) - statistics(2 * of) * Math.LN2) / statistics(2 * of + 1);
      }
    }
    return {
      expected: [given + (begins && token >= context ? 0 : s.input('mass')(at))],
      actual: () => s.output('mass')(at),
    };
  },
};
