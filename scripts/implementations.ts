/**
 * Which share of a tuned kernel's speed published implementations of latent attention reached, by this program's
 * prices: the values of `reached` in src/quality/implementations.ts.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/implementations.ts --packages=external >
 *     implementations.mjs
 *   node implementations.mjs
 */
import { IMPLEMENTATIONS } from '../src/quality/implementations.js';
import { reachedBy } from './reached.js';

for (const i of IMPLEMENTATIONS) {
  const { source, ratio, contextTokens, batch } = i;
  console.log(`${source}, ${ratio.toFixed(2)}x, ${contextTokens} tokens, batch ${batch ?? 'as many as fit'}:`);
  for (const [path, share] of Object.entries(await reachedBy(i))) console.log(`  ${path}: ${share.toFixed(4)}`);
}
