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
  const { info } = adapter;
  // A driver's words go to the terminal and into files.
  const words = (name: 'vendor' | 'architecture' | 'device' | 'description'): string =>
    printable(info[name]).slice(0, 400);
  const [vendor, architecture, device] = [words('vendor'), words('architecture'), words('device')];
  const description = words('description');
  const text = `${vendor} ${architecture} ${device} ${description}`;
  const software = info.isFallbackAdapter || info.architecture === 'software' || SOFTWARE.test(text);
  return { vendor, architecture, device, description, driver: description, backend, software };
}
