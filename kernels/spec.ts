/**
 * The specification of a kernel in the registry, and the bytes of stored rows. All sizes in elements, work in bytes and
 * operations.
 */

import type { OperationOptions } from './options.js';
import type { TunedCall } from './tuned.js';

/** Bytes and operations of one call. `matrixFlops` is the part of `flops` that matrix units can do. */
export interface Work {
  readBytes: number;
  writeBytes: number;
  flops: number;
  matrixFlops: number;
}

/** Sizes of a call by name, those of its kernel's `dims`. */
export type Shape = Readonly<Record<string, number>>;

/** @typeParam D the fields of its shape */
export interface KernelSpec<D extends string = string> {
  /**
   * WGSL files with an entry point (without .wgsl) that calls of the kernel can use, over all shapes and variants; the
   * one of the kernel's name unless given.
   */
  readonly sources?: readonly string[];
  /**
   * Raised where the launch's own constants have changed (workgroup size, tokens a thread, ...): times with the old
   * constants belong to another kernel. test/bench/launches.test.ts fails when it must be raised.
   */
  readonly launchVersion?: number;
  /** Dispatches of a call; 1 unless given. */
  dispatches?(options: OperationOptions): number;
  /** Names of the shape fields, in order. They are also the axes on which the predictor interpolates (in log2). */
  readonly dims: readonly D[];
  readonly variants: readonly string[];
  work(shape: Shape, variant: string): Work;
  /** Operations as this kernel's threads execute them, padding included; those of `work` unless given. */
  executed?(shape: Shape, variant: string): number;
  /**
   * Non-negative physical terms; predicted time is a non-negative combination of them times a smooth residual.
   * The first is always 1 (launch).
   */
  terms(shape: Shape, variant: string): number[];
  /** What a tuned kernel would do for the same call; null where one before or after it does it on the way. */
  tuned(shape: Shape, variant: string): TunedCall | null;
}

/** Element types of the cache, with the bits of one scalar; group scales are counted by the layout. */
export const STORAGE_BITS = { f32: 32, f16: 16, f8: 8, q8: 8, q4: 4, q3: 3, q2: 2 } as const;
/** `f8`: 8-bit floats, which servers store and kernels of this project do not. */
export type Storage = keyof typeof STORAGE_BITS;
/** Element types that kernels of this project read and write. */
export type OwnStorage = Exclude<Storage, 'f8'>;
export const STORAGES = (Object.keys(STORAGE_BITS) as Storage[]).filter((s): boolean => s !== 'f8');
/** Tokens of a tile of cached rows: 32, so that any bit width fills whole 32-bit words without padding. */
export const TILE_TOKENS = 32;

/** Scalars that share one f16 scale in a quantised cache row, unless a plan says otherwise. */
export const GROUP_SIZE = 64;

/** True for storages whose rows carry group scales. */
export const isQuantised = (storage: Storage): boolean => storage.startsWith('q');

/** The `groupSize` of a shape: 0 for storages without scales, so that it is not an axis there. */
export const groupOf = (storage: Storage, groupSize: number): number => (isQuantised(storage) ? groupSize : 0);

/**
 * Bytes that `width` scalars of one token and row take in the cache, with their group scales (f16).
 * @param groupSize scalars of a scale; not read for storages without scales
 */
export function storedBytes(storage: Storage, width: number, groupSize: number = GROUP_SIZE): number {
  const scales = isQuantised(storage) ? Math.ceil(width / groupSize) * 2 : 0;
  return (width * STORAGE_BITS[storage]) / 8 + scales;
}

/** The storage that a variant names: `q4` of `q4+scores`. */
export function storageOfVariant(variant: string): Storage {
  const end = variant.indexOf('+');
  return (end < 0 ? variant : variant.slice(0, end)) as Storage;
}

/** Bytes that `width` scalars of one row take in the storage of a variant and the `groupSize` of a shape. */
export const storedIn = (s: Shape, variant: string, width: number): number =>
  storedBytes(storageOfVariant(variant), width, field(s, 'groupSize'));

/** Operations that turn one stored n-bit scalar into f32: extract, convert, scale, at two an instruction. */
export const UNPACK_FLOPS = 6;

/** Terms of a call: its launch, and these parts of its work. */
export const launchAnd = (work: Work, ...parts: readonly (keyof Work)[]): number[] => [
  1,
  ...parts.map((part) => work[part]),
];

export const field = (s: Shape, name: string): number => {
  const value = s[name];
  if (value === undefined) throw new Error(`kernel shape lacks ${name}`);
  return value;
};

export const padded = (n: number, tile: number): number => Math.ceil(n / tile) * tile;

/** Scalars of a stored weight row: pairs of halves fill words, so an odd row is padded by one. */
export const evenRow = (n: number): number => padded(n, 2);
