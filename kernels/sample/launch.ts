/** The choice of a token from the logits: sample.wgsl, or sample_top_p.wgsl for the nucleus. */
import type { SampleOptions } from '../options.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep, u32 } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';

const WORKGROUP = 256;

/** Token of a row whose logits hold a NaN. */
export const NO_TOKEN = 0xffffffff;

/** Values of a benchmark. */
const SAMPLING: SampleOptions = { temperature: 1, topP: 0.95, seed: 0 };

/** Buffers: logits, tokens; for `top-p` also draws [row] (stream, counter). */
const plan: Launch['plan'] = (call, { sample: options = SAMPLING }) => {
  const s = shapeOf<'sample'>(call);
  const logits = f32('logits', 'input', s.rows * s.vocab);
  const tokens = u32('tokens', 'output', s.rows);
  const common = {
    constants: { WG: WORKGROUP },
    workgroups: [s.rows, 1, 1],
    tuning: { workgroup: WORKGROUP },
  } as const;
  if (call.variant === 'greedy')
    return oneStep({ ...common, buffers: [logits, tokens], source: 'sample', uniforms: { vocab: s.vocab } });
  const { temperature, topP, seed } = options;
  requireShape(
    temperature > 0 && Number.isFinite(temperature),
    `sample: the temperature must be above 0, not ${temperature}; greedy takes the likeliest token`,
  );
  requireShape(topP > 0 && topP <= 1, `sample: top-p must be above 0 and at most 1, not ${topP}`);
  return oneStep({
    ...common,
    buffers: [logits, u32('draws', 'input', 2 * s.rows, { below: 2 ** 31 }), tokens],
    source: 'sample_top_p',
    uniforms: { vocab: s.vocab, seed: seed >>> 0, sharpness: Math.LOG2E / temperature, top_p: topP },
  });
};

export const launch: Launch = { plan };
