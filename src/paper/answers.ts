/** The model's answers to figures of memory: computed by the planner's own code. Times are in answers-time.ts. */
import { scalarsPerToken } from '../codecs/layout.js';
import { pathSpec } from '../codecs/paths.js';
import { codecParameters, coreRatio, isUncompressed, layoutOf } from '../codecs/registry.js';
import type { Codec } from '../codecs/codec.js';
import { keptTokens } from '../eviction/policy.js';
import { cacheSlots, parameterCount } from '../geometry/geometry.js';
import { GROUP_SIZE } from '../../kernels/spec.js';
import { formatBytes, formatDecimalBytes, formatNumber, formatTokens } from '../numbers/units.js';
import { timeAnswer, type TimeSubject } from './answers-time.js';
import { FULL_DECODING as FULL } from './figures/figure.js';
import type { PaperModel } from './model.js';
import { countText, percent, ratioText } from './text.js';
import type { Answer, Of, Subject } from './types.js';

const F16 = { storage: 'f16', groupSize: GROUP_SIZE } as const;
const NO_BRANCH = { width: 0, perHead: false };

/** An answer without an interval. */
const point = (value: number | null, text: string, reason: string, explain?: Answer['explain']): Answer => ({
  value,
  low: value,
  high: value,
  text,
  reason,
  ...(explain ? { explain } : {}),
});

/** A value that follows from printed settings alone. */
const defined = (value: number | null, text: string, reason: string): Answer => ({
  ...point(value, text, reason),
  byDefinition: true,
});

/** Answers a question, or null where nothing can be predicted. */
export function answer(m: PaperModel, s: Subject): Answer | null {
  switch (s.of) {
    case 'accuracy':
      return null;
    case 'cache-slots': {
      const g = m.geometry(s.model);
      const slots = cacheSlots(g);
      return point(
        slots,
        String(slots),
        `${g.layers} layers × ${g.loops} loops, each with a K and a V cache of its own`,
      );
    }
    case 'ratio': {
      const ratio = coreRatio(m.geometry(s.model), s.codec);
      return defined(ratio, ratioText(ratio), 'ρ = 2·T·d / (r_k + r_v), Eq. ratio, which defines it');
    }
    case 'ranks': {
      const { rankK, rankV } = m.codec(s.model, 'lla', s.ratio);
      const split = m.geometry(s.model).loops >= 16 ? '1:2' : '3:5';
      return defined(null, `${rankK}/${rankV}`, `r_k + r_v = 2·T·d / ρ, with the split of these very rows, ${split}`);
    }
    case 'reached-ratio':
      return reachedRatio(m, s);
    case 'stored-ratio':
      return storedRatio(m, s);
    case 'scalar-ratio': {
      const scalars = (codec: Codec): number =>
        scalarsPerToken(layoutOf(m.geometry(s.model), codec, 'reconstruct', F16, NO_BRANCH));
      const ratio = scalars(s.codec) / scalars(s.over);
      return point(ratio, ratioText(ratio), 'cached scalars of one over those of the other, whole model');
    }
    case 'codec-parameters': {
      const n = codecParameters(m.geometry(s.model), s.codec, 'full', NO_BRANCH);
      return point(n, countText(n), 'it keeps the last loop’s K and V as they are');
    }
    case 'codec-trainable':
      return trainable(m, s);
    case 'kv-per-token': {
      const bytes = m.plan(s.model, latentOrFull(s.codec)).memory.kvBytesPerToken;
      return point(
        bytes,
        `${formatNumber(bytes / 1024)} KiB`,
        'scalars of 2 bytes: 2·T·H_kv·d·D of the full cache, (r_k + r_v)·H_kv·D of latents',
      );
    }
    case 'kv-at-1m': {
      const bytes = m.plan(s.model, latentOrFull(s.codec), { eviction: s.eviction }).memory.kvBytesAt1M;
      return point(bytes, formatBytes(bytes), 'bytes a token × min(2^20, tokens kept)');
    }
    case 'budget':
      return defined(s.eviction.budgetTokens, String(keptTokens(s.eviction, 2 ** 20)), 'sinks and window together');
    case 'evicted-share': {
      const share = (tokens: number): number => 1 - keptTokens(s.eviction, tokens) / tokens;
      const [low, high] = [share(s.fewest), share(s.most)];
      const reason = `of ${s.fewest} to ${s.most} tokens; “~1k” does not say which`;
      return { ...point(low, `${percent(low)} to ${percent(high)}`, reason), high };
    }
    case 'max-batch':
      return maxBatch(m, s);
    case 'batch-gain':
      return batchGain(m, s);
    case 'prefill-fits':
      return prefillFits(m, s);
    default:
      return timeAnswer(m, s satisfies TimeSubject);
  }
}

const latentOrFull = (codec: Codec) => ({
  codec,
  path: isUncompressed(codec) ? ('full' as const) : ('reconstruct' as const),
});

function reachedRatio(m: PaperModel, s: Of<'reached-ratio'>): Answer {
  const codec = m.codec(s.model, s.kind, s.ratio);
  const ratio = coreRatio(m.geometry(s.model), codec);
  const { rankK, rankV } = codec;
  if (rankK === undefined || rankV === undefined) {
    return defined(
      ratio,
      ratioText(ratio),
      codec.shareLayers ? 's adjacent layers share a cache' : `one loop’s K and V of ${m.geometry(s.model).loops}`,
    );
  }
  const split =
    rankK * 5 === rankV * 3
      ? 'whole ranks, split 3:5'
      : `a sum of ${rankK + rankV} has no whole 3:5 split; these are the nearest ranks`;
  return defined(ratio, `${ratioText(ratio)} (${rankK}/${rankV})`, split);
}

/**
 * Bytes of training state for each codec parameter, at least: bf16 weight and gradient, AdamW's two moments in f32. The
 * paper trains in bf16 with AdamW (Section expdetails).
 */
const TRAINING_BYTES_A_PARAMETER = 2 + 2 + 4 + 4;

/**
 * The paper calls a codec infeasible and gives no limit. More parameters than the model is no such limit: its own
 * LLA-2D on 2.6B has them. What separates the two is whether the training state fits the GPU that the paper names.
 */
function trainable(m: PaperModel, s: Of<'codec-trainable'>): Answer {
  const g = m.geometry(s.model);
  const n = codecParameters(g, s.codec, 'reconstruct', NO_BRANCH);
  const bytes = n * TRAINING_BYTES_A_PARAMETER;
  const total = bytes + m.plan(s.model, FULL).memory.weightsBytes;
  const text = `${countText(n)}, ${percent(n / parameterCount(g))} of the model`;
  const reason =
    `the paper states no limit; in AdamW a codec of ${countText(n)} parameters takes ${formatDecimalBytes(bytes)} ` +
    `beside the model or more, a B200 holds ${formatDecimalBytes(B200_BYTES)}`;
  return point(null, text, reason, (_, claimed) =>
    total <= B200_BYTES === (claimed !== 'infeasible') ? reason : null,
  );
}

/** Bytes stored: what a nominal ratio leaves out. */
function storedRatio(m: PaperModel, s: Of<'stored-ratio'>): Answer {
  const g = m.geometry(s.model);
  const stored = m.plan(s.model, s).codec.storedRatio;
  const nominal = coreRatio(g, s.codec);
  const explained =
    (reason: string) =>
    (published: number): string | null =>
      Math.abs(published - nominal) <= 0.006 * nominal ? reason : null;
  if (s.codec.bits) {
    const reason =
      `${s.codec.bits} bits alone are ${ratioText(nominal)}; an f16 scale for each ${GROUP_SIZE} scalars is stored ` +
      'too (our layout: the paper states none)';
    return point(stored, ratioText(stored), reason, explained(reason));
  }
  if (pathSpec(s.path).branch) {
    const perHead = m.configuration(s.model, s, { branch: { width: 64, perHead: true } });
    const own = scalarsPerToken(layoutOf(g, s.codec, s.path, perHead.choice, perHead.branch));
    const all = scalarsPerToken(layoutOf(g, { kind: 'full' }, 'full', perHead.choice, perHead.branch));
    const reason =
      `the rotary branch (64 scalars) is cached too: one that all heads share leaves ${ratioText(stored)}, one a ` +
      `head ${ratioText(all / own)}`;
    return point(stored, ratioText(stored), reason, explained(reason));
  }
  // The ratio holds once the layers around the loop, whose cache no codec of the loop axis touches, are left out.
  const core = { ...g, preludeLayers: 0, codaLayers: 0 };
  const alone =
    (cacheSlots(core) * 2 * core.kvHeads * core.headDim) /
    scalarsPerToken(layoutOf(core, s.codec, s.path, F16, NO_BRANCH));
  const reason =
    `ρ counts the looped core; ${g.preludeLayers} + ${g.codaLayers} layers around it keep ordinary caches ` +
    `(${cacheSlots(g) - cacheSlots(core)} of ${cacheSlots(g)} slots)`;
  return point(stored, ratioText(stored), reason, (published) => (Math.abs(alone - published) < 1e-9 ? reason : null));
}

function maxBatch(m: PaperModel, s: Of<'max-batch'>): Answer {
  const plan = m.plan(s.model, s.decoding, { contextTokens: s.contextTokens });
  const { exact, onGrid } = plan.maxBatch;
  return point(
    onGrid,
    `${onGrid} (${exact} fit)`,
    'capacity tests climb the grid 2^k, 3·2^(k−1); in brackets what the memory that the driver reports holds; LLA ' +
      'by the path of the 108 tok/s, which writes rebuilt K and V to memory',
  );
}

function batchGain(m: PaperModel, s: Of<'batch-gain'>): Answer {
  const full = m.plan(s.model, FULL, { contextTokens: s.contextTokens }).maxBatch;
  const own = m.plan(s.model, s.decoding, { contextTokens: s.contextTokens }).maxBatch;
  const gain = own.exact / full.exact;
  const rho = coreRatio(m.geometry(s.model), s.decoding.codec);
  const fused = m.plan(s.model, { ...s.decoding, materialised: false }, { contextTokens: s.contextTokens }).maxBatch;
  const reason =
    `grid artefact: ${own.onGrid} / ${full.onGrid} are points of the grid; without it ${own.exact} / ${full.exact}, ` +
    `or ${fused.exact} / ${full.exact} where K is rebuilt inside the kernel, near ρ = ${ratioText(rho)}`;
  return point(gain, ratioText(gain), reason, (published) => (own.onGrid / full.onGrid === published ? reason : null));
}

/** Memory of the GPUs on which codecs were trained and long prompts run: a B200 has 183 GB (Section expdetails). */
const B200_BYTES = 183e9;

function prefillFits(m: PaperModel, s: Of<'prefill-fits'>): Answer {
  const { contextTokens, kind: prefill } = s;
  const plan = m.plan(s.model, { codec: s.codec, path: 'reconstruct' }, { contextTokens, prefill });
  const { weightsBytes, codecBytes, kvBytesPerSequence } = plan.memory;
  const beside = weightsBytes + codecBytes + kvBytesPerSequence;
  const total = beside + plan.prefill.peakBytes;
  const detail =
    `${formatDecimalBytes(plan.prefill.peakBytes)} of prefill beside ${formatDecimalBytes(beside)} of weights, ` +
    'codec and one cache';
  const fits = plan.prefill.fits;
  const reason = `${detail}, on ${formatDecimalBytes(m.device.choice.vramBytes)}`;
  const explain = (): string | null => {
    // The second pass of the paper's other decoder keeps full-width K and V as well.
    const wide = m.plan(s.model, FULL, { contextTokens: s.contextTokens }).memory.kvBytesPerSequence;
    if (!fits || total + wide <= B200_BYTES) return null;
    return (
      `as described it takes ${formatDecimalBytes(total)} and fits; a second pass that also keeps full-width K/V ` +
      `(${formatDecimalBytes(wide)} at ${formatTokens(s.contextTokens)}) does not, even on a B200`
    );
  };
  return point(null, fits ? 'fits' : 'does not fit', reason, explain);
}
