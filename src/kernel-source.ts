export { kernelSourceHash as kernelHash } from './gpu/operations/index.js';
