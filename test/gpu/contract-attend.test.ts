/** Attention over cached rows as they lie, against float64 (contract-cached.ts). It adds up across eight threads. */
import { contractTests } from './contract-cached.js';
import { describeGpu } from './device.js';

describeGpu('attention over cached rows, against float64', (device) => contractTests(device, 'attend'));
