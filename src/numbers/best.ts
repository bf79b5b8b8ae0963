/** The item with the largest `worth`, the first of equals; undefined for none. */
export function best<T>(items: readonly T[], worth: (item: T) => number): T | undefined {
  let found: T | undefined;
  let most = -Infinity;
  for (const item of items) {
    const own = worth(item);
    if (own > most) [found, most] = [item, own];
  }
  return found;
}
