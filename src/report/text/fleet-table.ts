/** Fleets as a table: a row a codec. */
import type { Fleet, FleetRow } from '../../plan/decide/fleet.js';
import { present } from '../../present.js';
import { keepsLabel } from '../plan-rows.js';
import { brief, milliseconds } from './answer-text.js';
import { fitting, left, right, type Column } from './text.js';

/** Rows of the table. */
const MOST_ROWS = 14;

/** The fewest GPUs first; what the answer names is among them. */
export function shownRows({ rows, deploy, upside }: Fleet): FleetRow[] {
  const named = rows.filter((row) => row === deploy || row === upside);
  const others = rows.filter((row) => !named.includes(row)).slice(0, MOST_ROWS - named.length);
  return rows.filter((row) => named.includes(row) || others.includes(row));
}

/** Columns that a narrow terminal does without, the first to go first. */
const SPARED = ['kernels', 'replicas', 'ms/token'];

/** The lines of the table. */
export function fleetTable(fleet: Fleet, width: number): readonly string[] {
  const spec = fleetColumns(fleet);
  const forms = [0, 1, 2, 3].map((n) => spec.filter((c) => !SPARED.slice(0, n).includes(c.title)));
  return fitting(forms, shownRows(fleet), width).lines;
}

/** What a table of codecs says, `>` to deploy and `+` the upside. */
export function fleetColumns(fleet: Fleet): Column<FleetRow>[] {
  const mark = (row: FleetRow): string => (row === fleet.deploy ? '>' : row === fleet.upside ? '+' : ' ');
  return present<Column<FleetRow>>([
    left(' ', mark),
    left('codec', (row) => row.planId.split('/')[0] as string),
    right('GPUs', (row) => String(row.gpus)),
    right('replicas', (row) => `${row.replicas} × ${row.tensorParallel}`),
    right('users', (row) => `${row.usersPerReplica}/${row.mostUsersPerReplica}`),
    right('ms/token', (row) => (row.secondsPerStep ? milliseconds(row.secondsPerStep.estimate) : '–')),
    fleet.rows.some((row) => row.usdPerHour !== null) &&
      right('$/hour', (row) => (row.usdPerHour === null ? '–' : brief(row.usdPerHour))),
    left('kernels', (row) => row.servedBy ?? row.evidence ?? '–'),
    right('keeps', ({ kept }) => keepsLabel({ qualityKept: kept }, true)),
  ]);
}
