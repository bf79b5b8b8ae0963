/**
 * The figures of the paper's systems part as data: each with its place, what is printed, and the question that the
 * planner is asked. Nothing here is the model's.
 */
import type { Codec, CodecKind } from '../codecs/codec.js';
import type { Eviction } from '../eviction/policy.js';
import type { QualityFigure, QualityModel } from '../quality/figure.js';
import { cellAt, cellsOf, numbersIn } from '../quality/printed.js';
import { FIGURES_OF_THE_PAPER } from '../quality/quality.js';
import type { Decoding, Expectation, PaperFigure, Subject, Unit } from './types.js';

const [OURO, OURO_26, HUGINN] = ['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b'] as const;
const [KIB, MIB, GIB] = [2 ** 10, 2 ** 20, 2 ** 30];
const FULL: Codec = { kind: 'full' };
const lla = (rankK: number, rankV: number): Codec => ({ kind: 'lla', rankK, rankV });
const latent2d = (rankK: number, rankV: number): Codec => ({ kind: 'lla-2d', rankK, rankV });
const LLA_4X = lla(96, 160);
const LLA_21X = lla(18, 30);
/** Columns of Table memory. */
const CODECS: readonly (readonly [title: string, Codec])[] = [
  ['teacher', FULL],
  ['LLA 4×', LLA_4X],
  ['LLA 21.3×', LLA_21X],
];
const DECODE_CONTEXT = 4096;

/** Units in which a whole number is meant as it stands: `4×` is not 4.3×, 32 sequences are not 31.6. */
const COUNTED: readonly Unit[] = ['ratio', 'bytes', 'count', 'tokens'];

/** The number at the start of a printed figure, and half a unit of its last digit. */
export function printed(text: string, unit: Unit): { value: number; precision: number } {
  const digits = /[0-9]+(?:\.([0-9]+))?/.exec(text);
  if (!digits) throw new Error(`no number in ${text}`);
  const whole = digits[1] === undefined && COUNTED.includes(unit) && !text.startsWith('~');
  return { value: Number(digits[0]), precision: whole ? 0 : 0.5 * 10 ** -(digits[1]?.length ?? 0) };
}

interface Where {
  readonly section: string;
  readonly source: string;
}

function figure(
  where: Where,
  id: string,
  quantity: string,
  text: string,
  unit: Unit,
  expect: Expectation,
  subject: Subject,
  scale: number | null = 1,
): PaperFigure {
  const number = scale === null ? null : printed(text, unit);
  return {
    ...where,
    id,
    quantity,
    text,
    unit,
    expect,
    subject,
    value: number && number.value * (scale as number),
    precision: number ? number.precision * (scale as number) : 0,
  };
}
/** A claim in words. */
const claim = (
  where: Where,
  id: string,
  quantity: string,
  text: string,
  subject: Subject,
  expect: Expectation = 'exact',
): PaperFigure => figure(where, id, quantity, text, 'text', expect, subject, null);

/** Codecs of the paper, in its order. */
const CODEC_NAMES: Readonly<Partial<Record<CodecKind, string>>> = {
  full: 'teacher',
  lla: 'LLA',
  'lla-2d': 'LLA-2D',
  'mla-head': 'mla_head',
  cla: 'cla',
  'kv-quant': 'kv_quant',
  'final-loop': 'final-loop reuse',
};
const MODEL_NAMES: Readonly<Record<QualityModel, string>> = { [OURO]: '1.4B', [OURO_26]: '2.6B', [HUGINN]: 'Huginn' };
const quantBits = (ratio: number): Codec => ({ kind: 'kv-quant', bits: Math.round(16 / ratio) as 2 | 3 | 4 | 8 });

/** Table tier4 and Table huginn print ranks beside ratios; Table ablations two splits of one budget. */
function ranks(): PaperFigure[] {
  const tables = [
    [OURO, 'tier4'],
    [HUGINN, 'huginn'],
  ] as const;
  const rows = tables.flatMap(([model, table]) =>
    cellsOf(table).flatMap(([label = '', pair = '']) => {
      const [, rankK, rankV] = /^\(?(\d+)[,/](\d+)\)?$/.exec(pair) ?? [];
      const [, ratio] = /([\d.]+)×$/.exec(label) ?? [];
      return rankK && rankV && ratio ? [[model, table, ratio, Number(rankK), Number(rankV)] as const] : [];
    }),
  );
  const where = (table: string): Where => ({
    section: table === 'huginn' ? 'Huginn' : 'Ranks and ratios',
    source: `Table ${table}`,
  });
  const core = (model: QualityModel): string => (model === HUGINN ? ', looped core' : '');
  return [
    ...rows.map(([model, table, ratio, rankK, rankV]) =>
      figure(
        where(table),
        `${table}/${ratio}x/ratio`,
        `ρ of ranks ${rankK}/${rankV}${core(model)}`,
        `${ratio}×`,
        'ratio',
        'exact',
        { of: 'ratio', model, codec: lla(rankK, rankV) },
      ),
    ),
    ...rows.map(([model, table, ratio, rankK, rankV]) =>
      claim(where(table), `${table}/${ratio}x/ranks`, `ranks of ${ratio}×${core(model)}`, `${rankK}/${rankV}`, {
        of: 'ranks',
        model,
        ratio: Number(ratio),
      }),
    ),
    ...rows
      .filter(([model]) => model === HUGINN)
      .map(([model, table, ratio, rankK, rankV]) =>
        figure(
          where(table),
          `${table}/${ratio}x/whole`,
          `${ratio}× on the whole cache`,
          `${ratio}×`,
          'ratio',
          'explained',
          { of: 'stored-ratio', model, codec: lla(rankK, rankV), path: 'reconstruct' },
        ),
      ),
  ];
}

const SOURCES = [...new Set(FIGURES_OF_THE_PAPER.map((f) => f.source))];
/** By the table that has the ratio first, then by codec. */
const order = ([f]: readonly QualityFigure[]): number =>
  f ? SOURCES.indexOf(f.source) * 100 + Object.keys(CODEC_NAMES).indexOf(f.codec) : 0;

/**
 * Ratios under which codecs are compared, from the quality tables themselves: one figure for each model, codec and
 * ratio.
 */
function comparedRatios(): PaperFigure[] {
  const groups = new Map<string, QualityFigure[]>();
  for (const f of FIGURES_OF_THE_PAPER) {
    // The evicted baseline is printed by its bits, not by a ratio; Huginn's ratios stand with their ranks.
    if (f.codec === 'full' || f.model === HUGINN || (f.codec === 'kv-quant' && f.source === 'Table evict')) continue;
    const key = `${f.model}/${f.codec}-${Number(f.ratioLabel)}x`;
    groups.set(key, [...(groups.get(key) ?? []), f]);
  }
  return [...groups]
    .sort(([, a], [, b]) => order(a) - order(b))
    .map(([key, list]) => {
      const { model, codec, ratioLabel, ratio } = list[0] as QualityFigure;
      const where = { section: 'Ratios under comparison', source: (list[0] as QualityFigure).source };
      const quantity = `${CODEC_NAMES[codec] ?? codec} on ${MODEL_NAMES[model]}`;
      const text = `${Number(ratioLabel)}×`;
      if (codec === 'kv-quant')
        return figure(where, `ratios/${key}`, quantity, text, 'ratio', 'explained', {
          of: 'stored-ratio',
          model,
          codec: quantBits(ratio),
          path: 'full',
        });
      return figure(where, `ratios/${key}`, quantity, text, 'ratio', 'exact', {
        of: 'reached-ratio',
        model,
        kind: codec,
        ratio,
      });
    });
}

function otherRatios(): PaperFigure[] {
  const appendix = { section: 'Ratios under comparison', source: 'text, Section expdetails' };
  const passkey = { section: 'Ratios under comparison', source: 'text, Section onpolicy' };
  return [
    figure(passkey, 'ratios/ouro-1.4b/lla-15.5x', 'LLA on 1.4B', '15.5×', 'ratio', 'exact', {
      of: 'reached-ratio',
      model: OURO,
      kind: 'lla',
      ratio: 15.5,
    }),
    ...[4, 6, 12, 24].map((s) =>
      figure(appendix, `expdetails/cla-${s}`, `cla over s = ${s} layers`, `${s}×`, 'ratio', 'exact', {
        of: 'reached-ratio',
        model: OURO,
        kind: 'cla',
        ratio: s,
      }),
    ),
    figure(appendix, 'expdetails/kv-quant-limit', 'most that kv_quant reaches (2 bits)', '~8×', 'ratio', 'explained', {
      of: 'stored-ratio',
      model: OURO,
      codec: quantBits(8),
      path: 'full',
    }),
    figure(
      { section: 'Ranks and ratios', source: 'Table ablations' },
      'ablations/matched-scalars',
      'scalars of 96/160 over 128/128',
      '1 (matched)',
      'ratio',
      'exact',
      { of: 'scalar-ratio', model: OURO, codec: LLA_4X, over: lla(128, 128) },
    ),
  ];
}

/** What the paper says about codecs by their parameters: one called infeasible, two that it trained. */
function parameterClaims(): PaperFigure[] {
  const text = { section: 'Codec sizes', source: 'text, Section experiments' };
  const rows: readonly (readonly [Where, string, string, string, QualityModel, Codec])[] = [
    [text, 'huginn-lla-2d', 'LLA-2D on Huginn at 16×', 'infeasible', HUGINN, latent2d(7040, 14_080)],
    [text, 'huginn-lla', 'LLA on Huginn at 16×', 'avoids this cost', HUGINN, lla(128, 256)],
    [
      { ...text, source: 'Table scale' },
      '2.6b-lla-2d',
      'LLA-2D on 2.6B at 4×',
      'trained',
      OURO_26,
      latent2d(1536, 2560),
    ],
  ];
  return rows.map(([where, id, quantity, words, model, codec]) =>
    claim(where, `experiments/${id}`, quantity, words, { of: 'codec-trainable', model, codec }, 'explained'),
  );
}

function codecSizes(): PaperFigure[] {
  const at = (source: string): Where => ({ section: 'Codec sizes', source });
  return [
    figure(at('text, Section intro'), 'intro/cache-slots', 'cached layers of Ouro-1.4B', '96-layer', 'count', 'exact', {
      of: 'cache-slots',
      model: OURO,
    }),
    figure(
      at('text, Section serving_details'),
      'serving/factor-h',
      'LLA over LLA-2D at equal ranks (H)',
      '16×',
      'ratio',
      'exact',
      { of: 'scalar-ratio', model: OURO, codec: LLA_4X, over: latent2d(96, 160) },
    ),
    figure(
      at('text, Section experiments'),
      'experiments/final-loop-parameters',
      'parameters of final-loop reuse',
      '0',
      'count',
      'exact',
      { of: 'codec-parameters', model: OURO, codec: { kind: 'final-loop' } },
    ),
    ...parameterClaims(),
  ];
}

function memory(): PaperFigure[] {
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
          perToken(name)[i] as string,
          'bytes',
          'exact',
          { of: 'kv-per-token', model, codec },
          KIB,
        ),
      ),
    ),
    ...CODECS.map(([name, codec]) =>
      figure(
        at('Cache memory'),
        `memory/kv-at-1m/${name}`,
        `KV at 1M tokens, 1.4B, ${name}`,
        cellAt('memory', 'KV at 1M context, 1.4B', name),
        'bytes',
        'exact',
        { of: 'kv-at-1m', model: OURO, codec, eviction: null },
        GIB,
      ),
    ),
    figure(
      at('Cache memory'),
      'memory/kv-at-1m/evicted',
      'the same, 21.3× and 1024 tokens kept',
      '36 MiB',
      'bytes',
      'exact',
      { of: 'kv-at-1m', model: OURO, codec: LLA_21X, eviction: budget },
      MIB,
    ),
  ];
}

const FULL_PATH: Decoding = { codec: FULL, path: 'full' };
/** The paper's capacity path writes rebuilt K and V to memory at every step (Section serving_details). */
const REBUILT = (codec: Codec): Decoding => ({ codec, path: 'reconstruct', materialised: true });
const CAPACITY_PATH = REBUILT(LLA_21X);

function capacity(): PaperFigure[] {
  const where = { section: 'Capacity', source: 'Table memory' };
  const rows = ([OURO, OURO_26] as const).flatMap((model) =>
    CODECS.flatMap(([name, codec]) => {
      const text = cellAt('memory', `max batch at 4k, ${MODEL_NAMES[model]}`, name);
      return text === 'n/a' ? [] : [[model, name, codec === FULL ? FULL_PATH : REBUILT(codec), text] as const];
    }),
  );
  return [
    ...rows.map(([model, name, decoding, text]) =>
      figure(
        where,
        `memory/max-batch/${model}/${name}`,
        `max batch at 4k, ${MODEL_NAMES[model]}, ${name}`,
        text,
        'count',
        'exact',
        { of: 'max-batch', model, decoding, contextTokens: DECODE_CONTEXT },
      ),
    ),
    figure(
      { ...where, source: 'Table memory, Figure capacity' },
      'memory/batch-gain',
      'batch gain of 21.3× (768 / 32)',
      '24×',
      'ratio',
      'explained',
      {
        of: 'batch-gain',
        model: OURO,
        decoding: CAPACITY_PATH,
        contextTokens: DECODE_CONTEXT,
      },
    ),
  ];
}

function latency(): PaperFigure[] {
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
      latencyOf('teacher'),
      'seconds',
      'interval',
      { of: 'step-seconds', ...at, decoding: FULL_PATH, batch: 1, fullPeak },
      1e-3,
    ),
    figure(
      where,
      'memory/latency/fast',
      'decode latency, fast path 4×',
      latencyOf('LLA 4×'),
      'seconds',
      'interval',
      { of: 'step-seconds', ...at, decoding: fast, batch: 1, fullPeak },
      1e-3,
    ),
    figure(
      { ...where, source: 'text, Section systems' },
      'systems/fast-ratio',
      'fast path over teacher',
      '1.16×',
      'ratio',
      'interval',
      {
        of: 'step-ratio',
        ...at,
        decoding: fast,
        batch: 1,
        published: { seconds: seconds(latencyOf('LLA 4×')), fullSeconds: seconds(latencyOf('teacher')) },
      },
    ),
    figure(where, 'memory/throughput/teacher', 'peak throughput, teacher', peakOf('teacher'), 'tokens/s', 'interval', {
      of: 'throughput',
      ...at,
      decoding: FULL_PATH,
    }),
    figure(
      where,
      'memory/throughput/lla-21.33x',
      'peak throughput, capacity path 21.3×',
      peakOf('LLA 21.3×'),
      'tokens/s',
      'interval',
      { of: 'throughput', ...at, decoding: CAPACITY_PATH },
    ),
  ];
}

function absorbed(): PaperFigure[] {
  const where = { section: 'Absorbed attention', source: 'Table absorbed_latency' };
  const [, ...rows] = cellsOf('absorbed_latency');
  const branch: Decoding = { codec: LLA_4X, path: 'absorbed' };
  return [
    // Context, teacher ms, absorbed ms, reconstruct over absorbed, teacher over absorbed.
    ...rows.flatMap(([label = '', teacher = '', own = '', overRebuilt = '', overTeacher = '']) => {
      const contextTokens = numbersIn(label)[0] as number;
      const at = { model: OURO, contextTokens } as const;
      // The table prints the ratio; times the absorbed time of the same row it is a time that can be compared.
      const rebuilt = printed(overRebuilt, 'ratio').value;
      const rebuiltMs = rebuilt * Number(own);
      const precision = (0.005 / rebuilt + 0.005 / Number(own)) * rebuiltMs * 1e-3;
      return [
        figure(
          where,
          `absorbed/${contextTokens}/teacher`,
          `teacher at ${label}`,
          `${teacher} ms`,
          'seconds',
          'interval',
          { of: 'layer-seconds', ...at, decoding: FULL_PATH },
          1e-3,
        ),
        figure(
          where,
          `absorbed/${contextTokens}/absorbed`,
          `absorbed at ${label}`,
          `${own} ms`,
          'seconds',
          'interval',
          { of: 'layer-seconds', ...at, decoding: branch },
          1e-3,
        ),
        {
          ...figure(
            where,
            `absorbed/${contextTokens}/reconstruct`,
            `reconstruct-then-attend at ${label}`,
            `${overRebuilt} = ${rebuiltMs.toFixed(2)} ms`,
            'seconds',
            'interval',
            { of: 'layer-seconds', ...at, decoding: REBUILT(LLA_4X) },
          ),
          value: rebuiltMs * 1e-3,
          precision,
        },
        figure(
          where,
          `absorbed/${contextTokens}/over-teacher`,
          `teacher over absorbed at ${label}`,
          overTeacher,
          'ratio',
          'interval',
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
      '4×',
      'ratio',
      'explained',
      { of: 'stored-ratio', model: OURO, codec: LLA_4X, path: 'absorbed' },
    ),
  ];
}

function eviction(): PaperFigure[] {
  const where = { section: 'Eviction', source: 'Table evict' };
  const policy: Eviction = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 };
  return [
    figure(where, 'evict/budget', 'tokens kept: sink 4 + window 256', '260', 'tokens', 'exact', {
      of: 'budget',
      eviction: policy,
    }),
    figure(
      where,
      'evict/share',
      'evicted of a ~1k-token prompt',
      '~74 %',
      'share',
      'interval',
      { of: 'evicted-share', eviction: policy, fewest: 1000, most: 1024 },
      0.01,
    ),
    ...accuracies(['Table evict'], 'Eviction'),
  ];
}

/** Accuracies that stand among the systems figures. */
function accuracies(sources: readonly string[], section: string): PaperFigure[] {
  return FIGURES_OF_THE_PAPER.filter((f) => sources.includes(f.source)).map((f, i) => {
    const path =
      f.pathClass === 'absorbed' ? `decoupled, ${f.variant ?? ''}` : f.metric === 'gsm8k' ? 'evicting' : 'full RoPE';
    const name = f.codec === 'kv-quant' ? `kv_quant-${16 / f.ratio}` : `LLA ${Number(f.ratioLabel)}×`;
    return figure(
      { section, source: f.source },
      `accuracy/${f.source.replace(/^.*Table /, '')}/${i}`,
      `${f.metric}: ${name}, ${path}`,
      f.value.toFixed(Math.max(2, String(f.value).length - 2)),
      f.unit === 'fraction' ? 'share' : 'count',
      'not-predictable',
      { of: 'accuracy' },
    );
  });
}

function prefill(): PaperFigure[] {
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

/** Every figure, in the order of the sections. */
export const PAPER_FIGURES: readonly PaperFigure[] = [
  ...memory(),
  ...capacity(),
  ...latency(),
  ...absorbed(),
  ...accuracies(['Table decoupled_char', 'caption, Table decoupled_char'], 'Decoupled RoPE'),
  ...eviction(),
  ...prefill(),
  ...sorted([...ranks(), ...otherRatios(), ...comparedRatios(), ...codecSizes()]),
];

/** Figures of one section side by side, sections in order of first appearance. */
function sorted(figures: readonly PaperFigure[]): PaperFigure[] {
  const sections = [...new Set(figures.map((f) => f.section))];
  return sections.flatMap((s) => figures.filter((f) => f.section === s));
}
