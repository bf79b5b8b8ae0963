/** The room's public side. */
export { openCheckpoint, type Checkpoint } from './checkpoint.js';
export {
  codecFacts,
  codecOf,
  INITIALISATIONS,
  openCodecFile,
  writeCodecFile,
  type Initialisation,
} from './codec-file.js';
export { SafetensorsFile } from './safetensors.js';
export { GREEDY, sample, type Sampling } from './sampler.js';
export { codecTensors, modelTensors, type TensorSpec } from './tensors.js';
export { readTokenizer, unknownWords, type Tokenizer } from './tokenizer.js';
export { combined, fabricate, inMemory, storedAs, type NamedTensor, type TensorSource } from './weights.js';
