/** `JSON.parse` silently keeps the last of two equal keys; files from outside with equal keys are refused. */

/**
 * The first key that an object of a JSON text has twice, at any depth.
 * @param text valid JSON
 */
export function repeatedKey(text: string): string | undefined {
  /** Keys seen in each open object; null for an open list. */
  const open: (Set<string> | null)[] = [];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '{') open.push(new Set());
    else if (c === '[') open.push(null);
    else if (c === '}' || c === ']') open.pop();
    else if (c === '"') {
      const start = i;
      for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
      let next = i + 1;
      while (/\s/.test(text[next] ?? '')) next++;
      const keys = open.at(-1);
      if (text[next] !== ':' || !keys) continue;
      const key = JSON.parse(text.slice(start, i + 1)) as string;
      if (keys.has(key)) return key;
      keys.add(key);
    }
  }
  return undefined;
}
