/** Kernel times that the user measured, as a CSV file: one row a call, its class, its sizes and its seconds. */
import { UserError, show } from '../../errors.js';
import { displayPath } from '../../io/files.js';
import { parseNumber } from '../../numbers/units.js';
import { classSpec, OP_CLASS_NAMES, type OpClass } from '../../../kernels/op-classes.js';
import { cell, readCsvRows } from './csv-rows.js';
import { Builders } from './raw-table.js';
import type { TableVersions } from './select.js';

const MAX_SECONDS = 1e3;
const MAX_SIZE = 2 ** 40;

/**
 * Columns `op`, `seconds` and the sizes of each row's class. Repeated shapes are repetitions of one measurement.
 * @throws UserError naming the row and the field
 */
export function csvTable(path: string, framework: string, version: string): TableVersions {
  return {
    name: path,
    versions: [
      {
        path: displayPath(path),
        read: () => {
          const builders = new Builders();
          readCsvRows(path, ['op', 'seconds']).forEach((row, index) => {
            const at = `${displayPath(path)}, row ${index + 2}`;
            const op = row['op'] as OpClass;
            if (!OP_CLASS_NAMES.includes(op))
              throw new UserError(
                `${at}: op must be one of ${OP_CLASS_NAMES.join(', ')}, not ${show(row['op'])}`,
                'correct the column op',
              );
            const spec = classSpec(op);
            const size = (name: string): number => {
              if (row[name] === undefined)
                throw new UserError(
                  `${at}: the column ${name} is missing`,
                  `${op} takes the columns ${[...spec.fixed, ...spec.axes].join(', ')}`,
                );
              return parseNumber(cell(row, name), `${at}: ${name}`, { min: 1, max: MAX_SIZE, whole: true }, row[name]);
            };
            const pick = (names: readonly string[]): Record<string, number> =>
              Object.fromEntries(names.map((name) => [name, size(name)]));
            const seconds = cell(row, 'seconds');
            parseNumber(seconds, `${at}: seconds`, { min: 1e-12, max: MAX_SECONDS }, row['seconds']);
            builders.add(op, pick(spec.fixed), pick(spec.axes), seconds);
          });
          return Promise.resolve(
            builders.tables({
              repository: 'the user',
              commit: 'none',
              path: displayPath(path).split('/').at(-1)!,
              framework,
              version,
              licence: "the user's own",
            }),
          );
        },
      },
    ],
  };
}
