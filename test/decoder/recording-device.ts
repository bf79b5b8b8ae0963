/**
 * A device that records what is dispatched and computes nothing: what a decoder runs, without a GPU. The schedule says
 * what that should be.
 */
import {
  type BoundStep,
  type Buffer,
  type Device,
  type RunTime,
  deviceOptions,
  planOperation,
} from '../../src/gpu/index.js';
import type { Step } from '../../kernels/host/plan.js';
import { packUniforms } from '../../src/gpu/uniforms.js';
import { labelOf, type BoundVisit, type Ref } from '../../src/schedule/bind/refs.js';
import type { CacheMap } from '../../src/schedule/cache-map.js';
import { loadSource } from '../../kernels/source.js';

/** A dispatch: its kernel, constants, uniforms and grid, and the buffer and first byte of every binding. */
export interface Dispatched extends Pick<Step, 'source' | 'element' | 'constants' | 'uniforms' | 'workgroups'> {
  readonly binds: readonly (readonly [name: string, buffer: string])[];
}

const dispatched = (step: Step, bufferOf: (name: string) => string): Dispatched => ({
  source: step.source,
  element: step.element,
  constants: step.constants,
  uniforms: step.uniforms,
  workgroups: step.workgroups,
  binds: step.buffers.map(({ name }) => [name, bufferOf(name)]),
});

const at = (label: string, offset = 0): string => `${label} from ${offset}`;
/** The schedule names weights by what they are, the decoder by their tensors. */
const WEIGHTS = 'weights ';

function nameOf(ref: Ref | undefined, caches: CacheMap, aside: CacheMap | undefined): string {
  if (!ref) return at('unused');
  if ('buffer' in ref) return at(labelOf(ref), 4 * (ref.offset ?? 0));
  if ('cache' in ref) {
    const map = ref.aside && aside ? aside : caches;
    return at(map.labelAt(ref.cache, ref.place, ref.loop, ref.part));
  }
  if ('weights' in ref) return `${WEIGHTS}${JSON.stringify(ref)}`;
  return at('table' in ref ? ref.table : ref.contents);
}

/** What the schedule says that is dispatched. @throws Error where an operation has other dispatches than it says */
export function expectedOf(
  device: Device,
  visits: Iterable<BoundVisit>,
  caches: CacheMap,
  aside?: CacheMap,
): Dispatched[] {
  return [...visits].flatMap(({ op, options, binds, dispatches }) => {
    const { steps } = planOperation(op, { ...deviceOptions(device), ...options });
    if (steps.length !== dispatches) throw new Error(`${op.label} is ${steps.length} dispatches, not ${dispatches}`);
    return steps.map((step) => dispatched(step, (name) => nameOf(binds[name], caches, aside)));
  });
}

/** The first difference between what ran and what was listed. Weights of one name are the same buffer every time. */
export function differenceOf(ran: readonly Dispatched[], listed: readonly Dispatched[]): string | undefined {
  const weights = new Map<string, string>();
  for (const [i, expected] of listed.entries()) {
    const own = ran[i];
    const binds = expected.binds.map(([name, buffer], k): [string, string] => {
      if (!buffer.startsWith(WEIGHTS)) return [name, buffer];
      const known = weights.get(buffer) ?? own?.binds[k]?.[1] ?? '';
      weights.set(buffer, known);
      return [name, known];
    });
    const [a, b] = [JSON.stringify(own), JSON.stringify({ ...expected, binds })];
    if (a !== b) return `dispatch ${i}: ${a}, listed ${b}`;
  }
  return ran.length === listed.length ? undefined : `${ran.length} dispatches, listed ${listed.length}`;
}

interface Recorded extends BoundStep {
  readonly dispatched: Dispatched;
}

export class RecordingDevice {
  /** What was run, in order. */
  calls: Dispatched[] = [];
  readonly description = { software: true };
  readonly limits = { maxComputeWorkgroupStorageSize: 32_768, maxBufferSize: Infinity };
  readonly units = { matrixConfigs: [], subgroupSizes: [8, 8] };

  has = (): boolean => false;

  buffer(label: string, bytes: number): Promise<Buffer> {
    return Promise.resolve({ label, bytes: Math.max(16, Math.ceil(bytes / 4) * 4), raw: {} as GPUBuffer });
  }

  write(buffer: Buffer, data: ArrayBufferView, offset = 0): Promise<void> {
    if (offset + data.byteLength > buffer.bytes) throw new RangeError(`${buffer.label} is too short`);
    return Promise.resolve();
  }

  copy = (): Promise<number> => Promise.resolve(0);
  read = (_: Buffer, bytes: number): Promise<ArrayBuffer> => Promise.resolve(new ArrayBuffer(bytes));
  free = (): void => undefined;

  bind(step: Step, buffers: ReadonlyMap<string, Buffer>): Promise<BoundStep> {
    const bytes = packUniforms(loadSource(step.source, step.element), step.uniforms).byteLength;
    const uniforms: Buffer = { label: 'uniforms', bytes, raw: {} as GPUBuffer };
    const bufferOf = (name: string): string => {
      const { label, offset } = buffers.get(name)!;
      return at(label, offset);
    };
    return Promise.resolve({ dispatched: dispatched(step, bufferOf), uniforms } as unknown as BoundStep);
  }

  run(steps: readonly BoundStep[]): Promise<RunTime> {
    for (const step of steps as readonly Recorded[]) this.calls.push(step.dispatched);
    return Promise.resolve({ wallSeconds: 0, deviceSeconds: 0 });
  }

  get device(): Device {
    return this as unknown as Device;
  }
}
