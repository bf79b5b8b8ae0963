/** The room's public side. */
export { openCheckpoint, openSharded, type Checkpoint, type OpenTensors } from './checkpoint.js';
export {
  codecFacts,
  codecOf,
  INITIALISATIONS,
  openCodecFile,
  writeCodecFile,
  type CodecFacts,
  type Initialisation,
} from './codec-file.js';
export { SafetensorsFile } from './safetensors.js';
export { checkSampling, GREEDY, sample, type Sampling } from './sampler.js';
export { codecTensors, latentGroups, modelTensors, type TensorSpec } from './tensors.js';
export { readTokenizer, type Tokenizer } from './tokenizer.js';
export { combined, fabricate, storedAs, type TensorSource, type WeightStorage } from './weights.js';
