/** The choice of a token from the logits: sample.wgsl, or sample_top_p.wgsl for the nucleus. */
import type { SampleOptions } from '../options.js';
import { requireShape } from '../host/errors.js';
import { read, write, type OperationPlan } from '../host/plan.js';
import { dimensions, requirePositive } from '../host/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';

const WORKGROUP = 256;

/** Token of a row whose logits hold a NaN. */
export const NO_TOKEN = 0xffffffff;

/** Values of a benchmark. */
const SAMPLING: SampleOptions = { temperature: 1, topP: 0.95, seed: 0 };

/** Buffers: logits, tokens; for `top-p` also draws [row] (stream, counter). */
function planSample(call: KernelCall, options: SampleOptions = SAMPLING): OperationPlan {
  const s = dimensions(call, 'rows', 'vocab');
  requirePositive(call, s);
  requireShape(call.variant === 'greedy' || call.variant === 'top-p', `sample has no variant ${call.variant}`);
  const logits = { name: 'logits', role: 'input', content: 'f32', bytes: s.rows * s.vocab * 4 } as const;
  const tokens = { name: 'tokens', role: 'output', content: 'u32', bytes: s.rows * 4 } as const;
  const common = { element: 'f32', constants: { WG: WORKGROUP }, workgroups: [s.rows, 1, 1] } as const;
  const tuning = { workgroup: WORKGROUP };
  if (call.variant === 'greedy') {
    return {
      buffers: [logits, tokens],
      steps: [
        { ...common, source: 'sample', uniforms: { vocab: s.vocab }, buffers: [...read('logits'), ...write('tokens')] },
      ],
      tuning,
    };
  }
  const { temperature, topP, seed } = options;
  requireShape(
    temperature > 0 && Number.isFinite(temperature),
    `sample: the temperature must be above 0, not ${temperature}; greedy takes the likeliest token`,
  );
  requireShape(topP > 0 && topP <= 1, `sample: top-p must be above 0 and at most 1, not ${topP}`);
  return {
    buffers: [logits, { name: 'draws', role: 'input', content: 'u32', bytes: s.rows * 8, below: 2 ** 31 }, tokens],
    steps: [
      {
        ...common,
        source: 'sample_top_p',
        uniforms: { vocab: s.vocab, seed: seed >>> 0, sharpness: Math.LOG2E / temperature, top_p: topP },
        buffers: [...read('logits', 'draws'), ...write('tokens')],
      },
    ],
    tuning,
  };
}

export const launch: Launch = {
  plan: (call, o) => planSample(call, o.sample),
};
