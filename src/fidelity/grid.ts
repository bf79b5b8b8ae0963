/** The configurations that are judged. */
import type { Branch, Codec, CodecKind, PathChoice } from '../codecs/codec.js';
import { withConstants } from '../codecs/flashloop-constants.js';
import { pathOf, pathSpec } from '../codecs/paths.js';
import { CODECS, codecLabel, inEverySharing, refusalOf, sharedAs } from '../codecs/registry.js';
import { genericRatios, ranksText } from '../codecs/ranks.js';
import type { Initialisation } from '../decoder/index.js';
import { evictionLabel, ringHasGaps, parseEviction, type Eviction } from '../eviction/policy.js';
import { parameterCount, type Geometry } from '../geometry/geometry.js';
import type { Storage } from '../../kernels/spec.js';
import { present } from '../present.js';

export interface Row {
  readonly codec: Codec;
  readonly path: PathChoice;
  readonly storage: Storage;
  readonly eviction: Eviction | null;
  readonly initialisation: Initialisation;
  /** Rotary branch of the absorbed path, where it is not the usual one. */
  readonly branch?: Branch;
}

/**
 * `lla-4x/reconstruct/f16`, with eviction, initialisation and branch where they are not the plain ones. Unique in a
 * grid.
 */
export function rowId(g: Geometry, { codec, path, storage, eviction, initialisation, branch }: Row): string {
  const ranks = codec.rankK === undefined ? '' : `(${ranksText(codec, ',')})`;
  return [
    `${codecLabel(g, codec)}${ranks}`,
    path,
    storage,
    ...(eviction ? [evictionLabel(eviction)] : []),
    ...(initialisation === 'svd' ? [] : [initialisation]),
    ...(branch ? [`rope-${branch.width}`] : []),
  ].join('/');
}

export const plain = { storage: 'f16', eviction: null, initialisation: 'svd' } as const;
/** Tokens that eviction keeps: below the contexts of the items. */
const EVICTIONS = ['streaming:4+60', 'h2o:32+32'].map((text) => parseEviction(text, 'eviction') as Eviction);
const LLA_PATHS = ['reconstruct', 'block-absorbed', 'absorbed'] as const satisfies readonly PathChoice[];

/** Codecs of a kind at ratios; those that the geometry does not have are left out. */
export function codecsAt(g: Geometry, kind: CodecKind, ratios: readonly number[]): Codec[] {
  const found = ratios.flatMap((ratio) => {
    const codec = CODECS[kind].fromRatio(g, ratio);
    return typeof codec === 'string' || refusalOf(g, codec) !== undefined ? [] : [codec];
  });
  return [...new Map(found.map((codec) => [JSON.stringify(codec), codec])).values()];
}

/** Codecs that store differences along loops, in their published forms. */
const differences = (g: Geometry): Codec[] =>
  codecsAt(g, 'residual-quant', CODECS['residual-quant'].publishedRatios(g));

/** Models up to this size are run in float64: for the error of attention, and for codecs without kernels. */
export const REFERENCE_PARAMETERS = 5e6;

/** FlashLoop of a prompt, as published, and with groups and a tail that are shorter than the items; of small models. */
const packedLoops = (g: Geometry): Codec[] =>
  (parameterCount(g) > REFERENCE_PARAMETERS
    ? []
    : codecsAt(g, 'flashloop', CODECS.flashloop.publishedRatios(g).slice(0, 1))
  ).flatMap((codec) => {
    const constants = withConstants({ group: SHORT, tail: SHORT });
    return typeof constants === 'object' ? [codec, { ...codec, constants }] : [codec];
  });

/** The path that changes nothing but what is stored: full RoPE. */
export const pathFor = ({ kind }: Codec): PathChoice =>
  CODECS[kind].paths.find((path) => pathSpec(path).materialises) ?? (CODECS[kind].paths[0] as PathChoice);

const plainRow = (codec: Codec): Row => ({ codec, path: pathFor(codec), ...plain });

/** Tokens of a window that is shorter than the items. */
const SHORT = 16;

/** At most 40 configurations: each question of the paper at few ratios. */
export function defaultGrid(g: Geometry): Row[] {
  // The ratio at which codecs, storages and evictions are compared: T.
  const common = Math.max(2, g.loops);
  const [lla] = codecsAt(g, 'lla', [common]);
  const others = (['lla-2d', 'mla-head', 'kv-quant'] as const).flatMap((kind) =>
    codecsAt(g, kind, [common, (4 / 3) * common]),
  );
  // Latents alone, and beside a window shorter than the items; at the paper's ratio, too.
  const windowed = [
    ...codecsAt(g, 'hla', [common]).flatMap((codec) => [0, SHORT].map((windowTokens) => ({ ...codec, windowTokens }))),
    ...[...codecsAt(g, 'hla', [(8 / 3) * common]), ...codecsAt(g, 'lla-window', [common])].map((codec) => ({
      ...codec,
      windowTokens: SHORT,
    })),
  ];
  const shared = (['final-loop', 'mean-loop'] as const).flatMap((kind) => codecsAt(g, kind, [g.loops]));
  const single = [
    ...codecsAt(g, 'cla', [2]),
    ...shared.filter(({ kind }) => kind === 'final-loop'),
    ...shared.map((codec) => sharedAs(codec, 'decode')),
    ...differences(g),
    ...packedLoops(g),
  ];
  const full: Codec = { kind: 'full' };
  const rows: Row[] = [
    { codec: full, path: 'full', ...plain },
    { codec: full, path: 'full', ...plain, storage: 'q8' },
    ...codecsAt(g, 'lla', genericRatios(g)).flatMap((codec) => LLA_PATHS.map((path) => ({ codec, path, ...plain }))),
    ...[...others, ...windowed, ...single].map(plainRow),
    ...(lla
      ? (['q8', 'q4'] as const).map((storage) => ({ codec: lla, path: 'reconstruct' as const, ...plain, storage }))
      : []),
    ...EVICTIONS.flatMap((eviction) => present([full, lla]).map((codec) => ({ ...plainRow(codec), eviction }))),
  ];
  return rows.filter(isPossible);
}

/** Every codec, ratio, path, storage and eviction. */
export function fullGrid(g: Geometry): Row[] {
  const kinds = ['full', 'lla', 'lla-2d', 'mla-head', 'cla', 'kv-quant', 'final-loop', 'mean-loop', 'hla'] as const;
  const codecs = kinds
    .flatMap((kind) => codecsAt(g, kind, kind === 'full' ? [1] : [...genericRatios(g), 2, 4]))
    .concat(differences(g), packedLoops(g))
    .flatMap(inEverySharing);
  return codecs
    .flatMap((codec) =>
      CODECS[codec.kind].paths.flatMap((path) =>
        (CODECS[codec.kind].storage ? (['f16'] as const) : (['f16', 'q8', 'q4'] as const)).flatMap((storage) =>
          [null, ...EVICTIONS].map((eviction) => ({ codec, path: path as PathChoice, ...plain, storage, eviction })),
        ),
      ),
    )
    .filter(isPossible);
}

/** One codec on its paths, in f16 and int8, with and without eviction, with other exact windows, where it has these. */
export function gridOf(codec: Codec): Row[] {
  const windows = CODECS[codec.kind].settings.includes('windowTokens') ? [0, SHORT] : [];
  const rows: Row[] = [
    { codec: { kind: 'full' }, path: 'full', ...plain },
    ...CODECS[codec.kind].paths
      .filter((path) => path !== 'fast')
      .map((path) => ({ codec, path: path as PathChoice, ...plain })),
    ...(CODECS[codec.kind].storage ? [] : [{ ...plainRow(codec), storage: 'q8' as const }]),
    ...EVICTIONS.map((eviction) => ({ ...plainRow(codec), eviction })),
    ...windows.map((windowTokens) => plainRow({ ...codec, windowTokens })),
  ];
  return rows.filter(isPossible);
}

function isPossible({ codec, path, eviction }: Row): boolean {
  if (eviction && CODECS[codec.kind].refusesEviction !== undefined) return false;
  return !(pathOf(path).path === 'block-absorbed' && ringHasGaps(eviction));
}
