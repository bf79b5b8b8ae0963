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

const namedDevice = (name: string): DeviceSpec | undefined => {
  const wanted = plain(name);
  return DEVICES.find((d) => plain(d.id) === wanted || plain(d.name) === wanted);
};

/** Part of a GPU: MIG slices (`1g.10gb`), vGPU profiles (`A100-10C`), fractions (`h200/2`, `h100:0.5`, half). */
const PART = /\bmig\b|\bvgpu\b|\bgrid\b|\bhalf\b|\b\d+g\.\d+gb\b|-\d+[abcq]$|[/:]\s*[\d.]+$/i;
/** Memory in a name, such as `64gb`. */
const MEMORY = /(?<![\d.])(\d{2,4})\s?gi?b\b/i;

/** @throws UserError where a description is of a part of a GPU, or of a card with other memory */
function checkWhole(asked: string, { id, vramBytes }: DeviceSpec): void {
  if (PART.test(asked))
    throw new UserError(
      `${show(asked)} is a part of a GPU, whose rates are not known, so it is not planned`,
      `--device ${id} plans the whole GPU; --vram beside it sets the part's memory, at the rates of the whole`,
    );
  const memory = Number(MEMORY.exec(asked)?.[1] ?? NaN) * 1e9;
  // GB and GiB are 7 % apart.
  if (Math.abs(memory / vramBytes - 1) > 0.1)
    throw new UserError(
      `${show(asked)} is not in the catalogue: ${id} has ${Math.round(vramBytes / 1e9)} GB`,
      `--device ${id} --vram ${Math.round(memory / 1e9)}GB plans that memory, at the rates of ${id}`,
    );
}

/**
 * The device of this id or name (`h200`, `NVIDIA H200 SXM`, `RTX 4090`), in any case and punctuation, or of this
 * adapter description (`NVIDIA A100-SXM4-80GB`).
 * @throws UserError with the nearest ids, and how to list all; for a part of a GPU
 */
export function findDevice(idOrName: string): DeviceSpec {
  const asked = idOrName.trim().slice(0, 200);
  const several = asked.split(/[/+&]/).filter((part) => namedDevice(part));
  if (asked.includes(',') || several.length > 1)
    throw new UserError(`one device is planned here, not ${show(idOrName)}`, 'name one; lla-sim plan takes several');
  // `h200-foo` is a mistyped id: the description of an adapter has capitals or spaces.
  const isId = /^[a-z0-9-]+$/.test(asked);
  const named = namedDevice(asked);
  if (named) return named;
  const described = isId ? undefined : deviceOfAdapter(asked);
  if (described) {
    checkWhole(asked, described);
    return described;
  }
  const guesses = nearestNames(
    plain(asked),
    DEVICES.map((d) => d.id),
    MOST_GUESSES,
  );
  throw new UserError(
    `unknown device ${show(idOrName)}`,
    `${guesses.length === 0 ? '' : `did you mean ${guesses.join(' or ')}? `}lla-sim models --devices lists all ` +
      `${DEVICES.length}; --vram alone plans the GPU nearest in memory`,
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
