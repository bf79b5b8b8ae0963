/** Which share of the attainable speed a published implementation reached, by this program's prices. */
import type { PathChoice } from '../src/codecs/codec.js';
import { findPreset } from '../src/geometry/presets.js';
import { pathLabel } from '../src/plan/words/words.js';
import { ask } from '../src/plan/ask/on-disk.js';
import type { Implementation } from '../src/quality/implementations.js';

/**
 * s = T_att / (T − T_rest): T the measured step, T_att what tuned kernels take for the latents' part of it, T_rest the
 * other kernels by the server's tables. Of a benchmark of attention alone there is no rest.
 */
export async function reachedBy(i: Implementation): Promise<Partial<Record<PathChoice, number>>> {
  const paths = Object.keys(i.reached) as PathChoice[];
  const report = await ask({
    device: i.device,
    model: i.model,
    context: String(i.contextTokens),
    codec: [i.kind ?? 'lla'],
    ratio: [i.ratio],
    path: paths,
    ...(i.batch === null ? {} : { batch: i.batch }),
  });
  const share = (path: PathChoice): number => {
    const plan = report.plans.find((p) => pathLabel(p) === path);
    const { batch, secondsPerStep, unmeasured } = plan?.decode ?? {};
    if (!batch || !secondsPerStep || !unmeasured) throw new Error(`${i.source}: ${path} has no price`);
    const measured = i.secondsPerStep ?? batch / (i.tokensPerSecond ?? NaN);
    if (i.layers !== undefined) return (unmeasured.estimate * i.layers) / findPreset(i.model).layers / measured;
    return unmeasured.estimate / (measured - (secondsPerStep.estimate - unmeasured.estimate));
  };
  return Object.fromEntries(paths.map((path) => [path, share(path)]));
}
