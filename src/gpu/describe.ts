/** What an adapter says of itself. */
import { printable } from '../errors.js';

const SOFTWARE = /llvmpipe|lavapipe|swiftshader|softpipe|basic render/i;

export interface AdapterDescription {
  vendor: string;
  architecture: string;
  device: string;
  description: string;
  /** Dawn reports the driver's own description; that is the only driver text it has. */
  driver: string;
  backend: string;
  /** The adapter runs on the CPU: right results, no GPU's speed. */
  software: boolean;
  /** The clock that times it, where that is neither its timestamps nor the wall clock (processor-time.ts). */
  clock?: 'processor';
}

/** Names an adapter and tells whether it runs on the CPU. */
export function describeAdapter(adapter: GPUAdapter, backend: string): AdapterDescription {
  const info = adapter.info;
  // A driver's words go to the terminal and into files.
  const [vendor, architecture, device, description] = [
    info.vendor,
    info.architecture,
    info.device,
    info.description,
  ].map((words) => printable(words).slice(0, 400)) as [string, string, string, string];
  const text = `${vendor} ${architecture} ${device} ${description}`;
  return {
    vendor,
    architecture,
    device,
    description,
    driver: description,
    backend,
    software: info.isFallbackAdapter || info.architecture === 'software' || SOFTWARE.test(text),
  };
}
