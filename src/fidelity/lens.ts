/**
 * Logit lens by loop: a model of fewer loops is the same weights stopped earlier, whose norm and head read the state
 * after that loop.
 */
import { greedy } from '../decoder/sampler.js';
import { UserError } from '../errors.js';
import { exactConfiguration, type Teacher } from '../fit/capture.js';
import { predict } from './forced.js';
import type { Item } from './items.js';

/**
 * Share of the predictions after each loop that are those after the last; the last is 1.
 * @throws UserError where no state is one after a loop
 */
export async function lensAgreement(teacher: Teacher, items: readonly Item[]): Promise<number[]> {
  if (teacher.geometry.loopsInRow)
    throw new UserError(
      `${teacher.geometry.name} runs all loops of a layer before the next: no state is that after a loop`,
      'choose a model whose loops follow one another',
    );
  const choices: number[][] = [];
  for (let loops = 1; loops <= teacher.geometry.loops; loops++) {
    const early = { ...teacher, geometry: { ...teacher.geometry, loops } };
    const predicted = await predict(early, exactConfiguration(early), undefined, items);
    choices.push(predicted.flatMap((item) => item.map(greedy)));
  }
  const last = choices.at(-1) as number[];
  return choices.map((own) => own.filter((token, i) => token === last[i]).length / last.length);
}
