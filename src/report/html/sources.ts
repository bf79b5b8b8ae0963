/** What a changed question rests on: tables that the page carries, where the command line reads files. */
import { findDevice } from '../../devices/find.js';
import { chipOf, memoryOf, type DeviceSpec } from '../../devices/catalogue.js';
import { UserError, show } from '../../errors.js';
import { presetSource, type Sources } from '../../plan/ask/prepare.js';
import { isPath, type Scenario } from '../../schema/settings.js';
import { decideStack, gpuSources, otherCardNotes, unservedNote } from '../../stacks/choose.js';
import { otherStacksOn, tunedOn, type Shelf } from '../../plan/ask/sources.js';
import { listedAs, type StackTables } from '../../stacks/serving.js';
import type { PageData } from '../page-data.js';

/**
 * @param changed names of the controls that were changed
 * @throws UserError as the command line does
 */
export function sourcesFor(data: PageData, scenario: Scenario, changed: ReadonlySet<string>): Sources {
  const sources = chosenFor(data, scenario, changed);
  const { spec, gpu } = sources;
  return { ...sources, otherStacks: () => (spec && gpu ? otherStacksOn(carriedBy(data), spec, gpu) : []) };
}

/** The tables that the page carries. */
const carriedBy = (data: PageData): Pick<Shelf, 'bundled' | 'files'> => ({
  bundled: (device, stack) => found(data, device, stack),
  files: () => data.known.files,
});

function chosenFor(data: PageData, scenario: Scenario, changed: ReadonlySet<string>): Sources {
  // What was measured of the report's model says nothing about another one.
  const { fidelity: _own, ...published } = data.sources;
  const own: Sources = changed.has('model')
    ? { ...published, model: presetSource(String(scenario.model)) }
    : data.sources;
  const other = changed.has('device');
  const { stack } = scenario;
  if (!other && own.spec === null) {
    if (stack !== undefined) throw new UserError('--stack needs a device of the catalogue', 'choose a device');
    return own;
  }
  const measured = own.gpu === null && !other && !changed.has('stack');
  if (measured || !['model', 'device', 'stack'].some((name) => changed.has(name))) return own;
  const spec = other ? findDevice(String(scenario.device)) : (own.spec as DeviceSpec);
  const device = other ? { id: spec.id, name: spec.name, vramBytes: memoryOf(spec), calibration: null } : own.device;
  const shared = { ...own, device, spec, calibration: null, notes: other ? [] : own.notes };
  // A stack file that the user gave, not a stack of the list.
  if (stack !== undefined && isPath(stack)) {
    if (other) throw new UserError(`${show(stack)} holds times of another device`, 'choose other kernels');
    return shared;
  }
  const calibrated = other ? null : (own.calibration?.file ?? null);
  const tablesOf = (name: string): StackTables | null => found(data, spec.id, name) ?? found(data, chipOf(spec), name);
  const has = (name: string): boolean => tablesOf(name) !== null;
  const decided = decideStack(stack, spec, listedAs(own.model), calibrated, has);
  if (decided.stack === 'lla-sim') {
    return { ...own, attainable: tunedOn(carriedBy(data), spec), stackNotes: decided.notes };
  }
  const tables = decided.tables === null ? null : tablesOf(decided.tables);
  const notes = tables ? otherCardNotes(spec, tables) : [];
  if (decided.unserved && tables) notes.push(unservedNote(listedAs(own.model), tables));
  return {
    ...shared,
    gpu: gpuSources(spec, tables, data.known.files, decided.stack, decided.undivided),
    stack: decided.stack,
    stackNotes: [...decided.notes, ...notes],
  };
}

const found = ({ known, sources: { gpu } }: PageData, device: string, stack: string): StackTables | null =>
  [gpu?.stack, ...known.tables].find((t) => t?.file.device === device && t.file.stack === stack) ?? null;
