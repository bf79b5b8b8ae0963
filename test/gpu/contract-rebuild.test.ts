/** The rebuilding of cached rows, against float64 (contract-cached.ts). */
import './narrow.js';
import { contractTests } from './contract-cached.js';
import { describeGpu } from './device.js';

describeGpu('the rebuilding of cached rows, against float64', (device) => contractTests(device, 'rebuild'));
