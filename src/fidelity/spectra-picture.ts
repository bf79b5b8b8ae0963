/** Spectra by axis, of a model and its untrained twin. */
import { axis, colourOf, common, markOf } from '../report/pictures/theme.js';
import { frame } from '../report/pictures/marks.js';
import { EVIDENCE_WORDS, type Picture } from '../report/pictures/picture.js';
import { AXES, letterOf } from '../fit/moments.js';
import type { SpectraReport } from './spectra-report.js';

export function spectraPicture(r: SpectraReport): Picture {
  const series = AXES.flatMap((side) =>
    [
      { name: '', studied: r.trained },
      { name: ' (untrained)', studied: r.untrained },
    ].flatMap(({ name, studied }) =>
      studied[side].axes
        .filter(({ places }) => places > 2)
        .map((a) => ({ label: `${letterOf(side)} ${a.axis}${name}`, dashed: name !== '', ...a })),
    ),
  );
  const title = 'Spectra of keys and values by axis';
  const subtitle =
    `${r.model.name}, ${r.trained.tokens} tokens; ` + "share of the energy by direction, each unit's mean taken off";
  const source = 'lla-sim fit --spectra';
  return {
    id: 'spectra-by-axis',
    title,
    subtitle,
    source,
    evidence: 'measured',
    summary: series
      .map(
        (s) =>
          `${s.label}: ${(100 * (s.shares[0] ?? 0)).toFixed(0)} % in one direction, effective rank ` +
          `${s.effectiveRank.toFixed(2)}.`,
      )
      .join(' '),
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS.measured };
      return {
        type: 'scatter',
        data: {
          datasets: series.map((s, i) => ({
            label: s.label,
            // The last direction is empty, as the mean is taken off.
            data: s.shares.slice(0, -1).map((y, x) => ({ x: x + 1, y })),
            showLine: true,
            borderColor: colourOf(theme, i),
            backgroundColor: s.dashed ? theme.paper : colourOf(theme, i),
            borderDash: s.dashed ? [5, 4] : [],
            borderWidth: 2,
            pointStyle: markOf(i),
            pointRadius: 5,
          })),
        },
        options: {
          ...common(theme, words),
          scales: {
            x: { ...axis(theme, 'direction, by energy'), type: 'linear' as const, min: 0.8 },
            y: { ...axis(theme, 'share of the energy'), type: 'linear' as const, min: 0 },
          },
        },
        plugins: [frame(theme, words)],
      };
    },
  };
}
