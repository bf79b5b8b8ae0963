/** Spectra by axis, of a model and its untrained twin. */
import { axis, colourOf, markOf } from '../report/pictures/theme.js';
import { picture, type Picture } from '../report/pictures/picture.js';
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
  return picture({
    id: 'spectra-by-axis',
    title: 'Spectra of keys and values by axis',
    subtitle:
      `${r.model.name}, ${r.trained.tokens} tokens; ` + "share of the energy by direction, each unit's mean taken off",
    source: 'lla-sim fit --spectra',
    evidence: 'measured',
    summary: series
      .map(
        (s) =>
          `${s.label}: ${(100 * (s.shares[0] ?? 0)).toFixed(0)} % in one direction, effective rank ` +
          `${s.effectiveRank.toFixed(2)}.`,
      )
      .join(' '),
    draw: (theme) => ({
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
      scales: {
        x: { ...axis(theme, 'direction, by energy'), type: 'linear', min: 0.8 },
        y: { ...axis(theme, 'share of the energy'), type: 'linear', min: 0 },
      },
    }),
  });
}
