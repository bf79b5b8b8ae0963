/** The bundled model as the decoder opens it, in float64, and its tokenizer. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../src/decoder/checkpoint.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import { readTokenizer } from '../../src/decoder/tokenizer.js';
import { parameterCount } from '../../src/geometry/geometry.js';
import { randomFrom } from '../../src/random.js';
import { TINY_CONFIG, TINY_FOLDER, tinyGeometry, tinyTokenizer, untrainedTwin } from '../../src/tiny/model.js';
import { passkeyTask, type Task } from '../../src/tiny/tasks.js';
import { WORDS } from '../../src/tiny/words.js';

const file = (name: string): string => join(TINY_FOLDER, name);
const opened = openCheckpoint(TINY_FOLDER);
const trained = loadModel(opened.geometry, opened.tensors, opened.normEpsilon);
const twin = loadModel(tinyGeometry(), untrainedTwin(), TINY_CONFIG.rms_norm_eps);

/** Whether the most likely token is the right one, at every token of the answer. */
function answers(model: typeof trained, { prompt, answer }: Task): boolean {
  const logits = forward(model, [...prompt, ...answer.slice(0, -1)]).slice(prompt.length - 1);
  return answer.every((token, i) => {
    const row = logits[i] as Float64Array;
    return row.every((value, other) => other === token || value < (row[token] as number));
  });
}

describe('the bundled model', () => {
  it('is the shape that the code says, with its words', () => {
    expect(JSON.parse(readFileSync(file('config.json'), 'utf8'))).toEqual(TINY_CONFIG);
    expect(JSON.parse(readFileSync(file('tokenizer.json'), 'utf8'))).toEqual(tinyTokenizer());
    expect(opened.geometry).toMatchObject({ name: 'lla-tiny', layers: 2, loops: 4, heads: 4, vocab: WORDS.length });
    expect(parameterCount(opened.geometry)).toBe(98_945);
    expect(opened.tensors.shapes.size).toBe(modelTensors(opened.geometry).length);
  });

  it('answers what its twin, the same model before training, does not', () => {
    const tasks = [31, 32, 33, 34].map((seed) => passkeyTask(randomFrom(seed), 24));
    expect(tasks.filter((task) => answers(trained, task)).length).toBe(tasks.length);
    expect(tasks.filter((task) => answers(twin, task)).length).toBe(0);
  });

  it('reads and writes words; what it does not know is <unk>', () => {
    const tokenizer = readTokenizer(file('tokenizer.json'), opened.geometry.vocab);
    const text = 'the old dog sees a bird . anna bread ? anna';
    const tokens = tokenizer.encode(text);
    expect(tokens.map((token) => WORDS[token])).toEqual(['<bos>', ...text.split(' ')]);
    expect(tokenizer.decode(tokens)).toBe(text);
    expect(tokenizer.encode('Anna bread? zebra').map((token) => WORDS[token])).toEqual(
      '<bos> anna bread ? <unk>'.split(' '),
    );
  });
});
