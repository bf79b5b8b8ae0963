/** The card of a bundled model: its README.md, in Markdown. */
import type { Geometry } from '../geometry/geometry.js';
import type { BundledName } from '../geometry/presets.js';
import type { TaskKind } from '../tiny/tasks.js';
import type { Score } from './scores.js';
import { totalSteps, type Stage, type TrainingPlan } from './trainer.js';

interface Facts {
  readonly name: BundledName;
  readonly g: Geometry;
  readonly parameters: number;
  readonly plan: TrainingPlan;
  readonly kinds: readonly TaskKind[];
  /** At the end of training, nats a weighted token; null where it is not known. */
  readonly loss: string | null;
}

interface Measured {
  readonly made: readonly Score[];
  /** Of the untrained twin. */
  readonly twins: readonly Score[];
  /** Of the model that stops after 1, 2, … loops. */
  readonly byLoops: readonly (readonly Score[])[];
  /** Answers of the float64 decoder. */
  readonly exact: { readonly right: number; readonly asked: number };
}

const TITLES: Readonly<Record<TaskKind, string>> = {
  recall: 'recall of 6 facts',
  passkey: 'pass code',
  copy: 'list of 6',
  sum: 'sum of 2',
  sum3: 'sum of 3',
};

const shares = (kinds: readonly TaskKind[], of: readonly Score[], length: number): string =>
  kinds
    .map((kind) => {
      const score = of.find((s) => s.kind === kind && s.length === length);
      return score ? (score.right / score.asked).toFixed(2) : '';
    })
    .join(' | ');

function stageText({ steps, texts, length, span, loops, lessons }: Stage, g: Geometry): string {
  const few = loops !== undefined && loops < g.loops ? ` with ${loops} loops` : '';
  return (
    `${steps} of ${texts} × ` +
    `${length}${span ? ` over ${span} positions` : ''}${lessons ? ', most of them sums' : ''}${few}`
  );
}

/** Paragraphs with lines of at most `width` columns; tables and titles stay as they are. */
function wrapped(text: string, width: number): string {
  const wrap = (line: string): string => {
    const lines = [''];
    for (const word of line.split(' ')) {
      const last = lines.at(-1) as string;
      if (last !== '' && last.length + 1 + word.length > width) lines.push(word);
      else lines[lines.length - 1] = last === '' ? word : `${last} ${word}`;
    }
    return lines.join('\n');
  };
  return text
    .split('\n')
    .map((line) => (line.startsWith('|') ? line : wrap(line)))
    .join('\n');
}

/** @returns the card, with what was measured by scripts/score-model.ts */
export function card({ name, g, parameters, plan, kinds, loss }: Facts, of: Measured): string {
  const columns = kinds.map((kind) => TITLES[kind]).join(' | ');
  const lengths = [...new Set(of.made.map(({ length }) => length))];
  const asked = (list: readonly Score[], length: number): number => list.find((s) => s.length === length)?.asked ?? 0;
  const rule = `|${'---|'.repeat(kinds.length + 2)}`;
  const ablated = of.byLoops[0]?.[0]?.length ?? 0;
  const longest = Math.max(...plan.stages.map(({ length }) => length));
  const copies = kinds.includes('copy') ? ' or a list of six things to copy' : '';
  return wrapped(
    `# ${name}

A looped language model of ${parameters.toLocaleString('en')} parameters that is bundled with lla-sim: ${g.layers} \
layers × ${g.loops} loops, ${g.heads} heads × ${g.headDim}, width ${g.hidden}, ${g.vocab} words. Layers, tensor names \
and config.json are those of Ouro, and the code that opens an Ouro checkpoint opens it. It exists to try codecs on; it \
knows nothing of the world. Licence: that of lla-sim (MIT).

**Texts.** Generated from a seed (\`src/tiny/tasks.ts\`): facts (a name and its thing), a pass code of five different \
digits${copies}, sentences of filler, and at the end questions with their answers. Sums are of two \
${kinds.includes('sum3') ? 'or three ' : ''}numbers up to nine.

**Training.** \`npm run train:model -- ${name}\`: ${totalSteps(plan)} steps (texts × tokens: \
${plan.stages.map((stage) => stageText(stage, g)).join('; ')}; every fourth step of a later stage takes an earlier \
one). AdamW (β 0.9, 0.98, decay 0.01, clip 1), highest rate ${plan.rate}, a cosine and a cool-down; loss of answers 1, \
of all other tokens ${plan.otherWeight}. In some stages a further loss guides attention (the token before; what an \
answer repeats) and fades to nothing. Seed ${plan.seed}: the same weights again on the same \
machine.${loss === null ? '' : ` Loss at the end: ${loss} nats a weighted token (mean of the last steps).`}

**Scores.** Share of questions answered right, all tokens of the answer, greedily, from texts of seeds that training \
does not use; in the last row the untrained twin (the weights that training begins with). ${of.exact.right} of \
${of.exact.asked} questions of 32 and 64 tokens are answered right by the float64 decoder too.

| tokens | questions of a kind | ${columns} |
${rule}
${lengths.map((length) => `| ${length} | ${asked(of.made, length)} | ${shares(kinds, of.made, length)} |`).join('\n')}
| twin, 32 | ${asked(of.twins, 32)} | ${shares(kinds, of.twins, 32)} |

**Loops.** The same at ${ablated} tokens, where the model stops after fewer loops (\`--loops\`):

| loops | questions of a kind | ${columns} |
${rule}
${of.byLoops.map((list, i) => `| ${i + 1} | ${asked(list, ablated)} | ${shares(kinds, list, ablated)} |`).join('\n')}

**Limits.** Names, things and digits that are not in its vocabulary are unknown to it. Contexts beyond \
${lengths.at(-1)} tokens were not tried, and the longest texts of its training had ${longest}.
`,
    120,
  );
}
