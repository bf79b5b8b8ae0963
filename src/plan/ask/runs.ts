/** Several questions in one: lists of devices, contexts and cache types become one scenario each. */
import { findDevice } from '../../devices/find.js';
import { UserError, show } from '../../errors.js';
import { flagOf, type Scenario } from '../../schema/settings.js';
import { parseNumber, parseTokens } from '../../numbers/units.js';

/** More runs than this answer nothing that a person reads. */
const MOST_RUNS = 64;

/**
 * One scenario for each combination of the devices, contexts and cache types that are named, with the price of its
 * device.
 * @throws UserError for an unknown device, an empty name, and prices that name no planned device
 */
export function runsOf(s: Scenario): Scenario[] {
  const named = listOf(s.device, '--device')?.map((name) => findDevice(name).id) ?? null;
  const devices = named && [...new Set(named)];
  const ofOne = (['vram', 'calibration', 'measuredStep'] as const).find((name) => s[name] !== undefined);
  if (devices && devices.length > 1 && ofOne !== undefined)
    throw new UserError(
      `--${flagOf(ofOne)} belongs to one device, not to ${devices.join(', ')}`,
      'leave it out, or name one device',
    );
  refuseThousands(s.context);
  const contexts = listOf(s.context, '--ctx', (word) => parseTokens(word, '--ctx'));
  const cacheTypes = listOf(s.cacheType, '--cache-type');
  const { usdPerHour: _price, ...rest } = s;
  const price = pricesOf(s.usdPerHour, devices);
  const one = <T>(list: readonly T[] | null): readonly (T | undefined)[] => list ?? [undefined];
  const runs = one(devices).flatMap((device) =>
    one(contexts).flatMap((context) =>
      one(cacheTypes).map((cacheType): Scenario => ({
        ...rest,
        // A single name stays as it was written: its errors then show it.
        ...(isList(s.device) ? { device: device as string } : {}),
        ...(isList(s.context) ? { context: context as string } : {}),
        ...(isList(s.cacheType) ? { cacheType: cacheType as string } : {}),
        ...price(device),
      })),
    ),
  );
  if (runs.length > MOST_RUNS)
    throw new UserError(
      `${runs.length} combinations of device, context and cache type are asked for`,
      `at most ${MOST_RUNS} are planned at once`,
    );
  return runs;
}

/** Contexts of a list that are meant are multiples of this, as a rule. */
const ROUND_TOKENS = 128;

/** @throws UserError for `32,768`, which is rather a number with its thousands apart than two contexts */
function refuseThousands(context: Scenario['context']): void {
  const text = String(context ?? '');
  if (!/^\d{1,3}(,\d{3})+$/.test(text)) return;
  const [first, ...rest] = text.split(',') as [string, ...string[]];
  if (Number(first) % ROUND_TOKENS !== 0 || rest.some((group) => group.startsWith('0')))
    throw new UserError(
      `--ctx ${text} may be ${text.replaceAll(',', '')} tokens, or ${rest.length + 1} contexts`,
      `write ${text.replaceAll(',', '')}, or with spaces '${text.replaceAll(',', ', ')}'`,
    );
}

const isList = (value: string | number | undefined): boolean => String(value ?? '').includes(',');

/** The names of a list, each once; null where nothing is given. @param meaning by which two names are one */
function listOf(
  value: string | number | undefined,
  flag: string,
  meaning: (word: string) => string | number = (word) => word,
): string[] | null {
  if (value === undefined) return null;
  const words = String(value)
    .split(',')
    .map((w) => w.trim());
  if (words.some((w) => w === ''))
    throw new UserError(`${flag} ${show(String(value))} has an empty name`, 'separate names by single commas');
  return [...new Map(words.toReversed().map((word) => [meaning(word), word])).values()].toReversed();
}

/** `3.5` for every device, or `h100=2.5,h200=3.6`. */
function pricesOf(
  value: string | number | undefined,
  devices: readonly string[] | null,
): (device: string | undefined) => Pick<Scenario, 'usdPerHour'> {
  if (value === undefined) return () => ({});
  const text = String(value).trim();
  if (!text.includes('=')) {
    const plain = /^[^\d.]{1,4}([\d.]+)$/.exec(text)?.[1];
    if (text.includes(',') || plain !== undefined)
      throw new UserError(
        `--usd-per-hour must be a price or DEVICE=PRICE pairs, not ${show(text)}`,
        plain === undefined ? 'write for example --usd-per-hour h100=2.5,h200=3.6' : `write ${plain}, in dollars`,
      );
    return () => ({ usdPerHour: value });
  }
  const prices = new Map<string, number>();
  for (const pair of text.split(',')) {
    const [name = '', amount = '', ...rest] = pair.split('=');
    if (rest.length > 0 || name.trim() === '')
      throw new UserError(
        `--usd-per-hour must be a price or DEVICE=PRICE pairs, not ${show(pair)}`,
        'write for example --usd-per-hour h100=2.5,h200=3.6',
      );
    const { id } = findDevice(name);
    if (!devices?.includes(id))
      throw new UserError(
        `--usd-per-hour names ${show(name.trim())}, which is not planned`,
        'name it with --device, too',
      );
    if (prices.has(id)) throw new UserError(`--usd-per-hour names ${id} twice`, 'give one price a device');
    prices.set(id, parseNumber(amount, `--usd-per-hour ${name.trim()}`, { min: 0.0001, max: 1e6 }));
  }
  return (device) => {
    const usdPerHour = device === undefined ? undefined : prices.get(device);
    return usdPerHour === undefined ? {} : { usdPerHour };
  };
}
