/** The items of a list that are there: `condition && item` leaves one out where the condition is false. */
export const present = <T>(items: readonly (T | false | null | undefined)[]): T[] =>
  items.filter((item): item is T => item !== false && item !== null && item !== undefined);

/** The fields of an object that are there: those that are undefined are left out. */
export const defined = <T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
