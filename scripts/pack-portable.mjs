/**
 * Packs Node, Dawn, the built program, its packages, kernels and calibrations into one folder and one archive that run
 * on a linux-x64 GPU server without npm, Node or network. Run: npm run pack:portable [-- OUT_DIRECTORY]
 *
 * There: tar xJf lla-sim-portable-linux-x64.tar.xz && lla-sim-portable/run doctor
 * (without xz: python3 -c "import tarfile; tarfile.open('lla-sim-portable-linux-x64.tar.xz').extractall()")
 */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const MAX_ARCHIVE_BYTES = 50 * 2 ** 20;
const PLATFORM = 'linux-x64';

const root = fileURLToPath(new URL('..', import.meta.url));
const out = resolve(process.argv[2] ?? join(root, 'portable'));
const folder = join(out, 'lla-sim-portable');
const archive = join(out, `lla-sim-portable-${PLATFORM}.tar.xz`);

if (`${process.platform}-${process.arch}` !== PLATFORM)
  throw new Error(
    `packs the Node that runs it, so it must run on ${PLATFORM}, not ${process.platform}-${process.arch}`,
  );
if (!existsSync(join(root, 'dist/bin/cli.js'))) throw new Error('dist/ is missing: run npm run build first');

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const path of [
  'dist',
  'calibrations',
  'ledger',
  'models',
  'scenarios',
  'docs',
  'package.json',
  'README.md',
  'LICENSE',
])
  cpSync(join(root, path), join(folder, path), { recursive: true });
cpSync(join(root, 'kernels'), join(folder, 'kernels'), {
  recursive: true,
  filter: (path) => !path.endsWith('.ts'),
});
copyPackages();
copyFileSync(process.execPath, join(folder, 'node'));
try {
  execFileSync('strip', [join(folder, 'node')], { stdio: 'ignore' });
} catch {
  console.warn('strip is not installed: the archive will be larger');
}
chmodSync(join(folder, 'node'), 0o755);
writeFileSync(join(folder, 'run'), RUN());
chmodSync(join(folder, 'run'), 0o755);
copyFileSync(join(root, 'scripts/measure-gpu.sh'), join(folder, 'measure'));
chmodSync(join(folder, 'measure'), 0o755);

execFileSync('tar', ['-cJf', archive, '-C', out, 'lla-sim-portable'], { env: { ...process.env, XZ_OPT: '-6 -T0' } });
const bytes = statSync(archive).size;
console.log(`${archive}: ${(bytes / 2 ** 20).toFixed(1)} MiB`);
if (bytes > MAX_ARCHIVE_BYTES) throw new Error(`the archive exceeds ${MAX_ARCHIVE_BYTES / 2 ** 20} MiB`);

/** Production packages by the lock file; of Dawn only this platform's library. */
function copyPackages() {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  for (const [path, entry] of Object.entries(lock.packages)) {
    if (path === '' || entry.dev || entry.devOptional || !existsSync(join(root, path))) continue;
    // Pictures are drawn where reports are read; without these packages `report` writes everything else.
    if (/^node_modules\/(@napi-rs|@fontsource)/.test(path)) continue;
    const target = join(folder, path);
    mkdirSync(dirname(target), { recursive: true });
    cpSync(join(root, path), target, {
      recursive: true,
      filter: (source) =>
        !/\.(map|md|markdown|d\.[cm]?ts)$/i.test(source) &&
        !(source.includes('node_modules/webgpu/dist/') && !source.includes(`/dist/${PLATFORM}`)),
    });
  }
}

/** The start script: no variable of the caller is needed. */
function RUN() {
  return `#!/bin/sh
# lla-sim on its own Node: no program of the machine is called. Needs glibc, and for calibrate a Vulkan loader and
# driver.
case "$0" in */*) here="\${0%/*}" ;; *) here=. ;; esac
export XDG_RUNTIME_DIR="\${XDG_RUNTIME_DIR:-/tmp}"
# In containers NVIDIA's driver description often lies where the loader does not look.
icd=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json
if [ -z "\${VK_DRIVER_FILES:-}" ] && [ -e "$icd" ] && [ ! -e /usr/share/vulkan/icd.d/nvidia_icd.json ] &&
  [ ! -e /etc/vulkan/icd.d/nvidia_icd.json ]; then export VK_DRIVER_FILES="$icd"; fi
exec "$here/node" "$here/dist/bin/cli.js" "$@"
`;
}
