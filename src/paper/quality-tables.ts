/** The paper's quality tables as rows and columns, each with the contradictions that name it. */
import { groups as groupBy } from 'd3-array';
import { CONTRADICTIONS, type Contradiction } from '../quality/contradictions.js';
import type { QualityFigure } from '../quality/figure.js';
import { evictionLabel } from '../eviction/policy.js';
import { formatTokens } from '../numbers/units.js';

export interface QualityTable {
  readonly source: string;
  readonly model: string;
  readonly columns: readonly string[];
  readonly rows: readonly { readonly label: string; readonly cells: readonly string[] }[];
  readonly contradictions: readonly Contradiction[];
}

function rowLabel(f: QualityFigure): string {
  const parts = [f.isTeacher ? 'teacher' : f.codec === 'full' ? 'full' : `${f.codec} ${Number(f.ratioLabel)}×`];
  if (f.andAbove) parts.push('and above');
  if (f.pathClass === 'absorbed') parts.push('absorbed');
  if (f.variant !== null) parts.push(f.variant);
  if (f.eviction !== null) parts.push(evictionLabel(f.eviction));
  return parts.join(', ');
}

const columnLabel = (f: QualityFigure): string =>
  f.contextTokens === null ? f.metric : `${f.metric} ${formatTokens(f.contextTokens)}`;

const decimals = (value: number): number => (String(value).split('.')[1] ?? '').length;

function cellOf(figures: readonly QualityFigure[], digits: number): string {
  const text = ({ unit, value }: QualityFigure): string => {
    if (unit === 'times') return `${value}×`;
    return unit === 'tokens' ? formatTokens(value) : value.toFixed(digits);
  };
  return figures.map(text).join(' / ');
}

/**
 * True when a place (`caption, Table scale`) names a table, and not one whose name merely begins so (`Table scale_mc`).
 */
const names = (place: string, table: string): boolean => place === table || place.split(', ').includes(table);

/** Every table (and passage) in the order of the figures, one a model. */
export function qualityTables(
  figures: readonly QualityFigure[],
  contradictions: readonly Contradiction[] = CONTRADICTIONS,
): QualityTable[] {
  return groupBy(figures, (f) => `${f.source}|${f.model}`).map(([, list]) => {
    const { source, model } = list[0] as QualityFigure;
    const columns = [...new Set(list.map(columnLabel))];
    const labels = [...new Set(list.map(rowLabel))];
    const digits = columns.map((c) =>
      Math.max(2, ...list.filter((f) => columnLabel(f) === c).map((f) => decimals(f.value))),
    );
    return {
      source,
      model,
      columns,
      rows: labels.map((label) => ({
        label,
        cells: columns.map(
          (c, i) =>
            cellOf(
              list.filter((f) => rowLabel(f) === label && columnLabel(f) === c),
              digits[i] as number,
            ) || '–',
        ),
      })),
      contradictions: contradictions.filter(
        (c) => c.models.some((m) => m === model) && c.figures.some((f) => names(f.source, source)),
      ),
    };
  });
}
