/**
 * How well kernels with few points are predicted: of every kernel's variant a calibration keeps N points, the shortest
 * half drawn at random; the others are predicted from those. By the variant's own fit, and by the narrower of that and its class's law.
 * Usage: class-laws CALIBRATION …
 */
import { readFileSync } from 'node:fs';
import { classLaws, narrowed } from '../src/cost/class-laws.js';
import { fitPredictor } from '../src/cost/fit.js';
import { makePredictor, measuredPoints } from '../src/cost/predictor.js';
import type { KernelName } from '../kernels/registry.js';
import { randomFrom } from '../src/random.js';
import { calibrationSchema, type Sample } from '../src/schema/calibration.js';
import { quantile } from '../src/statistics.js';

const files = process.argv.slice(2);
for (const file of files) {
  const calibration = calibrationSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  for (const keep of [1, 2, 3, 5, 10])
    for (const longest of [false, true]) {
      const own: [number, number][] = [];
      const both: [number, number][] = [];
      for (let seed = 1; seed <= 3; seed++) {
        const random = randomFrom(seed);
        const hidden: { kernel: KernelName; variant: string; samples: Sample[]; kept: Sample[] }[] = [];
        const kernels = calibration.kernels.map((k) => {
          const variants = [...new Set(k.samples.map((s) => s.variant))];
          const samples = variants.flatMap((variant) => {
            const all = k.samples
              .filter((s) => s.variant === variant)
              .map((s) => ({ s, by: longest ? Math.min(...s.seconds) * (0.5 + random()) : random() }));
            all.sort((a, b) => a.by - b.by);
            const kept = all.slice(0, keep).map(({ s }) => s);
            const rest = all.slice(keep).map(({ s }) => s);
            if (rest.length > 0) hidden.push({ kernel: k.kernel as KernelName, variant, samples: rest, kept });
            return kept;
          });
          return { ...k, samples };
        });
        const laws = classLaws({ ...calibration, kernels }, new Set());
        for (const { kernel, variant, samples, kept } of hidden) {
          const predict = makePredictor(kernel, variant, kept, fitPredictor(kernel, variant, kept));
          for (const { shape, seconds } of measuredPoints(kernel, variant, samples)) {
            const a = predict(shape);
            own.push([Math.log(seconds / a.seconds), a.halfWidthLog]);
            const joined = narrowed(a, kept.length, () => laws({ kernel, variant, shape }));
            both.push([Math.log(seconds / joined.seconds), joined.halfWidthLog]);
          }
        }
      }
      const words = (rows: readonly [number, number][]): string =>
        `inside ${((100 * rows.filter(([e, h]) => Math.abs(e) <= h).length) / rows.length).toFixed(1)} %, error ${(
          100 *
          Math.expm1(
            quantile(
              rows.map(([e]) => Math.abs(e)),
              0.5,
            ),
          )
        ).toFixed(0)} %, width × ${Math.exp(
          quantile(
            rows.map(([, h]) => h),
            0.5,
          ),
        ).toFixed(2)}, 90th × ${Math.exp(
          quantile(
            rows.map(([, h]) => h),
            0.9,
          ),
        ).toFixed(1)}`;
      console.log(
        `${file} keep ${keep} ${longest ? 'the shortest' : 'any'}: ${own.length} hidden; own ${words(own)}; with laws ${words(both)}`,
      );
    }
}
