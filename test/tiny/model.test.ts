/** The bundled models as the decoder opens them, in float64, and their tokenizer. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../src/decoder/checkpoint.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel, type Model } from '../../src/decoder/reference/model.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import { readTokenizer } from '../../src/decoder/tokenizer.js';
import { parameterCount } from '../../src/geometry/geometry.js';
import { bundledFolder } from '../../src/geometry/model-file.js';
import type { BundledName } from '../../src/geometry/presets.js';
import { randomFrom } from '../../src/numbers/random.js';
import { BUNDLED_CONFIGS, bundledGeometry, TINY_CONFIG, tinyTokenizer, untrainedTwin } from '../../src/tiny/model.js';
import { copyTask, passkeyTask, sumTask, type Task } from '../../src/tiny/tasks.js';
import { WORDS } from '../../src/tiny/words.js';

const opened = (name: BundledName): ReturnType<typeof openCheckpoint> => openCheckpoint(bundledFolder(name));
const trained = (name: BundledName, loops = 4): Model => {
  const { geometry, tensors, normEpsilon } = opened(name);
  return loadModel({ ...geometry, loops }, tensors, normEpsilon);
};
const twin = loadModel(bundledGeometry('lla-tiny'), untrainedTwin(), TINY_CONFIG.rms_norm_eps);

/** Whether the most likely token is the right one, at every token of the answer. */
function answers(model: Model, { prompt, answer }: Task): boolean {
  const logits = forward(model, [...prompt, ...answer.slice(0, -1)]).slice(prompt.length - 1);
  return answer.every((token, i) => {
    const row = logits[i] as Float64Array;
    return row.every((value, other) => other === token || value < (row[token] as number));
  });
}

describe('the bundled models', () => {
  it.each([
    ['lla-tiny', 2, 64, 98_945, 4],
    ['lla-small', 6, 256, 4_004_353, 2],
  ] as const)('%s is the shape that the code says, with its words', (name, layers, hidden, parameters, bytes) => {
    const file = (of: string): string => join(bundledFolder(name), of);
    expect(JSON.parse(readFileSync(file('config.json'), 'utf8'))).toEqual(BUNDLED_CONFIGS[name]);
    expect(JSON.parse(readFileSync(file('tokenizer.json'), 'utf8'))).toEqual(tinyTokenizer());
    const { geometry, tensors } = opened(name);
    expect(geometry).toMatchObject({ name, layers, hidden, loops: 4, heads: 4, vocab: WORDS.length });
    expect(parameterCount(geometry)).toBe(parameters);
    expect(tensors.shapes.size).toBe(modelTensors(geometry).length);
    const { size } = statSync(file('model.safetensors'));
    expect(size).toBeLessThan(Math.min(bytes * parameters + 1e4, 12 * 2 ** 20));
  });

  it('answers what its twin, the same model before training, does not', () => {
    const tasks = [31, 32, 33, 34].map((seed) => passkeyTask(randomFrom(seed), 24));
    const tiny = trained('lla-tiny');
    expect(tasks.filter((task) => answers(tiny, task)).length).toBe(tasks.length);
    expect(tasks.filter((task) => answers(twin, task)).length).toBe(0);
  });

  it('lla-small adds and copies a list, and its first loop alone does not', () => {
    const tasks = [copyTask(randomFrom(32), 20), ...[31, 32, 33, 34].map((seed) => sumTask(randomFrom(seed), 10))];
    const right = (loops: number): boolean[] => {
      const model = trained('lla-small', loops);
      return tasks.map((task) => answers(model, task));
    };
    expect(right(4)).toEqual(tasks.map(() => true));
    const [list, ...sums] = right(1);
    expect(list).toBe(false);
    expect(sums.filter(Boolean).length).toBeLessThan(sums.length - 1);
  });

  it('reads and writes words; what it does not know is <unk>', () => {
    const tokenizer = readTokenizer(join(bundledFolder('lla-tiny'), 'tokenizer.json'), WORDS.length);
    const text = 'the old dog sees a bird . anna bread ? anna';
    const tokens = tokenizer.encode(text);
    expect(tokens.map((token) => WORDS[token])).toEqual(['<bos>', ...text.split(' ')]);
    expect(tokenizer.decode(tokens)).toBe(text);
    expect(tokenizer.encode('Anna bread? zebra').map((token) => WORDS[token])).toEqual(
      '<bos> anna bread ? <unk>'.split(' '),
    );
  });
});
