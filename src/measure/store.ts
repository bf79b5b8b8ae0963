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
  const found = await store('readonly')
    .then((own) => done<unknown>(own.get(KEY)))
    .catch(() => null);
  return calibrationSchema.safeParse(found).data ?? null;
}

/** Keeps a calibration. @returns false where the browser refuses, as in some private windows */
export const keep = (calibration: Calibration): Promise<boolean> =>
  store('readwrite')
    .then((own) => done(own.put(calibration, KEY)))
    .then(
      () => true,
      () => false,
    );

/** Removes what is kept. A browser that keeps nothing has nothing to remove. */
export const forget = (): Promise<void> =>
  store('readwrite')
    .then((own) => done(own.delete(KEY)))
    .catch(() => undefined);
