/**
 * The device of the GPU tests, opened once a process. Without an adapter they are skipped with the reason in view, but
 * fail where CI or LLA_SIM_REQUIRE_GPU=1 says that there has to be one.
 */
import { describe, test } from 'vitest';
import { openDevice, type Device } from '../../src/gpu/index.js';
import { UserError } from '../../src/errors.js';

const required = Boolean(process.env.CI) || process.env.LLA_SIM_REQUIRE_GPU === '1';

async function open(): Promise<Device | string> {
  try {
    return await openDevice();
  } catch (error) {
    if (error instanceof UserError) return `${error.message}; ${error.hint}`;
    throw error;
  }
}

const opened = await open();

/** Declares tests that need the device. */
export function describeGpu(name: string, body: (device: Device) => void): void {
  if (typeof opened !== 'string') {
    describe(name, () => {
      body(opened);
    });
  } else if (required) {
    test(name, () => {
      throw new Error(`a GPU is required here (CI or LLA_SIM_REQUIRE_GPU=1): ${opened}`);
    });
  } else {
    test.skip(`${name} [skipped: ${opened}]`, () => undefined);
  }
}
