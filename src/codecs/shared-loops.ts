/** Codecs whose loops read one set of rows: the last loop's, or the mean over all loops. No parameters. */
import { SHARINGS, type Codec, type CodecKind, type CodecSpec, type Sharing } from './codec.js';
import { fullTensors, sharedByLoops } from './layout.js';

const sharingOf = ({ shared }: Codec, choices: readonly Sharing[]): Sharing => shared ?? (choices[0] as Sharing);

/** What both have in common. @param choices the one that is meant where none is given first */
function sharedLoops(kind: CodecKind, choices: readonly Sharing[]): Omit<CodecSpec, 'title'> {
  return {
    paths: ['full'],
    settings: ['shared'],
    untrained: true,
    sharings: choices,
    closes: 'last-loop',
    ratio: (g) => g.loops,
    label: (codec) => (sharingOf(codec, choices) === 'two-pass' ? kind : `${kind}-${sharingOf(codec, choices)}`),
    loopAxis: false,
    publishedRatios: (g) => (g.loops > 1 ? [g.loops] : []),
    fromRatio: (g, ratio) => (ratio === g.loops && g.loops > 1 ? { kind } : `${kind} has ratio T = ${g.loops}`),
    refuse: (g, codec) => {
      if (g.loops < 2) return `${kind} needs a model with at least two loops`;
      return choices.includes(sharingOf(codec, choices))
        ? undefined
        : `${kind} is shared ${choices.join(' or ')}, not ${codec.shared}`;
    },
    core: (g, core, _codec, choice) =>
      fullTensors(sharedByLoops(core), g.kvHeads, g.headDim, choice.storage, choice.groupSize),
    parameters: () => 0,
  };
}

/** final-loop: the last loop's K and V serve all loops. */
export const finalLoop: CodecSpec = { ...sharedLoops('final-loop', SHARINGS), title: 'final-loop reuse' };

/** mean-loop: the means of all loops' K (rotated) and V serve all loops (Ouro, Table 14, "Averaged"). */
export const meanLoop: CodecSpec = {
  ...sharedLoops('mean-loop', ['decode', 'all']),
  title: 'means over the loops',
  averages: true,
  onlyAsked: true,
};
