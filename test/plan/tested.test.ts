/** What plans say of figures that judge: the nearest ones, priced as the question is. */
import { describe, expect, it } from 'vitest';
import { judgedGroups } from '../../src/plan/ask/stacks.js';
import {
  faredWords,
  testedOf,
  testedSimulation,
  testedText,
  type JudgedFigure,
  type JudgedGroup,
} from '../../src/plan/ask/tested.js';
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
    version: null,
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
  const question = (stack: string | null, device: string, loops: number, version?: string | null) => ({
    ...{ stack, device: { id: device }, geometry: { loops } },
    server: version === undefined ? null : { stack: 'vllm' as const, version },
  });
  const ask = (stack: string | null, device: string, loops: number) => testedOf(groups, question(stack, device, loops));
  const of = (...own: JudgedGroup[]) => ({
    figures: own.flatMap((g) => g.figures).length,
    inside: own.flatMap((g) => g.figures).filter((f) => f.inside).length,
  });

  it('tell those of the GPU beside others that are nearer, and take those of its laws before other GPUs', () => {
    const asked = ask('vllm', 'h200', 4)!;
    expect(asked.on).toContain('looped models on a100-80, h100, none here');
    expect(asked.here).toMatchObject({
      on: 'vLLM of unknown version on h200, models without loops',
      ...of(groups[2]!),
    });
    // In words where many are outside.
    const words = '; vLLM of unknown version on h200, models without loops: ';
    const told = (inside: number): boolean =>
      faredWords({ ...asked, here: { ...asked.here!, figures: 20, inside } }).includes(
        `${words}${inside} of 20 inside`,
      );
    expect([16, 17].map(told)).toEqual([true, false]);
    for (const [device, own] of [
      ['a100-80', 0],
      ['rtx-5090', 3],
    ] as const)
      expect(ask('vllm', device, 4)).toMatchObject({ ...of(groups[own]!), here: null });
    expect(ask('vllm', 'b200', 4)!.here).toBeNull();
  });

  it('are those of a card with the same chip before those of other GPUs', () => {
    expect(ask('vllm', 'a100-40', 4)).toMatchObject({
      on: 'vLLM of unknown version on a100-80, which has the same chip, looped models',
      ...of(groups[0]!),
    });
    expect(ask('vllm', 'l20x', 1)?.on).toBe(
      'vLLM of unknown version on h200, which has the same chip, models without loops',
    );
    expect(ask('sglang', 'gh200', 4)?.on).toBe(
      'SGLang of unknown version on h100, which has the same chip, other models',
    );
  });

  it('are those of the GPU, else of the kind of model, else of the server', () => {
    expect(ask('vllm', 'a100-80', 4)).toMatchObject({
      on: 'vLLM of unknown version on a100-80, looped models',
      ...of(groups[0]!),
    });
    const others = ask('vllm', 'b200', 4);
    expect(others).toMatchObject({
      on: 'vLLM of unknown version, looped models on a100-80, h100, none here',
      ...of(groups[0]!, groups[1]!),
    });
    const sorted = [...groups[0]!.figures, ...groups[1]!.figures].map((f) => Math.abs(f.error)).sort((a, b) => a - b);
    const middle = (sorted.length - 1) / 2;
    expect(others?.medianError).toBeCloseTo((sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2, 12);
    expect(ask('sglang', 'h100', 4)).toMatchObject({
      on: 'SGLang of unknown version on h100, models without loops',
      ...of(groups[5]!),
    });
  });

  it('say on which side nearly all of them were, of times and of rates', () => {
    const sided = (kind: string, errors: readonly number[]) => {
      const figures = errors.map((error) => ({ ...figure(), kind, error }));
      return testedOf([{ ...groups[0]!, figures }], question('vllm', 'a100-80', 4));
    };
    const short = Array.from({ length: 9 }, () => -random.whole(1, 90) / 100);
    expect(sided('step', [...short, 0.3])?.mostly).toBe('too fast');
    expect(sided('throughput', [...short, 0.3])?.mostly).toBe('too slow');
    const long = short.map((e) => -e);
    expect(sided('throughput', long)?.mostly).toBe('too fast');
    expect(sided('step', [...short, 0.3, 0.3, 0.3])?.mostly).toBeNull();
    expect(sided('step', short.slice(0, 3))?.mostly).toBeNull();
  });

  it('were priced as the question is: neither a runtime nor tables speak for estimates', () => {
    expect(ask('attainable', 'h800-pcie', 4)).toMatchObject(of(groups[3]!));
    expect(ask('attainable', 'rtx-5090', 4)).toMatchObject({
      on: 'servers without kernel tables (vLLM of unknown version) on rtx-5090, looped models',
    });
    expect(ask('vllm-rlt', 'b300', 4)).toMatchObject(of(groups[4]!));
    // What is estimated is the GPU: figures of it, or of its maker, are nearer than those of the kind of model.
    const estimated = 'servers without kernel tables (vLLM of unknown version) on';
    for (const [device, own, on] of [
      ['mi300x', 6, 'mi300x, models without loops'],
      ['rtx-3090', 7, 'rtx-3090, models without loops'],
      ['mi355x', 6, 'mi300x, none here'],
    ] as const)
      expect(ask('attainable', device, 4)).toMatchObject({ on: `${estimated} ${on}`, ...of(groups[own]!) });
    for (const stack of [null, 'lla-sim', 'trtllm']) expect(ask(stack, 'h100', 4)).toBeNull();
  });

  describe('of several versions of a server', () => {
    const some = (version: string | null, figures: number, inside: number, kind = 'step'): JudgedGroup => ({
      ...group('vllm', 'h100', false, 'tables'),
      version,
      figures: Array.from({ length: figures }, (_, i) => ({ ...figure(), kind, inside: i < inside })),
    });
    /** The order of the groups tells nothing. */
    const turned = (own: readonly JudgedGroup[], by: number) => [...own.slice(by), ...own.slice(0, by)];
    const asked = (version: string | null, ...own: readonly JudgedGroup[]) =>
      testedOf(turned(own, random.whole(0, own.length)), question('vllm', 'h100', 1, version))!;
    const known = [some('0.9.2', 7, 1), some('0.10.0', 5, 4), some('0.10.2', 6, 3), some('0.19.1', 4, 2)];
    const all = [...known, some(null, 9, 9)];

    it('count those of the nearest one, and tell the others apart', () => {
      expect(asked('0.24.0', ...all)).toMatchObject({
        on: 'vLLM 0.19 on h100, models without loops',
        ...{ figures: 4, inside: 2 },
        otherVersions: { on: 'vLLM 0.9, 0.10 and of unknown version', figures: 27, inside: 17 },
      });
      // Today's are the newest; patches are one version, and 0.10 comes after 0.9.
      expect(asked(null, ...all)).toMatchObject({ figures: 4, inside: 2 });
      expect(asked(null, ...all.slice(0, 3))).toMatchObject({
        on: 'vLLM 0.10 on h100, models without loops',
        ...{ figures: 11, inside: 7 },
        otherVersions: { on: 'vLLM 0.9', figures: 7, inside: 1 },
      });
      expect(asked('0.8.1', ...all)).toMatchObject({ figures: 7, inside: 1 });
      expect(faredWords(asked('0.8.1', ...all))).toMatch(
        /^1 of 7 in the interval.*; vLLM 0\.10, 0\.19 and of unknown version: 18 of 24 inside$/,
      );
      expect(asked('0.24.0', all[4]!)).toMatchObject({ figures: 9, inside: 9, otherVersions: null });
    });

    it('take the next version too where the nearest has too few to say anything, an unknown one last', () => {
      const few = [some('0.19.0', 1, 1), some('0.18.0', 1, 0), some('0.17.0', 2, 2), some('0.11.0', 8, 8)];
      expect(asked('0.24.0', ...few, all[4]!)).toMatchObject({
        on: 'vLLM 0.17–0.19 on h100, models without loops',
        ...{ figures: 4, inside: 3 },
        otherVersions: { figures: 17, inside: 17 },
      });
      expect(asked('0.24.0', few[0]!, all[4]!)).toMatchObject({
        on: 'vLLM 0.19 and of unknown version on h100, models without loops',
        otherVersions: null,
      });
    });

    it('are of two GPUs at least where none is of the asked chip', () => {
      const on = (g: JudgedGroup, device: string): JudgedGroup => ({ ...g, device });
      const newest = [on(some('0.19.0', 8, 0), 'b200'), on(some('0.18.0', 5, 5), 'b200')];
      const older = [on(some('0.11.0', 6, 6), 'l4'), on(some('0.10.0', 9, 9), 'a800')];
      const of = (device: string) => {
        const own = turned([...newest, ...older], random.whole(0, 4));
        return testedOf(own, question('vllm', device, 1, '0.24.0'))!;
      };
      expect(of('l40s')).toMatchObject({ figures: 19, inside: 11, otherVersions: { figures: 9, inside: 9 } });
      expect(of('b200')).toMatchObject({ figures: 8, inside: 0, otherVersions: { figures: 5, inside: 5 } });
    });

    it('say of what they are', () => {
      expect(testedText(asked('0.24.0', some('0.19.0', 4, 4), some('0.19.1', 1, 1, 'throughput')))).toMatch(
        /^published steps, tok\/s of vLLM 0\.19 on h100, models without loops: 5 of 5 in the interval/,
      );
    });

    it('do not let an early build of MI300X speak for today’s', () => {
      const of = (version: string | null) => question('attainable', 'mi300x', 4, version);
      const today = testedOf(judgedGroups(), of(null));
      expect(today?.on).toMatch(/\(vLLM 0\.10\) on mi300x/);
      // Its engine is another one; asked for, it speaks for itself.
      expect(today?.otherVersions).toBeNull();
      const early = testedOf(judgedGroups(), of('0.6.3'));
      expect(early?.on).toMatch(/\(vLLM 0\.6\) on mi300x/);
      expect(early?.otherVersions?.on).toBe('vLLM 0.10');
      // Nor do its first tokens and steps speak for a simulation of today's.
      for (const version of [null, '0.6.3']) {
        const simulated = testedSimulation(judgedGroups(), of(version));
        expect(simulated.step?.on).toMatch(version === null ? /vLLM 0\.10/ : /vLLM 0\.6/);
        expect(simulated.step === simulated['first token']).toBe(version === null);
      }
    });
  });
});
