/**
 * Writes the reports that the repository carries, each from the scenario of its folder's name: run `npm run build &&
 * npm run reports` after anything that changes their numbers or looks. The same scenario gives the same bytes.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

for (const { name } of readdirSync(`${root}reports`, { withFileTypes: true }).filter((entry) => entry.isDirectory())) {
  execFileSync(
    process.execPath,
    ['dist/bin/cli.js', 'report', `scenarios/${name}.yaml`, '-o', `reports/${name}`, '--overwrite'],
    {
      cwd: root,
      stdio: 'inherit',
    },
  );
}
