/** Memory, capacity, times, eviction and prefill: the systems part. */
import type { Codec } from '../../codecs/codec.js';
import type { Eviction } from '../../eviction/policy.js';
import type { QualityModel } from '../../quality/figure.js';
import { cellAt, cellsOf, numbersIn } from '../../quality/printed.js';
import { FIGURES_OF_THE_PAPER } from '../../quality/quality.js';
import type { Decoding, PaperFigure, Subject } from '../types.js';
import {
  OURO,
  OURO_26,
  KIB,
  MIB,
  GIB,
  FULL,
  FULL_DECODING,
  lla,
  LLA_4X,
  LLA_21X,
  CODECS,
  DECODE_CONTEXT,
  printed,
  type Where,
  figure,
  exact,
  interval,
  explained,
  notPredictable,
  claim,
  MODEL_NAMES,
} from './figure.js';

export function memory(): PaperFigure[] {
  const at = (section: string): Where => ({ section, source: 'Table memory' });
  /** `768 / 1536 KiB`: of 1.4B and of 2.6B. */
  const perToken = (name: string): readonly string[] => {
    const [both = '', unit = ''] = cellAt('memory', 'KV / token, 1.4B / 2.6B', name).split(/ (?=[A-Z])/);
    return both.split(' / ').map((value) => `${value} ${unit}`);
  };
  const budget: Eviction = { policy: 'budget', budgetTokens: 1024 };
  return [
    ...([OURO, OURO_26] as const).flatMap((model, i) =>
      CODECS.map(([name, codec]) =>
        figure(
          at('Cache memory'),
          `memory/kv-per-token/${model}/${name}`,
          `KV/token, ${MODEL_NAMES[model]}, ${name}`,
          exact(perToken(name)[i] as string, 'bytes', KIB),
          { of: 'kv-per-token', model, codec },
        ),
      ),
    ),
    ...CODECS.map(([name, codec]) =>
      figure(
        at('Cache memory'),
        `memory/kv-at-1m/${name}`,
        `KV at 1M tokens, 1.4B, ${name}`,
        exact(cellAt('memory', 'KV at 1M context, 1.4B', name), 'bytes', GIB),
        { of: 'kv-at-1m', model: OURO, codec, eviction: null },
      ),
    ),
    figure(
      at('Cache memory'),
      'memory/kv-at-1m/evicted',
      'the same, 21.3× and 1024 tokens kept',
      exact('36 MiB', 'bytes', MIB),
      { of: 'kv-at-1m', model: OURO, codec: LLA_21X, eviction: budget },
    ),
  ];
}

/** The paper's capacity path writes rebuilt K and V to memory at every step (Section serving_details). */
const REBUILT = (codec: Codec): Decoding => ({ codec, path: 'reconstruct', materialised: true });
const CAPACITY_PATH = REBUILT(LLA_21X);

export function capacity(): PaperFigure[] {
  const where = { section: 'Capacity', source: 'Table memory' };
  const rows = ([OURO, OURO_26] as const).flatMap((model) =>
    CODECS.flatMap(([name, codec]) => {
      const text = cellAt('memory', `max batch at 4k, ${MODEL_NAMES[model]}`, name);
      return text === 'n/a' ? [] : [[model, name, codec === FULL ? FULL_DECODING : REBUILT(codec), text] as const];
    }),
  );
  return [
    ...rows.map(([model, name, decoding, text]) =>
      figure(
        where,
        `memory/max-batch/${model}/${name}`,
        `max batch at 4k, ${MODEL_NAMES[model]}, ${name}`,
        exact(text, 'count'),
        { of: 'max-batch', model, decoding, contextTokens: DECODE_CONTEXT },
      ),
    ),
    figure(
      { ...where, source: 'Table memory, Figure capacity' },
      'memory/batch-gain',
      'batch gain of 21.3× (768 / 32)',
      explained('24×', 'ratio'),
      { of: 'batch-gain', model: OURO, decoding: CAPACITY_PATH, contextTokens: DECODE_CONTEXT },
    ),
  ];
}

export function latency(): PaperFigure[] {
  const where = { section: 'Latency and throughput', source: 'Table memory' };
  const latencyOf = (name: string): string => cellAt('memory', 'decode latency, fast path', name).replace('/tok', '');
  const peakOf = (name: string): string => cellAt('memory', 'peak decode throughput, capacity path', name);
  const seconds = (text: string): number => printed(text, 'seconds').value * 1e-3;
  const fullPeak = printed(peakOf('teacher'), 'tokens/s').value;
  const at = { model: OURO, contextTokens: DECODE_CONTEXT } as const;
  const fast: Decoding = { codec: LLA_4X, path: 'fast' };
  return [
    figure(
      where,
      'memory/latency/teacher',
      'decode latency, teacher',
      interval(latencyOf('teacher'), 'seconds', 1e-3),
      { of: 'step-seconds', ...at, decoding: FULL_DECODING, batch: 1, fullPeak },
    ),
    figure(
      where,
      'memory/latency/fast',
      'decode latency, fast path 4×',
      interval(latencyOf('LLA 4×'), 'seconds', 1e-3),
      { of: 'step-seconds', ...at, decoding: fast, batch: 1, fullPeak },
    ),
    figure(
      { ...where, source: 'text, Section systems' },
      'systems/fast-ratio',
      'fast path over teacher',
      interval('1.16×', 'ratio'),
      {
        of: 'step-ratio',
        ...at,
        decoding: fast,
        batch: 1,
        published: { seconds: seconds(latencyOf('LLA 4×')), fullSeconds: seconds(latencyOf('teacher')) },
      },
    ),
    figure(where, 'memory/throughput/teacher', 'peak throughput, teacher', interval(peakOf('teacher'), 'tokens/s'), {
      of: 'throughput',
      ...at,
      decoding: FULL_DECODING,
    }),
    figure(
      where,
      'memory/throughput/lla-21.33x',
      'peak throughput, capacity path 21.3×',
      interval(peakOf('LLA 21.3×'), 'tokens/s'),
      { of: 'throughput', ...at, decoding: CAPACITY_PATH },
    ),
  ];
}

export function absorbed(): PaperFigure[] {
  const where = { section: 'Absorbed attention', source: 'Table absorbed_latency' };
  const [, ...rows] = cellsOf('absorbed_latency');
  const branch: Decoding = { codec: LLA_4X, path: 'absorbed' };
  const rebuilds = REBUILT(LLA_4X);
  return [
    // Context, teacher ms, absorbed ms, reconstruct over absorbed, teacher over absorbed.
    ...rows.flatMap(([label = '', teacher = '', own = '', overRebuilt = '', overTeacher = '']) => {
      const contextTokens = numbersIn(label)[0] as number;
      const at = { model: OURO, contextTokens } as const;
      // The table prints the ratio; times the absorbed time of the same row it is a time that can be compared.
      const rebuilt = printed(overRebuilt, 'ratio').value;
      const rebuiltMs = rebuilt * Number(own);
      const precision = (0.005 / rebuilt + 0.005 / Number(own)) * rebuiltMs * 1e-3;
      const printedRebuilt = interval(`${overRebuilt} = ${rebuiltMs.toFixed(2)} ms`, 'seconds');
      const time = (id: string, what: string, value: typeof printedRebuilt, decoding: Decoding): PaperFigure =>
        figure(where, `absorbed/${contextTokens}/${id}`, `${what} at ${label}`, value, {
          of: 'layer-seconds',
          ...at,
          decoding,
        });
      return [
        time('teacher', 'teacher', interval(`${teacher} ms`, 'seconds', 1e-3), FULL_DECODING),
        time('absorbed', 'absorbed', interval(`${own} ms`, 'seconds', 1e-3), branch),
        time(
          'reconstruct',
          'reconstruct-then-attend',
          { ...printedRebuilt, value: rebuiltMs * 1e-3, precision },
          rebuilds,
        ),
        figure(
          where,
          `absorbed/${contextTokens}/over-teacher`,
          `teacher over absorbed at ${label}`,
          interval(overTeacher, 'ratio'),
          {
            of: 'layer-ratio',
            ...at,
            decoding: branch,
            published: { seconds: Number(own) * 1e-3, fullSeconds: Number(teacher) * 1e-3 },
          },
        ),
      ];
    }),
    figure(
      { section: 'Absorbed attention', source: 'text, Section serving_details' },
      'absorbed/less-cache',
      'less cache than the teacher',
      explained('4×', 'ratio'),
      { of: 'stored-ratio', model: OURO, codec: LLA_4X, path: 'absorbed' },
    ),
  ];
}

export function eviction(): PaperFigure[] {
  const where = { section: 'Eviction', source: 'Table evict' };
  const policy: Eviction = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 };
  return [
    figure(where, 'evict/budget', 'tokens kept: sink 4 + window 256', exact('260', 'tokens'), {
      of: 'budget',
      eviction: policy,
    }),
    figure(where, 'evict/share', 'evicted of a ~1k-token prompt', interval('~74 %', 'share', 0.01), {
      of: 'evicted-share',
      eviction: policy,
      fewest: 1000,
      most: 1024,
    }),
    ...accuracies(['Table evict'], 'Eviction'),
  ];
}

/** Accuracies that stand among the systems figures. */
export function accuracies(sources: readonly string[], section: string): PaperFigure[] {
  return FIGURES_OF_THE_PAPER.filter((f) => sources.includes(f.source)).map((f, i) => {
    const path =
      f.pathClass === 'absorbed' ? `decoupled, ${f.variant ?? ''}` : f.metric === 'gsm8k' ? 'evicting' : 'full RoPE';
    const name = f.codec === 'kv-quant' ? `kv_quant-${16 / f.ratio}` : `LLA ${Number(f.ratioLabel)}×`;
    return figure(
      { section, source: f.source },
      `accuracy/${f.source.replace(/^.*Table /, '')}/${i}`,
      `${f.metric}: ${name}, ${path}`,
      notPredictable(
        f.value.toFixed(Math.max(2, String(f.value).length - 2)),
        f.unit === 'fraction' ? 'share' : 'count',
      ),
      { of: 'accuracy' },
    );
  });
}

export function prefill(): PaperFigure[] {
  const where = { section: 'Prefill', source: 'text, Section serving_details' };
  const passkey = { section: 'Prefill', source: 'text, Section onpolicy' };
  const at = (
    kind: 'one-shot' | 'by-layer',
    contextTokens: number,
    model: QualityModel = OURO,
    codec: Codec = LLA_4X,
  ): Subject => ({ of: 'prefill-fits', model, codec, kind, contextTokens });
  return [
    claim(where, 'prefill/one-shot/32k', 'one-shot prefill of 32k, 1.4B', 'fits', at('one-shot', 32_768)),
    claim(where, 'prefill/one-shot/64k', 'one-shot prefill of 64k, 1.4B', 'does not fit', at('one-shot', 65_536)),
    claim(where, 'prefill/by-layer/64k', 'layer-by-layer prefill of 64k, 1.4B', 'fits', at('by-layer', 65_536)),
    claim(
      passkey,
      'prefill/by-layer/64k/2.6b',
      'the same, 2.6B at 10.67×',
      'does not fit',
      at('by-layer', 65_536, OURO_26, lla(36, 60)),
      'explained',
    ),
  ];
}
