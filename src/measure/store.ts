/// <reference lib="dom" />
/** What the page has measured so far, kept by the browser: a closed tab loses one repetition. */
import { calibrationSchema, type Calibration } from '../schema/calibration.js';

const DATABASE = 'lla-sim-measure';
const STORE = 'calibrations';
/** One page has one device. */
const KEY = 'own';

const done = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('the browser keeps nothing'));
  });

async function store(mode: IDBTransactionMode): Promise<IDBObjectStore> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  return (await done(opening)).transaction(STORE, mode).objectStore(STORE);
}

/** The calibration of an earlier visit, or null: none, one of another version, or a browser that keeps nothing. */
export async function kept(): Promise<Calibration | null> {
  try {
    const parsed = calibrationSchema.safeParse(await done((await store('readonly')).get(KEY)));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

/** Keeps a calibration. @returns false where the browser refuses, as in some private windows */
export async function keep(calibration: Calibration): Promise<boolean> {
  try {
    await done((await store('readwrite')).put(calibration, KEY));
    return true;
  } catch {
    return false;
  }
}

/** Removes what is kept. A browser that keeps nothing has nothing to remove. */
export async function forget(): Promise<void> {
  try {
    await done((await store('readwrite')).delete(KEY));
  } catch {
    return;
  }
}
