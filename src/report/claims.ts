/** The paper's claims as they were tried on a model, as a part of a report: on its page and in its Markdown. */
import type { Interval } from '../cost/evidence.js';
import { trainingText, VERDICTS } from '../schema/claim-words.js';
import type { ClaimsFile } from '../schema/claims.js';
import type { FixedPart } from './folder.js';
import { tablePart } from './tables.js';
import { left, type Column } from './text/text.js';

const shown = (i: Interval | null): string =>
  i === null ? '–' : `${number(i.estimate)} (${number(i.low)} to ${number(i.high)})`;
const number = (value: number): string => String(Number(value.toPrecision(3)));

const COLUMNS: readonly Column<ClaimsFile['claims'][number]>[] = [
  left('verdict', (c) => c.verdict),
  left('claim of the paper', (c) => c.claim),
  left('effect', (c) => c.effect),
  left('here (95 %)', (c) => shown(c.estimate)),
  left('untrained twin', (c) => shown(c.control)),
  left('beyond the twin', (c) => shown(c.beyond)),
  left('the paper', (c) => c.paper),
  left('note', (c) => c.note),
];

/** `5 agrees, 1 contradicts, 2 not shown by this, 6 not decided`, and on what. */
function intro({ model, device, training, claims }: ClaimsFile): string {
  const counts = VERDICTS.map((v) => `${claims.filter(({ verdict }) => verdict === v).length} ${v}`);
  const trained = model.trained ? '' : ', whose weights are fabricated: they say nothing about a trained model';
  return (
    `${counts.join(', ')}: on ${model.name} (${model.fingerprint.slice(0, 12)}…)${trained}, measured on ${device} ` +
    'by lla-sim fidelity --claims, whatever this report asks. A claim holds where the interval of its effect lies ' +
    'on the claimed side of zero, and the effect exceeds that of the untrained twin by more than their joint ' +
    'interval. Where the twin shows it as well, it is not shown by ' +
    `this.${training ? ` ${trainingText(training)}` : ''}`
  );
}

export const claimsPart = (file: ClaimsFile): FixedPart =>
  tablePart('claims', `The paper's claims, tried on ${file.model.name}`, intro(file), COLUMNS, file.claims);
