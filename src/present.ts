/** The items of a list that are there: `condition && item` leaves one out where the condition is false. */
export const present = <T>(items: readonly (T | false | null | undefined)[]): T[] =>
  items.filter((item): item is T => item !== false && item !== null && item !== undefined);
