/** How attention reads a codec's cache: what each path does, and the names by which users choose one. */
import type { Path, PathChoice } from './codec.js';

/** Everything that the rest of the program must know of a path. */
export interface PathSpec {
  /** Attention reads latents, or K and V rebuilt from them; else rows of full width. */
  readonly latents?: true;
  /** Latents are reconstructed once, when the cache is written: it holds rows of full width, and no memory is saved. */
  readonly restores?: true;
  /** Content is scored on latents, without positions: a rotary branch beside it is cached and scored. */
  readonly branch?: true;
  /** Rotations are expanded for blocks of consecutive positions. */
  readonly blocks?: true;
  /** Latents carry their rotation: queries are brought to them, rotated, and scored on them. */
  readonly rotated?: true;
  /** K and V may also be rebuilt in memory before attention reads them: the choice `materialised`. */
  readonly materialises?: true;
  /** In a narrow column. */
  readonly short: string;
}

export const PATH_SPECS = {
  full: { short: 'full' },
  fast: { restores: true, short: 'fast' },
  reconstruct: { latents: true, materialises: true, short: 'reconstr' },
  absorbed: { latents: true, branch: true, short: 'absorbed' },
  'block-absorbed': { latents: true, blocks: true, short: 'block-abs' },
  rotated: { latents: true, rotated: true, short: 'rotated' },
} satisfies Record<Path, PathSpec>;

export const pathSpec = (path: Path): PathSpec => PATH_SPECS[path];

const MATERIALISED = { path: 'reconstruct', materialised: true } as const;

/** The choice in a narrow column. */
export const shortName = (choice: PathChoice): string =>
  choice === 'materialised' ? 'material' : pathSpec(choice).short;

/** What a user's choice means. */
export const pathOf = (choice: PathChoice): { readonly path: Path; readonly materialised: boolean } =>
  choice === 'materialised' ? MATERIALISED : { path: choice, materialised: false };

/** The name by which a user chooses a path. */
export const choiceOf = (path: Path, materialised: boolean): PathChoice => (materialised ? 'materialised' : path);
