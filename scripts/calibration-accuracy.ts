/**
 * How well calibrations predict what they do not contain: parts of the samples are hidden, the rest is fitted anew and
 * prices the hidden shapes, as `plan` would. Hidden are, of every kernel's variant: a fifth of its shapes, five times;
 * the longer half; all but N, drawn at random or the shortest; all of it. Of several files each also prices the others'
 * shapes, as another machine's calibration would.
 * Usage: calibration-accuracy CALIBRATION …
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fitting } from '../src/cost/fit/fit.js';
import { calibrationPricer, elsewhere } from '../src/cost/pricers.js';
import { measuredPoints } from '../src/cost/predictor.js';
import { KERNELS, type KernelName } from '../kernels/registry.js';
import { randomFrom } from '../src/numbers/random.js';
import { readCalibration } from '../src/schema/drift.js';
import { calibrationSchema, type Calibration, type Sample } from '../src/schema/calibration.js';
import { quantile } from '../src/numbers/statistics.js';
import { keepScores, type Judged } from './scores.js';

const FOLDS = 5;

/** Whether a sample stays, of a variant's samples with their median times. */
type Keeps = (sample: Sample, index: number, order: readonly number[]) => boolean;

/** Splits every variant's samples: `order` ranks them by what `by` says. */
function split(
  from: Calibration,
  by: (sample: Sample) => number,
  keeps: Keeps,
): { known: Calibration; hidden: { kernel: KernelName; variant: string; samples: Sample[] }[] } {
  const hidden: { kernel: KernelName; variant: string; samples: Sample[] }[] = [];
  const kernels = from.kernels.map((k) => ({
    ...k,
    predictors: {},
    samples: [...new Set(k.samples.map((s) => s.variant))].flatMap((variant) => {
      const own = k.samples.filter((s) => s.variant === variant);
      const keys = own.map(by);
      const ranks = keys.map((key, i) => keys.filter((other, j) => other < key || (other === key && j < i)).length);
      const left = own.filter((s, i) => !keeps(s, i, ranks));
      if (left.length > 0) hidden.push({ kernel: k.kernel as KernelName, variant, samples: left });
      return own.filter((s, i) => keeps(s, i, ranks));
    }),
  }));
  return { known: fitted({ ...from, kernels }), hidden };
}

/** Refitted in place. */
function fitted(calibration: Calibration): Calibration {
  for (const _ of fitting(calibration));
  return calibration;
}

type Hidden = ReturnType<typeof split>['hidden'];

function judge(known: Calibration, hidden: Hidden, wider = false): Judged[] {
  const own = calibrationPricer(known, { stale: new Set(), link: null, source: '' });
  const pricer = wider ? elsewhere(own) : own;
  return hidden.flatMap(({ kernel, variant, samples }) =>
    measuredPoints(kernel, variant, samples).map(({ shape, seconds }) => {
      const { estimate, low, high } = pricer.price({ kernel, variant, shape });
      return { error: Math.log(seconds / estimate), low: Math.log(low / estimate), high: Math.log(high / estimate) };
    }),
  );
}

function print(group: string, judged: readonly Judged[]): void {
  if (judged.length === 0) return;
  keepScores(group, judged);
  const at = (list: readonly number[], q: number): string => Math.exp(quantile(list, q)).toFixed(2);
  const errors = judged.map(({ error }) => Math.abs(error));
  const inside = judged.filter(({ error, low, high }) => low <= error && error <= high).length / judged.length;
  const widths = judged.map(({ low, high }) => (high - low) / 2);
  console.log(
    `${group}: ${judged.length} hidden, error × ${at(errors, 0.5)}, 90th × ${at(errors, 0.9)}, inside ` +
      `${(100 * inside).toFixed(1)} %, width × ${at(widths, 0.5)}`,
  );
}

const medianSeconds = (s: Sample): number => Math.min(...s.seconds);

const files = process.argv.slice(2).map((path) => ({
  name: basename(path, '.json'),
  read: (): Calibration =>
    readCalibration(calibrationSchema.parse(JSON.parse(readFileSync(path, 'utf8'))) as Calibration),
}));
for (const { name, read } of files) {
  const folds = Array.from({ length: FOLDS }, (_, fold) => {
    const random = randomFrom(41);
    const { known, hidden } = split(read(), random, (_s, i, ranks) => ranks[i]! % FOLDS !== fold);
    return judge(known, hidden);
  });
  print(`${name}, a point`, folds.flat());
  const longer = split(read(), medianSeconds, (_, i, ranks) => ranks[i]! < Math.ceil(ranks.length / 2));
  print(`${name}, the longer half`, judge(longer.known, longer.hidden));
  for (const keep of [1, 3, 8])
    for (const shortest of [false, true]) {
      const random = randomFrom(keep);
      const by = (s: Sample): number => (shortest ? medianSeconds(s) * (0.5 + random()) : random());
      const few = split(read(), by, (_, i, ranks) => ranks[i]! < keep);
      print(`${name}, all but ${keep}${shortest ? ' of the shortest' : ''}`, judge(few.known, few.hidden));
    }
  const variants = read().kernels.flatMap((k) =>
    [...new Set(k.samples.map((s) => s.variant))].map((variant) => ({ kernel: k.kernel, variant })),
  );
  const whole = fitted(read());
  const without = variants.flatMap(({ kernel, variant }) => {
    const kernels = whole.kernels.map((k) => ({
      ...k,
      samples: k.kernel === kernel ? k.samples.filter((s) => s.variant !== variant) : k.samples,
      predictors: {},
    }));
    const samples = whole.kernels.find((k) => k.kernel === kernel)!.samples.filter((s) => s.variant === variant);
    return judge(fitted({ ...whole, kernels }), [{ kernel: kernel as KernelName, variant, samples }]);
  });
  print(`${name}, a variant`, without);
  for (const other of files) {
    if (other.name === name) continue;
    const shapes = other.read().kernels.flatMap((k) =>
      [...new Set(k.samples.map((s) => s.variant))].map((variant) => ({
        kernel: k.kernel as KernelName,
        variant,
        samples: k.samples.filter((s) => s.variant === variant),
      })),
    );
    print(
      `${name}, another machine`,
      judge(
        whole,
        shapes.filter(({ kernel }) => kernel in KERNELS),
        true,
      ),
    );
  }
}
