/** Where two lines over a logarithmic axis cross. */

interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Line {
  readonly label: string;
  readonly points: readonly Point[];
}

export interface Crossing {
  readonly x: number;
  readonly y: number;
  /** The line that is lower from here on. */
  readonly lower: string;
  readonly upper: string;
}

/** Crossings of two lines that share their x values, found between neighbours by straight lines in log-log. */
export function crossingsOf(a: Line, b: Line): Crossing[] {
  const found: Crossing[] = [];
  const other = new Map(b.points.map((p) => [p.x, p.y]));
  const shared = a.points
    .filter((p) => other.has(p.x))
    .map((p) => ({ x: p.x, a: Math.log(p.y), gap: Math.log(p.y / (other.get(p.x) as number)) }));
  // Lines that touch without crossing, or that coincide, do not cross.
  let before: (typeof shared)[number] | undefined;
  for (const at of shared) {
    if (at.gap === 0) continue;
    if (before && Math.sign(before.gap) !== Math.sign(at.gap)) {
      const share = before.gap / (before.gap - at.gap);
      const x = Math.exp(Math.log(before.x) + share * Math.log(at.x / before.x));
      found.push({
        x,
        y: Math.exp(before.a + share * (at.a - before.a)),
        lower: at.gap < 0 ? a.label : b.label,
        upper: at.gap < 0 ? b.label : a.label,
      });
    }
    before = at;
  }
  return found;
}

/** All crossings between lines, by their x. */
export function allCrossings(lines: readonly Line[]): Crossing[] {
  return lines.flatMap((a, i) => lines.slice(i + 1).flatMap((b) => crossingsOf(a, b))).sort((p, q) => p.x - q.x);
}
