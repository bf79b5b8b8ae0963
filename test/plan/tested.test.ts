/** What plans say of figures that judge: the nearest ones, priced as the question is. */
import { describe, expect, it } from 'vitest';
import { testedOf, type JudgedFigure, type JudgedGroup } from '../../src/plan/ask/tested.js';
import { randomOf, SEED } from '../gpu/random.js';

describe(`figures of others (seed ${SEED})`, () => {
  const random = randomOf(SEED);
  const figure = (): JudgedFigure => ({
    source: 'theirs',
    id: `row-${random.whole(1, 99)}`,
    model: 'ouro-1.4b',
    kind: 'step',
    error: random.whole(-90, 90) / 100,
    inside: random.whole(0, 1) === 1,
  });
  const group = (server: string, device: string, looped: boolean, priced: JudgedGroup['priced']): JudgedGroup => ({
    server,
    device,
    looped,
    priced,
    figures: Array.from({ length: random.whole(1, 9) }, figure),
  });
  const groups: readonly JudgedGroup[] = [
    group('vllm', 'a100-80', true, 'tables'),
    group('vllm', 'h100', true, 'tables'),
    group('vllm', 'h200', false, 'tables'),
    group('vllm', 'rtx-5090', true, 'attainable'),
    group('vllm-rlt', 'h800-pcie', true, 'runtime'),
    group('sglang', 'h100', false, 'tables'),
    group('vllm', 'mi300x', false, 'attainable'),
    group('vllm', 'rtx-3090', false, 'attainable'),
  ];
  const ask = (stack: string | null, device: string, loops: number) =>
    testedOf(groups, { stack, device: { id: device }, geometry: { loops } });
  const of = (...own: JudgedGroup[]) => ({
    figures: own.flatMap((g) => g.figures).length,
    inside: own.flatMap((g) => g.figures).filter((f) => f.inside).length,
  });

  it('are those of the GPU, else of the kind of model, else of the server', () => {
    expect(ask('vllm', 'a100-80', 4)).toMatchObject({ on: 'vLLM on a100-80, looped models', ...of(groups[0]!) });
    const others = ask('vllm', 'b200', 4);
    expect(others).toMatchObject({
      on: 'vLLM, looped models, none on this GPU (a100-80, h100)',
      ...of(groups[0]!, groups[1]!),
    });
    const sorted = [...groups[0]!.figures, ...groups[1]!.figures].map((f) => Math.abs(f.error)).sort((a, b) => a - b);
    const middle = (sorted.length - 1) / 2;
    expect(others?.medianError).toBeCloseTo((sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2, 12);
    expect(ask('sglang', 'h100', 4)).toMatchObject({ on: 'SGLang on h100, models without loops', ...of(groups[5]!) });
  });

  it('were priced as the question is: neither a runtime nor tables speak for estimates', () => {
    expect(ask('attainable', 'h800-pcie', 4)).toMatchObject(of(groups[3]!));
    expect(ask('attainable', 'rtx-5090', 4)).toMatchObject({
      on: 'servers without kernel tables on rtx-5090, looped models',
    });
    expect(ask('vllm-rlt', 'b300', 4)).toMatchObject(of(groups[4]!));
    // What is estimated is the GPU: figures of it, or of its maker, are nearer than those of the kind of model.
    const estimated = 'servers without kernel tables on';
    for (const [device, own, on] of [
      ['mi300x', 6, 'mi300x, models without loops'],
      ['rtx-3090', 7, 'rtx-3090, models without loops'],
      ['mi355x', 6, 'mi300x, none on this GPU'],
    ] as const)
      expect(ask('attainable', device, 4)).toMatchObject({ on: `${estimated} ${on}`, ...of(groups[own]!) });
    for (const stack of [null, 'lla-sim', 'trtllm']) expect(ask(stack, 'h100', 4)).toBeNull();
  });
});
