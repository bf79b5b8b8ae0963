/**
 * Packs the package as it would be published and checks it: what publint finds, and its size. Run: npm run
 * check:package (after npm run build). `npm run check:types` asks arethetypeswrong, which brings a compiler of its own.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';

const root = fileURLToPath(new URL('..', import.meta.url));
const MOST_BYTES = 24e6;
/** Of each bundled model that is still to come. */
const MODEL_BYTES = 12 * 2 ** 20;
const MODELS = 2;

const folder = mkdtempSync(join(tmpdir(), 'lla-sim-package-'));
try {
  const argv = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const [{ filename, size, entryCount }] = JSON.parse(
    execFileSync('npm', argv, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
  );
  const tarball = new Uint8Array(readFileSync(join(folder, filename))).buffer;
  const { messages, pkg } = await publint({ pack: { tarball }, strict: true });
  const found = messages.map((message) => formatMessage(message, pkg));
  const bundled = readdirSync(join(root, 'models'), { withFileTypes: true }).filter((e) => e.isDirectory()).length;
  const most = MOST_BYTES - Math.max(0, MODELS - bundled) * MODEL_BYTES;
  if (size > most) found.push(`the package has ${size} bytes, more than ${most}`);
  console.log([`${size} bytes packed of at most ${most}, ${entryCount} files`, ...found].join('\n'));
  if (found.length > 0) process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
