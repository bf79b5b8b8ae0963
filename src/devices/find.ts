/** Looking devices up: by name, by the memory that a user states, by what an adapter calls itself. */
import { UserError, show } from '../errors.js';
import { DEVICES, type DeviceSpec } from './catalogue.js';
import { nearestNames } from '../nearest.js';

/** Two figures for the same memory (marketing, driver, a user's rounding) differ by less than this share. */
const VRAM_TOLERANCE = 0.02;

/** Names that an error proposes. */
const MOST_GUESSES = 3;

const PATTERNS = new Map(
  DEVICES.map((d) => [d.id, new RegExp(`(?<![a-z0-9])(?:${d.adapterPattern})(?![a-z0-9])`, 'i')]),
);

/**
 * A name reduced to what distinguishes devices: letters and digits, without the maker and the words it puts before
 * everything.
 */
function plain(name: string): string {
  return name
    .toLowerCase()
    .replace(/\b(nvidia|amd|apple|geforce|instinct|tesla)\b/g, '')
    .replace(/[^a-z0-9]/g, '');
}

/**
 * The device of this id or name (`h200`, `NVIDIA H200 SXM`, `RTX 4090`), in any case and punctuation, or of this
 * adapter description (`NVIDIA A100-SXM4-80GB`).
 * @throws UserError with the nearest ids, and how to list all
 */
export function findDevice(idOrName: string): DeviceSpec {
  const asked = idOrName.trim().slice(0, 200);
  if (asked.includes(','))
    throw new UserError(`one device is planned here, not ${show(idOrName)}`, 'name one; lla-sim plan takes several');
  const wanted = plain(asked);
  // `h200-foo` is a mistyped id: the description of an adapter has capitals or spaces.
  const isId = /^[a-z0-9-]+$/.test(asked);
  const named =
    DEVICES.find((d) => plain(d.id) === wanted || plain(d.name) === wanted) ??
    (isId ? undefined : deviceOfAdapter(asked));
  if (named) return named;
  const guesses = nearestNames(
    wanted,
    DEVICES.map((d) => d.id),
    MOST_GUESSES,
  );
  throw new UserError(
    `unknown device ${show(idOrName)}`,
    `${guesses.length === 0 ? '' : `did you mean ${guesses.join(' or ')}? `}lla-sim models --devices lists all ` +
      `${DEVICES.length}; for another GPU state its memory with --vram`,
  );
}

/**
 * Devices whose marketing or driver memory is within 2 % of `bytes`. Order: smallest difference to the marketing
 * figure, then highest memory bandwidth, then that of the catalogue.
 */
export function devicesByVram(bytes: number): DeviceSpec[] {
  const near = (have: number | null): boolean => have !== null && Math.abs(have - bytes) <= VRAM_TOLERANCE * bytes;
  const gap = (d: DeviceSpec): number => Math.abs(d.vramBytes - bytes);
  return DEVICES.filter((d) => near(d.vramBytes) || near(d.driverBytes)).sort(
    (a, b) => gap(a) - gap(b) || b.memoryBytesPerSecond - a.memoryBytesPerSecond,
  );
}

/**
 * The catalogue's entry for a WebGPU adapter description, or undefined: a part of another edition has other numbers.
 */
export function deviceOfAdapter(description: string): DeviceSpec | undefined {
  return DEVICES.find((d) => PATTERNS.get(d.id)?.test(description.trim()) === true);
}
