/** What a reader has to know of a question beside its rows: the GPUs, the model, and settings that change nothing. */
import { isLatent, latentHeads, layoutOf } from '../../codecs/registry.js';
import { pathSpec } from '../../codecs/paths.js';
import { SERVER_GPUS } from '../../devices/catalogue.js';
import { linkRate, type Link } from '../../cost/exchange.js';
import { isEstimate, type Price } from '../../cost/evidence.js';
import type { Pricer } from '../../cost/latency.js';
import { evictionLabel } from '../../eviction/policy.js';
import { windowScalars, type Geometry } from '../../geometry/geometry.js';
import { presetOfShape } from '../../geometry/presets.js';
import { formatBytes } from '../../numbers/units.js';
import { present } from '../../present.js';
import { flagOf, type Scenario, type SettingName } from '../../schema/settings.js';
import { measuresUndivided } from '../../stacks/gpu-pricer.js';
import { storedNote, type Float8 } from '../../stacks/fewer-bits.js';
import { hasModel, listedAs, servedBy, versionsWords } from '../../stacks/serving.js';
import { listed } from '../words/words.js';
import type { Candidate } from '../types.js';
import type { ModelSource, Sources } from './prepare.js';
import type { Host } from './server.js';
import { bringsRequests, type Question } from './settings.js';

/** Times those of 16 bits from which a note tells of slow products in 8 bits. */
const SLOWER_IN_8_BITS = 1.2;

/** Says where products of one row take longer in 8-bit floats than in 16 bits, as in some servers' tables. */
export function slowProductsNote(pricer: Pricer | null, { quantised, hidden, mlpHidden }: Geometry): string[] {
  if (!pricer || quantised?.float8 !== true || quantised.blocks) return [];
  const priced = (variant: 'f8' | 'f16', m: number): Price =>
    pricer.price({ kernel: 'matmul', variant, shape: { groups: 1, m, k: hidden, n: mlpHidden } });
  const [narrow, wide, ofTwo] = [priced('f8', 1), priced('f16', 1), priced('f8', 2)];
  const times = narrow.estimate / wide.estimate;
  const alone = narrow.estimate / ofTwo.estimate;
  const thanTwo = alone > 1 ? `, and ${alone.toFixed(1)} times as long as for two sequences` : '';
  return times < SLOWER_IN_8_BITS || isEstimate(narrow.evidence) || isEstimate(wide.evidence)
    ? []
    : [
        'measured on this GPU: for one sequence this server’s products in 8-bit floats take ' +
          `${times.toFixed(1)} times as long as in 16 bits${thanTwo}; with few users weights in 16 bits may be faster`,
      ];
}

/** Notes on a question whose settings and candidates are known, in the order in which they are printed. */
export function notesOf(
  scenario: Scenario,
  { spec, model: { geometry, publishedAs }, gpu, fidelity }: Sources,
  question: Question,
  candidates: readonly Candidate[],
): string[] {
  const { contextTokens, gpus, maxModelLen = Infinity } = question;
  const alike = publishedAs === null && !fidelity ? presetOfShape(geometry) : undefined;
  return present([
    scenario.ttft !== undefined &&
      bringsRequests(scenario) &&
      `--ttft ${String(scenario.ttft)} is judged by simulating the workload: it removes no plan`,
    scenario.context !== undefined &&
      maxModelLen < contextTokens &&
      `a server with --max-model-len ${maxModelLen} refuses the sequences of ${contextTokens} tokens of this plan: ` +
        'write a longer limit, or a shorter --ctx',
    gpus > 1 && oneGpuNote(geometry, candidates, gpus),
    spec?.interconnect && linkNote(spec.name, spec.interconnect, gpus),
    ...modelNotes(geometry, gpu?.float8 ?? null),
    gpu?.laws.undivided &&
      !measuresUndivided(gpu) &&
      geometry.heads === geometry.kvHeads &&
      'vLLM’s attention does not divide a sequence over this GPU (FlashAttention 2): full caches of few sequences ' +
        'are slow in 16 bits; those in 8 have another kernel',
    alike !== undefined &&
      `${geometry.name} has the shape of ${alike}: if it is that checkpoint, --model ${alike} has its published scores`,
    geometry.preludeLayers + geometry.codaLayers > 0 &&
      'ratios are those of the looped core; prelude and coda layers keep their cache, so the whole cache shrinks ' +
        'by less (modelRatio in the JSON)',
    contextTokens > geometry.maxPositions &&
      `${contextTokens} tokens exceed the ${geometry.maxPositions} positions that ${geometry.name} was ` +
        'trained for: memory and time hold, quality does not',
    ...idleSettings(scenario, geometry, question, candidates),
  ]);
}

/** How exchanges between GPUs are priced, where it is not by a link that joins all; null where it is. */
function linkNote(name: string, link: Link, gpus: number): string | null {
  const { mostGpus, beyondBytesPerSecond, bytesPerSecondPerDirection: full } = link;
  const rate = linkRate(link, gpus);
  if (mostGpus !== null && gpus > mostGpus)
    return (
      `at most ${mostGpus} ${name} are joined directly: exchanges between ${gpus} are priced ` +
      `at ${(beyondBytesPerSecond ?? 0) / 1e9} GB/s of ${mostGpus > SERVER_GPUS ? 'network' : 'PCI Express'}`
    );
  if (mostGpus === null && gpus > SERVER_GPUS)
    return (
      `a server has ${SERVER_GPUS} GPUs as a rule: exchanges between ${gpus} are priced as if one link ` +
      'joined them all, and take longer over a network'
    );
  return rate !== null && gpus > 1 && rate < full
    ? `each two ${name} have a link of their own: exchanges between ${gpus} are priced at ` +
        `${rate / 1e9} of ${full / 1e9} GB/s, and prompts may take longer than on one`
    : null;
}

/** Settings that were given and change no row. */
function idleSettings(
  scenario: Scenario,
  geometry: Geometry,
  { choice, branch, targets, contextTokens }: Question,
  candidates: readonly Candidate[],
): string[] {
  const idle = (name: SettingName, used: boolean, because: string): string[] =>
    scenario[name] === undefined || used ? [] : [`--${flagOf(name)} changes nothing: ${because}`];
  const quantised = candidates.some(({ codec, path }) =>
    layoutOf(geometry, codec, path, choice, branch).some(({ storage }) => storage.startsWith('q')),
  );
  const isAsked = scenario.eviction !== undefined || scenario.budget !== undefined;
  const keepsAll = new Set(
    (isAsked ? candidates : []).flatMap(({ eviction: e }) =>
      e && e.budgetTokens >= contextTokens ? [evictionLabel(e)] : [],
    ),
  );
  const branches = candidates.some(({ path }) => pathSpec(path).branch);
  const absorbed = 'no row is on the absorbed path, which alone has a rotary branch';
  return [
    ...[...keepsAll].map(
      (label) => `${label} keeps as many tokens as --ctx has or more: nothing is evicted, so leave it out`,
    ),
    ...idle('groupSize', quantised, 'no row has a quantised cache'),
    ...idle('ropeDim', branches, absorbed),
    ...idle('ropeBranch', branches, absorbed),
    ...idle(
      'confidence',
      targets.secondsPerToken !== null || targets.secondsToFirstToken !== null,
      scenario.ttft !== undefined && bringsRequests(scenario)
        ? 'a simulation judges --ttft, by --percentile'
        : 'it is the probability with which --tpot and --ttft are met, and neither is given',
    ),
  ];
}

/** Whose memory is told, and what more GPUs do not divide. */
function oneGpuNote({ kvHeads }: Geometry, candidates: readonly Candidate[], gpus: number): string {
  const whole = new Set(
    candidates.flatMap(({ codec: c }) => (isLatent(c) && latentHeads(c, kvHeads) === 1 ? [c.kind] : [])),
  );
  return present([
    `memory, KV/token and KV at 1M are those of one of the ${gpus} GPUs`,
    kvHeads < gpus &&
      (kvHeads === 1
        ? `the one KV head is on each of them, so that together they hold the cache ${gpus} times`
        : `each of the ${kvHeads} KV heads is on ${gpus / kvHeads} of them`),
    kvHeads > 1 && whole.size > 0 && `each holds the latents of ${listed([...whole])} whole, as all heads read them`,
  ]).join('; ');
}

/** What a reader has to know of a model whose cache or weights are not the usual ones. */
const modelNotes = (g: Geometry, float8: Float8 | null): string[] =>
  present([
    g.laterLoopsWindow !== undefined &&
      `loops of ${g.name} after the first attend to the rows of the first and keep their own for ` +
        `${g.laterLoopsWindow} tokens: ${formatBytes(2 * windowScalars(g))} a sequence in 16 bits, beside KV/token`,
    g.promptsBothWays &&
      `${g.name} reads prompts in both directions: servers read each in one piece, and its attention costs twice ` +
        'that of a causal prompt',
    g.valuesAreKeys &&
      `${g.name} caches keys alone, as transformers does; vLLM keeps a copy of them as values, twice the bytes`,
    g.quantised &&
      `weights of layers are stored in ${g.quantised.name}: memory counts that, times are those of products with ` +
        storedNote(g.quantised, float8),
  ]);

/** Says so where a version of a server does not have the model; null where it has it, or nobody knows. */
export function refusesModel({ stack, version, name }: Host, model: ModelSource): string | null {
  const served = servedBy(listedAs(model), stack);
  return served === null || hasModel(served, version)
    ? null
    : `${name} does not run ${model.geometry.name} (${versionsWords(stack, served)} does); times assume that it does`;
}
