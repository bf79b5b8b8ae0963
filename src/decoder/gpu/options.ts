/** What a decoder may be opened with. */
import { UserError } from '../../errors.js';
import { codecSpec, evictionRefusalOf, refusalOf } from '../../codecs/registry.js';
import { PREFILL_CHUNK_TOKENS } from '../../schedule/prefill/prefill.js';
import type { Configuration } from '../../schedule/schedule.js';
import { refuseCodec } from '../decodable.js';
import { checkSampling, GREEDY } from '../sampler.js';
import { biasedProjections } from '../tensors.js';
import type { GpuDecoderOptions } from './interface.js';

/** @throws UserError for settings that do not go together */
export function checkOptions(c: Configuration, o: GpuDecoderOptions): void {
  const { batch, contextTokens, pageTokens = 32 } = o;
  const whole = (name: string, value: number): void => {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new UserError(`${name} must be a whole number of at least 1, not ${value}`, 'give at least 1');
  };
  whole('the batch', batch);
  whole('the context', contextTokens);
  whole('a chunk of a prompt', o.prefillChunkTokens ?? PREFILL_CHUNK_TOKENS);
  if (!(pageTokens % 32 === 0 && pageTokens > 0))
    throw new UserError(`pages must be a multiple of 32 tokens, not ${pageTokens}`, 'give for example 32');
  if (c.gpus !== 1) throw new UserError('the decoder runs on one GPU', 'leave out --gpus');
  const spec = codecSpec(c.codec);
  const reason = refusalOf(c.geometry, c.codec);
  if (reason !== undefined) throw new UserError(reason, 'choose other codec settings');
  refuseCodec(c.codec, 'gpu');
  if (!spec.paths.includes(c.path) || (spec.fusedOnly && c.materialised))
    throw new UserError(`${c.codec.kind} cannot be read by the path ${c.path}`, `choose ${spec.paths.join(' or ')}`);
  const kept = evictionRefusalOf(c.geometry, c.codec);
  if (c.eviction && kept !== undefined)
    throw new UserError(`${c.codec.kind} goes with no eviction: ${kept}`, 'leave the eviction out');
  biasedProjections(c.geometry);
  checkSampling(o.sampling ?? GREEDY);
}
