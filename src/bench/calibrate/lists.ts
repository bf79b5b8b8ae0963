/** What a calibration of a device measures: the calls of a model's steps and prompts. */
import type { Geometry } from '../../geometry/geometry.js';
import { findPreset, withLayers } from '../../geometry/presets.js';
import type { Device } from '../../gpu/device.js';
import { DEFAULT_TARGET_WORKGROUPS } from '../../plan/ask/settings.js';
import { ANCHOR_RANGES, anchorCalls, firstCalls, type Anchor, type AnchorRange } from './anchors.js';

/**
 * A vocabulary whose embedding a software adapter can bind (128 MiB); the head then has the shape of half the model's,
 * which is one of its parts there.
 */
const SOFTWARE_VOCAB = 24_576;

/**
 * One layer of the model that is validated: its operations have the shapes of the whole, and leave the memory to the
 * cache.
 */
export function validationModel(software: boolean, name: string | null): Geometry {
  const preset = findPreset(name ?? 'ouro-1.4b');
  return software
    ? { ...withLayers(preset, 1), name: `one layer of ${preset.name}`, vocab: Math.min(preset.vocab, SOFTWARE_VOCAB) }
    : preset;
}

/**
 * Calls of the model's steps, and of the steps that `validate` runs in its place: a first few, then all. What the
 * latter have of their own, by another number of layers or a smaller vocabulary, the first few contain.
 */
export function callsOf(device: Device, model: string | null): (() => Anchor[])[] {
  const range: AnchorRange = {
    ...ANCHOR_RANGES[device.description.software ? 'software' : 'hardware'],
    targetWorkgroups: DEFAULT_TARGET_WORKGROUPS,
    bindingBytes: device.limits.maxStorageBufferBindingSize,
  };
  const whole = findPreset(model ?? 'ouro-1.4b');
  const validated = validationModel(device.description.software, model);
  const own = (): Anchor[] => (validated === whole ? [] : firstCalls(validated, range));
  return [firstCalls, anchorCalls].map((list) => () => [...list(whole, range), ...own()]);
}
