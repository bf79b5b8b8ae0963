/** Every codec of a report's question side by side, as a part of the report. */
import type { FixedPart } from '../report/folder.js';
import { tablePart } from '../report/tables.js';
import type { Scenario } from '../schema/settings.js';
import { measuredModels } from './measured.js';
import { codecColumns } from './page.js';
import { PAGE_CONTEXTS, sideBySide } from './page-data.js';

const TEXT =
  'All codecs, with a cache in 16 bits, for the model and GPU of this report: what each needs before it runs, bytes ' +
  'of a token and of a sequence, sequences by context. Speed is at the operating batch, and beside it what the ' +
  'kernels that were built would reach. The worst published score stands beside KL measured on the bundled models ' +
  'with the same setting or ratio. docs/codecs.md has all scores with their tables.';

/** Settings of the model and the machine: targets, users and choices of codecs would leave some out. */
const KEPT: ReadonlySet<string> = new Set<keyof Scenario>([
  'model',
  'loops',
  'vram',
  'device',
  'gpus',
  'ropeBranch',
  'utilization',
  'reserve',
  'pageTokens',
  'prefill',
  'fidelity',
  'calibration',
  'stack',
  'execution',
  'attention',
]);

/**
 * @param asked the report's question
 * @param contextTokens of the report
 */
export async function codecsPart(asked: Scenario, contextTokens: number): Promise<FixedPart | null> {
  const question = Object.fromEntries(Object.entries(asked).filter(([name]) => KEPT.has(name))) as Scenario;
  const contexts = [contextTokens, ...PAGE_CONTEXTS.filter((c) => c !== contextTokens)].slice(0, PAGE_CONTEXTS.length);
  const { rows } = await sideBySide(question, contexts);
  if (rows.length === 0) return null;
  return tablePart('codecs', 'Codecs side by side', TEXT, codecColumns(contexts, measuredModels()), rows);
}
