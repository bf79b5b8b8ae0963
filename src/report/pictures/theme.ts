/**
 * Colours, marks and fonts of pictures. Colours are those of Okabe and Ito, which differ for any colour vision; marks
 * differ too.
 */
import type { ChartDataset, ChartOptions, PointStyle } from 'chart.js';
import { isEstimate, type Evidence } from '../../cost/evidence.js';

export interface Theme {
  readonly ink: string;
  readonly muted: string;
  readonly grid: string;
  readonly paper: string;
  /** Series colours in the order in which they are taken. */
  readonly series: readonly string[];
  readonly font: string;
  /** True where the page around the picture shows title, units and source. */
  readonly embedded: boolean;
}

/** Yellow is left out of the original eight: it does not show on white. */
const OKABE_ITO = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#5B5B5B'];
/** The same hues, lighter where dark paper needs it. */
const OKABE_ITO_ON_DARK = ['#4DA6E0', '#F0843C', '#2FC79B', '#E39BC4', '#F2B942', '#8CCBF2', '#B8B8B8'];

export const LIGHT: Theme = {
  ink: '#1b1f24',
  muted: '#57606a',
  grid: '#e3e6ea',
  paper: '#ffffff',
  series: OKABE_ITO,
  font: 'sans-serif',
  embedded: false,
};
export const DARK: Theme = {
  ...LIGHT,
  ink: '#e8eaed',
  muted: '#a8b0b9',
  grid: '#363c44',
  paper: '#16191d',
  series: OKABE_ITO_ON_DARK,
};

const MARKS: readonly PointStyle[] = ['circle', 'triangle', 'rect', 'rectRot', 'crossRot', 'star', 'rectRounded'];

export const colourOf = (theme: Theme, index: number): string => theme.series[index % theme.series.length] as string;
export const markOf = (index: number): PointStyle => MARKS[index % MARKS.length] as PointStyle;

/** A colour with an opacity from 0 to 1. */
export const faded = (colour: string, opacity: number): string =>
  `${colour}${Math.round(opacity * 255)
    .toString(16)
    .padStart(2, '0')}`;

/** A line with the marks of its series. */
export const seriesStyle = (theme: Theme, index: number) => ({
  borderColor: colourOf(theme, index),
  backgroundColor: colourOf(theme, index),
  borderWidth: 2.5,
  pointStyle: markOf(index),
});

/** A line without marks. */
export const lineStyle = (colour: string, borderWidth = 2) => ({
  borderColor: colour,
  backgroundColor: colour,
  borderWidth,
  pointRadius: 0,
  pointStyle: 'line' as const,
});

/** The marks of a series. @param fill what they are filled with, where that is not their colour */
export const markStyle = (
  index: number,
  colour: string,
  pointRadius: number,
  pointBorderWidth: number,
  fill = colour,
) => ({
  pointStyle: markOf(index),
  pointRadius,
  pointBorderWidth,
  pointBackgroundColor: fill,
  pointBorderColor: colour,
  backgroundColor: fill,
  borderColor: colour,
});

/** How the line and the mark of an evidence look: what was not measured is dashed and hollow. */
export function evidenceStyle(evidence: Evidence, colour: string, paper: string) {
  const hollow = isEstimate(evidence);
  const dash = { measured: [], interpolated: [], extrapolated: [10, 4, 2, 4], attainable: [6, 4], roofline: [2, 3] }[
    evidence
  ];
  return {
    borderColor: colour,
    borderDash: dash,
    borderWidth: hollow ? 1.5 : 2.5,
    pointBackgroundColor: hollow ? paper : evidence === 'extrapolated' ? faded(colour, 0.4) : colour,
    pointBorderColor: colour,
  };
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** A point with its interval. */
export interface BandPoint extends Point {
  readonly low: number;
  readonly high: number;
  /** Where it is not that of the whole line. */
  readonly evidence?: Evidence;
}

/** Edges of an interval, of which the second is filled down to the first: up to three of them stay apart. */
export function bandOf(points: readonly BandPoint[], colour: string): ChartDataset[] {
  const edge = {
    borderWidth: 0.8,
    borderColor: faded(colour, 0.45),
    borderDash: [1, 3],
    pointRadius: 0,
    label: '',
    pointStyle: 'line' as const,
  };
  return [
    { ...edge, data: points.map((p) => ({ x: p.x, y: p.low })), fill: false },
    { ...edge, data: points.map((p) => ({ x: p.x, y: p.high })), fill: '-1', backgroundColor: faded(colour, 0.14) },
  ];
}

/** A line with the intervals of its points, in the units of the axes. */
export interface BandLine {
  readonly id: string;
  readonly label: string;
  readonly evidence: Evidence;
  readonly points: readonly BandPoint[];
}

/** The band of its intervals, and the line in the look of its evidence, point by point where these differ. */
export function bandedLine(
  theme: Theme,
  { label, evidence, points }: BandLine,
  index: number,
  more: Pick<ChartDataset<'line'>, 'pointRadius' | 'order'>,
): ChartDataset[] {
  const colour = colourOf(theme, index);
  const styles = points.map((p) => evidenceStyle(p.evidence ?? evidence, colour, theme.paper));
  return [
    ...bandOf(points, colour),
    {
      ...evidenceStyle(evidence, colour, theme.paper),
      pointBackgroundColor: styles.map((style) => style.pointBackgroundColor),
      segment: { borderDash: ({ p1DataIndex }) => styles[p1DataIndex]!.borderDash },
      ...more,
      label,
      data: points.map((p) => ({ x: p.x, y: p.y })),
      pointStyle: markOf(index),
      backgroundColor: colour,
      fill: false,
    },
  ];
}

const TEXT = 14;
const fontOf = (theme: Theme) => ({ family: theme.font, size: theme.embedded ? 12 : TEXT });

/**
 * Options that all pictures share. A picture adds its scales.
 * @param right pixels kept free on the right, for words beside the last points
 */
export function common(
  theme: Theme,
  words: { readonly title: string; readonly subtitle: string },
  right = 0,
): ChartOptions {
  return {
    animation: false,
    responsive: theme.embedded,
    maintainAspectRatio: false,
    // Marks on the frame are drawn whole.
    clip: 10,
    ...(theme.embedded
      ? { layout: { padding: { right: Math.max(10, right * 0.8) } } }
      : { devicePixelRatio: 1, layout: { padding: { left: 18, right: Math.max(26, right), top: 14, bottom: 44 } } }),
    font: fontOf(theme),
    color: theme.ink,
    plugins: {
      title: {
        display: !theme.embedded,
        text: words.title,
        align: 'start',
        color: theme.ink,
        font: { family: theme.font, size: 20, weight: 'bold' },
        padding: { top: 2, bottom: 4 },
      },
      subtitle: {
        display: !theme.embedded,
        text: words.subtitle,
        align: 'start',
        color: theme.muted,
        font: { family: theme.font, size: TEXT },
        padding: { bottom: 10 },
      },
      legend: {
        position: 'top',
        align: 'start',
        labels: {
          usePointStyle: true,
          color: theme.ink,
          boxHeight: 7,
          font: fontOf(theme),
          filter: (item) => item.text !== '',
        },
      },
      tooltip: { enabled: theme.embedded },
    },
  };
}

/** Title, grid and tick colours of an axis. */
export const axis = (theme: Theme, title: string) => ({
  title: { display: true, text: title, color: theme.ink, font: fontOf(theme) },
  grid: { color: theme.grid, lineWidth: 1 },
  border: { color: theme.muted },
  ticks: { color: theme.muted, font: fontOf(theme), maxRotation: 0 },
});
