/** What the paper does not say and the model does. Every number is computed here and now by the planner's code. */
import type { Codec, CodecKind } from '../codecs/codec.js';
import { codecLabel, codecParameters, codecSpec, coreRatio } from '../codecs/registry.js';
import { PREFILL_KINDS } from '../cost/memory.js';
import { parameterCount } from '../geometry/geometry.js';
import { workOf } from '../../kernels/registry.js';
import { forEachOp } from '../schedule/expand.js';
import type { Plan } from '../plan/types.js';
import { schedule } from '../schedule/schedule.js';
import { formatBytes, formatDecimalBytes, formatTokens } from '../numbers/units.js';
import { breakEvenContext, breakEvenRatio } from './break-even.js';
import { FULL_DECODING as FULL, HUGINN, OURO, OURO_26 } from './figures/figure.js';
import type { PaperModel } from './model.js';
import { rateText, ratioText, timeText } from './text.js';
import type { Beyond, Decoding } from './types.js';

/** Ratios at which LLA is published. */
const PUBLISHED = [4 / 3, 2, 4, 16 / 3, 32 / 3, 64 / 3];
/** LLA's paths as people name them. */
const PATHS: readonly (readonly [name: string, path: Omit<Decoding, 'codec'>])[] = [
  ['materialised', { path: 'reconstruct', materialised: true }],
  ['reconstruct (fused)', { path: 'reconstruct' }],
  ['block-absorbed', { path: 'block-absorbed' }],
  ['absorbed (not faithful post hoc)', { path: 'absorbed' }],
];

export function beyondThePaper(m: PaperModel): Beyond[] {
  return [reads(m), equalMemory(m), ratios(m), contexts(m), prefills(m), sizes(m), inFlight(m), missingCells(m)];
}

/** Bytes that a step reads for one more cached token of one sequence: the slope of the schedule's reads. */
export function readBytesPerToken(m: PaperModel, model: string, decoding: Decoding): number {
  // So many sequences that no path splits the context: rows read are then proportional to it.
  const batch = 512;
  const c = m.configuration(model, decoding);
  const total = (context: number): number => {
    let bytes = 0;
    forEachOp(c, schedule(c, batch, context), (o, calls) => {
      bytes += calls * workOf(o).readBytes;
    });
    return bytes;
  };
  return (total(8192) - total(4096)) / 4096 / batch;
}

function reads(m: PaperModel): Beyond {
  const settings: readonly (readonly [CodecKind, readonly number[]])[] = [
    ['lla', PUBLISHED],
    ['lla-2d', [4, 64 / 3]],
    ['mla-head', [4, 64 / 3]],
    ['kv-quant', [4]],
    ['cla', [4]],
    ['final-loop', [4]],
  ];
  const full = readBytesPerToken(m, OURO, FULL);
  const codecs = settings.flatMap(([kind, ratios]) => ratios.map((ratio) => m.codec(OURO, kind, ratio)));
  const rows = codecs.map((codec) => {
    const latent = codec.rankK !== undefined;
    const decoding: Decoding = { codec, path: latent ? 'reconstruct' : 'full' };
    const own = readBytesPerToken(m, OURO, decoding);
    const stored = 1 / m.plan(OURO, decoding).codec.storedRatio;
    const rebuilt = latent ? readBytesPerToken(m, OURO, { ...decoding, materialised: true }) / full : null;
    return [codecLabel(m.geometry(OURO), codec), stored, own, own / full, rebuilt];
  });
  const parity = rows
    .filter((r, i) => r[3] === 1 && codecSpec(codecs[i] as Codec).latentFor === 'one-head')
    .map((r) => String(r[0]));
  const { loops } = m.geometry(OURO);
  return {
    id: 'reads',
    title: 'Reads are T/ρ of the full cache’s, not 1/ρ',
    text:
      `What is stored once is read in each of the T = ${loops} loops. Latents therefore read T/ρ of what the full ` +
      `cache reads: parity at ρ = T (${parity.join(', ')}) is structural, below it LLA reads more than the full ` +
      'cache, and only beyond it does it save bandwidth. Sharing across layers or loops saves memory and no ' +
      'bandwidth at all. LLA-2D reads so little only where all heads share one read of the latent. Rebuilding K and ' +
      'V in memory first (materialised) reads them beside the latents, and has written them before: more than the ' +
      'full cache at every ratio.',
    columns: [
      { name: 'codec', title: 'codec', unit: 'text' },
      { name: 'storedShare', title: 'stored', unit: 'share' },
      { name: 'readBytesPerToken', title: 'read a step and token', unit: 'bytes' },
      { name: 'readShare', title: 'of full', unit: 'share' },
      { name: 'materialisedShare', title: 'materialised', unit: 'share' },
    ],
    rows,
  };
}

function equalMemory(m: PaperModel): Beyond {
  const full = m.plan(OURO, FULL);
  const rate = (d: Decoding): number | null => {
    const own = m.plan(OURO, d).decode.tokensPerSecond?.estimate;
    return own === undefined || full.decode.tokensPerSecond === null
      ? null
      : own / full.decode.tokensPerSecond.estimate;
  };
  const rows = PUBLISHED.map((ratio) => {
    const codec = m.codec(OURO, 'lla', ratio);
    const { maxBatch } = m.plan(OURO, { codec, path: 'reconstruct' });
    return [
      codecLabel(m.geometry(OURO), codec),
      maxBatch.exact,
      maxBatch.exact / full.maxBatch.exact,
      coreRatio(m.geometry(OURO), codec) / m.geometry(OURO).loops,
      ...PATHS.map(([, path]) => rate({ ...path, codec })),
    ];
  });
  const first = rows.find((r) => (r[6] as number) >= 1)?.[0];
  return {
    id: 'equal-memory',
    title: 'Throughput in the same memory, 1.4B at 4096 tokens',
    text:
      'Tokens per second at the largest batch of each row over those of the full cache at its own ' +
      `(${full.maxBatch.exact} sequences, ` +
      `${rateText(full.decode.tokensPerSecond ?? { estimate: 0, low: 0, high: 0 })}); estimates. ρ times the ` +
      'sequences read T times as much in all, so capacity alone brings about ρ/T (and weights shared by more ' +
      `sequences): block-absorbed attention gains from ${String(first ?? 'no ratio')} on.`,
    columns: [
      { name: 'codec', title: 'codec', unit: 'text' },
      { name: 'maxBatch', title: 'max batch', unit: 'count' },
      { name: 'batchGain', title: 'batch gain', unit: 'ratio' },
      { name: 'bound', title: 'ρ/T', unit: 'ratio' },
      { name: 'materialised', title: 'materialised', unit: 'ratio' },
      { name: 'reconstruct', title: 'reconstruct', unit: 'ratio' },
      { name: 'blockAbsorbed', title: 'block-absorbed', unit: 'ratio' },
      { name: 'absorbed', title: 'absorbed', unit: 'ratio' },
    ],
    rows,
  };
}

function ratios(m: PaperModel): Beyond {
  const rows = PATHS.map(([name, path]) => {
    const found = breakEvenRatio(m, OURO, path);
    return [name, found.low, found.estimate, found.high];
  });
  return {
    id: 'break-even-ratios',
    title: 'Break-even ratios, per path',
    text:
      'The smallest ratio from which a cached token costs a path no more time than the full cache, on 1.4B, with ' +
      'both at the fast end of their intervals, at the estimate, and at the slow end. The fast end has matrix units ' +
      'for every product, so that reads alone decide; the estimate has them for projections only; the slow end has ' +
      'none. “–”: at no ratio.',
    columns: [
      { name: 'path', title: 'path', unit: 'text' },
      { name: 'fastEnd', title: 'fast end', unit: 'ratio' },
      { name: 'estimate', title: 'estimate', unit: 'ratio' },
      { name: 'slowEnd', title: 'slow end', unit: 'ratio' },
    ],
    rows,
  };
}

function contexts(m: PaperModel): Beyond {
  const rows = [16 / 3, 64 / 3].flatMap((ratio) =>
    [1, 32].flatMap((batch) =>
      PATHS.map(([name, path]) => {
        const codec = m.codec(OURO, 'lla', ratio);
        const found = breakEvenContext(m, OURO, { ...path, codec }, batch);
        return [name, coreRatio(m.geometry(OURO), codec), batch, found.low, found.estimate, found.high];
      }),
    ),
  );
  return {
    id: 'break-even-contexts',
    title: 'Break-even contexts, per path',
    text:
      'The shortest context from which a step takes no longer than the full cache’s at the same batch and context ' +
      '(time alone: the full cache may no longer fit). Below it the codec’s fixed work (encoding, set-up, launches) ' +
      'outweighs what reading less saves. “–”: not up to 1M tokens.',
    columns: [
      { name: 'path', title: 'path', unit: 'text' },
      { name: 'ratio', title: 'ratio', unit: 'ratio' },
      { name: 'batch', title: 'batch', unit: 'count' },
      { name: 'fastEnd', title: 'fast end', unit: 'tokens' },
      { name: 'estimate', title: 'estimate', unit: 'tokens' },
      { name: 'slowEnd', title: 'slow end', unit: 'tokens' },
    ],
    rows,
  };
}

function prefills(m: PaperModel): Beyond {
  const cases: readonly (readonly [string, number, number])[] = [
    [OURO, 4, 32_768],
    [OURO, 4, 65_536],
    [OURO, 64 / 3, 65_536],
    [OURO, 64 / 3, 2 ** 20],
    [OURO_26, 32 / 3, 65_536],
  ];
  const rows = cases.map(([model, ratio, contextTokens]) => {
    const codec = m.codec(model, 'lla', ratio);
    const plans = PREFILL_KINDS.map(
      (kind) => m.plan(model, { codec, path: 'reconstruct' }, { contextTokens, prefill: kind }).prefill,
    );
    const first = PREFILL_KINDS.find((_, i) => plans[i]?.fits);
    const peaks = plans.map((p) => p.peakBytes);
    return [model, codecLabel(m.geometry(model), codec), contextTokens, ...peaks, first ?? null];
  });
  const most: Decoding = { codec: m.codec(OURO, 'lla', 64 / 3), path: 'reconstruct' };
  const million = m.plan(OURO, most, { contextTokens: 2 ** 20 });
  return {
    id: 'prefill-peaks',
    title: 'Prefill peaks',
    text:
      'Working memory while one prompt is prefilled, beside weights, codec and the cache that it fills; from which ' +
      `kind on it fits the card. “1M tokens in ${formatBytes(million.memory.kvBytesPerSequence)}” holds for the ` +
      `finished cache; getting there takes ${formatBytes(million.prefill.peakBytes)} more by accumulation, and a ` +
      'chunked prefill, in which later chunks attend to latents, is no longer the paper’s two-pass result. The ' +
      `model was trained for ${formatTokens(m.geometry(OURO).maxPositions)} positions.`,
    columns: [
      { name: 'model', title: 'model', unit: 'text' },
      { name: 'codec', title: 'codec', unit: 'text' },
      { name: 'contextTokens', title: 'prompt', unit: 'tokens' },
      ...PREFILL_KINDS.map((kind) => ({ name: kind, title: kind, unit: 'bytes' as const })),
      { name: 'fitsFrom', title: 'fits from', unit: 'text' },
    ],
    rows,
  };
}

function sizes(m: PaperModel): Beyond {
  const cases: readonly (readonly [string, CodecKind, number])[] = [
    [OURO, 'lla', 4 / 3],
    [OURO, 'lla', 4],
    [OURO, 'lla', 64 / 3],
    [OURO, 'mla-head', 4],
    [OURO, 'lla-2d', 4],
    [OURO, 'lla-2d', 64 / 3],
    [OURO_26, 'lla', 4],
    [OURO_26, 'lla-2d', 4],
    [HUGINN, 'lla', 16],
    [HUGINN, 'lla-2d', 16],
  ];
  const rows = cases.map(([model, kind, ratio]) => {
    const g = m.geometry(model);
    const codec = m.codec(model, kind, ratio);
    const parameters = codecParameters(g, codec, 'reconstruct', { width: 0, perHead: false });
    const { codecBytes } = m.plan(model, { codec, path: 'reconstruct' }).memory;
    return [model, codecLabel(g, codec), parameters, codecBytes, parameters / parameterCount(g)];
  });
  return {
    id: 'codec-parameters',
    title: 'Codec parameters',
    text:
      'W_down, W_up and μ lie in device memory once for all sequences. The ratio leaves them out. LLA’s are a ' +
      'fraction of the model, LLA-2D’s at small ratios more than the model itself.',
    columns: [
      { name: 'model', title: 'model', unit: 'text' },
      { name: 'codec', title: 'codec', unit: 'text' },
      { name: 'parameters', title: 'parameters', unit: 'count' },
      { name: 'bytes', title: 'memory', unit: 'bytes' },
      { name: 'shareOfModel', title: 'of the model', unit: 'share' },
    ],
    rows,
  };
}

function inFlight(m: PaperModel): Beyond {
  const cases: readonly (readonly [string, number])[] = [
    [OURO, 4],
    [OURO, 64 / 3],
    [OURO_26, 4],
    [HUGINN, 16],
  ];
  const rows = cases.map(([model, ratio]) => {
    const codec = m.codec(model, 'lla', ratio);
    const plan = m.plan(model, { codec, path: 'reconstruct' });
    const each = plan.memory.inFlightBytesPerSequence;
    return [model, codecLabel(m.geometry(model), codec), each, plan.maxBatch.exact, each * plan.maxBatch.exact];
  });
  return {
    id: 'in-flight',
    title: 'In-flight buffers',
    text:
      'A latent is complete only after the last loop. Encoding is linear, so an f32 accumulator of its width, for ' +
      'every layer and head of a sequence’s current token, is enough; the exact K and V of earlier loops need not ' +
      'be kept.',
    columns: [
      { name: 'model', title: 'model', unit: 'text' },
      { name: 'codec', title: 'codec', unit: 'text' },
      { name: 'bytesPerSequence', title: 'a sequence', unit: 'bytes' },
      { name: 'maxBatch', title: 'max batch at 4k', unit: 'count' },
      { name: 'bytesAtMaxBatch', title: 'at that batch', unit: 'bytes' },
    ],
    rows,
  };
}

/** Cells that Table memory leaves "n/a", and what its numbers would be by other paths. */
function missingCells(m: PaperModel): Beyond {
  const four = m.codec(OURO, 'lla', 4);
  const most = m.codec(OURO, 'lla', 64 / 3);
  const batch = m.plan(OURO_26, { codec: most, path: 'reconstruct' }).maxBatch;
  const fused = m.plan(OURO, { codec: most, path: 'reconstruct' }).maxBatch;
  const capacity = m.plan(OURO, { codec: four, path: 'reconstruct', materialised: true });
  const faster = m.plan(OURO, { codec: most, path: 'block-absorbed' });
  const rate = ({ decode }: Plan): string => (decode.tokensPerSecond ? rateText(decode.tokensPerSecond) : '–');
  return {
    id: 'missing-cells',
    title: 'What Table memory leaves open',
    text: `On ${formatDecimalBytes(m.device.choice.vramBytes)}; times as above.`,
    columns: [
      { name: 'quantity', title: 'quantity', unit: 'text' },
      { name: 'model', title: 'model', unit: 'text' },
    ],
    rows: [
      ['max batch at 4k, 2.6B, LLA 21.3×', `${batch.onGrid} (${batch.exact} fit)`],
      ['max batch at 4k, 1.4B, 21.3×, K rebuilt inside the kernel', `${fused.onGrid} (${fused.exact} fit)`],
      ['decode latency, fast path 21.3×, batch 1', timeText(m.step(OURO, { codec: most, path: 'fast' }, 1, 4096))],
      [`peak throughput, capacity path 4× (materialised, ${capacity.maxBatch.exact} sequences)`, rate(capacity)],
      [`the same at 21.3× by block-absorbed attention (${faster.maxBatch.exact} sequences)`, rate(faster)],
      [
        'whole cache of Huginn at 16/32/64/128× of the core',
        [16, 32, 64, 128]
          .map((r) =>
            ratioText(m.plan(HUGINN, { codec: m.codec(HUGINN, 'lla', r), path: 'reconstruct' }).codec.storedRatio),
          )
          .join(', '),
      ],
    ],
  };
}
