/** The house rules that only a look at all imports can keep: which room may know which. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { KERNEL_NAMES } from '../kernels/registry.js';
import * as TERMS from '../kernels/tables/terms.js';

const ROOT = fileURLToPath(new URL('../', import.meta.url));

interface Import {
  /** Module as written. */
  readonly specifier: string;
  /** The module's name (see `pathOf`), or null for a package. */
  readonly target: string | null;
  /** False for `import type`: erased, so it loads nothing. */
  readonly loads: boolean;
  readonly dynamic: boolean;
}

/** Modules are named by their path below src; those of kernels/, beside src, by their path in the repository. */
const pathOf = (file: string): string => (file.startsWith('kernels/') ? file : `src/${file}`);
const text = (file: string): string => readFileSync(join(ROOT, pathOf(file)), 'utf8');

const files = ['src', 'kernels']
  .flatMap((room) => readdirSync(join(ROOT, room), { recursive: true, encoding: 'utf8' }).map((f) => `${room}/${f}`))
  .filter((f) => f.endsWith('.ts'))
  .map((f) =>
    f
      .split(sep)
      .join('/')
      .replace(/^src\//, ''),
  )
  .sort();

function specifierOf(node: ts.Node): { specifier: string; loads: boolean; dynamic: boolean } | null {
  if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
    const clause = node.importClause;
    const named = clause?.namedBindings;
    const onlyTypes =
      clause !== undefined &&
      (clause.phaseModifier === ts.SyntaxKind.TypeKeyword ||
        (!clause.name &&
          named !== undefined &&
          ts.isNamedImports(named) &&
          named.elements.length > 0 &&
          named.elements.every((e) => e.isTypeOnly)));
    return { specifier: node.moduleSpecifier.text, loads: !onlyTypes, dynamic: false };
  }
  if (ts.isExportDeclaration(node) && node.moduleSpecifier && ts.isStringLiteral(node.moduleSpecifier))
    return { specifier: node.moduleSpecifier.text, loads: !node.isTypeOnly, dynamic: false };
  if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
    const [first] = node.arguments;
    return {
      specifier: first && ts.isStringLiteralLike(first) ? first.text : '<computed>',
      loads: true,
      dynamic: true,
    };
  }
  return null;
}

function importsOf(file: string): Import[] {
  const source = ts.createSourceFile(file, text(file), ts.ScriptTarget.Latest, true);
  const found: Import[] = [];
  const visit = (node: ts.Node): void => {
    const import_ = specifierOf(node);
    if (import_) {
      const local = import_.specifier.startsWith('.');
      found.push({
        ...import_,
        target: local
          ? posix
              .normalize(posix.join(posix.dirname(pathOf(file)), import_.specifier))
              .replace(/^src\//, '')
              .replace(/\.js$/, '.ts')
          : null,
      });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

const graph = new Map(files.map((f) => [f, importsOf(f)]));
const imports = (file: string): Import[] => graph.get(file) ?? [];

/** Commands that need a GPU, and the types of what they print: they may know the other side. */
const GPU_COMMANDS = /^commands\/(calibrate|bench|doctor|validate|model|outputs)\b/;
/** The parts of a kernel beside its terms: how it is run, and what it is checked against. */
const LAUNCH = /^kernels\/(host\/.*|(.*[/.])?launch(es)?)\.ts$/;
const REFERENCE = /^kernels\/(.*[/.])?references?\.ts$/;
/** WGSL: where it lies, and how it is resolved. */
const SOURCE = /^kernels\/(source|files|names)\.ts$/;
const GPU_SIDE = new RegExp(
  `^(gpu|bench|decoder|validate|fit|fidelity|measure|tiny|training)/|${LAUNCH.source}|${REFERENCE.source}`,
);
/** Files of the side that never needs a GPU. */
const planner = files.filter((f) => !GPU_SIDE.test(f) && !GPU_COMMANDS.test(f));

/** Everything that a file loads, at once or later. `stop` ends the walk. */
function reachable(from: string, follow: (i: Import, file: string) => boolean): Set<string> {
  const seen = new Set<string>();
  const queue = [from];
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (seen.has(file)) continue;
    seen.add(file);
    for (const i of imports(file)) if (i.loads && i.target !== null && follow(i, file)) queue.push(i.target);
  }
  return seen;
}

describe('architecture', () => {
  it('reads all of src and kernels', () => {
    expect(files.length).toBeGreaterThan(60);
    expect(files).toContain('plan/plan.ts');
    expect(imports('commands/plan.ts').some((i) => i.target === 'report/plan-csv.ts' && i.dynamic)).toBe(true);
  });

  it('resolves every local import to a file', () => {
    const dangling = files.flatMap((f) =>
      imports(f)
        .filter((i) => i.target !== null && !graph.has(i.target) && !i.target.endsWith('.json'))
        .map((i) => `${f} -> ${i.specifier}`),
    );
    expect(dangling).toEqual([]);
  });

  it('keeps the planner apart from the GPU side, statically and dynamically', () => {
    const wrong = planner.flatMap((f) =>
      imports(f)
        .filter((i) => i.target !== null && GPU_SIDE.test(i.target))
        .map((i) => `${f} -> ${i.target}`),
    );
    expect(wrong).toEqual([]);
  });

  it('never computes the name of a module to load', () => {
    expect(planner.filter((f) => imports(f).some((i) => i.specifier === '<computed>'))).toEqual([]);
  });

  it('plan reaches neither the GPU side nor Dawn through anything that it may load', () => {
    const reached = reachable('commands/plan.ts', () => true);
    expect(reached.has('plan/plan.ts')).toBe(true);
    expect([...reached].filter((f) => GPU_SIDE.test(f))).toEqual([]);
    expect([...reached].filter((f) => imports(f).some((i) => i.specifier === 'webgpu'))).toEqual([]);
  });

  it('keeps the parts of a kernel apart: terms for all, launch for the GPU side, reference for bench', () => {
    const kernels = files.filter((f) => f.startsWith('kernels/'));
    const terms = kernels.filter((f) => !LAUNCH.test(f) && !REFERENCE.test(f) && !SOURCE.test(f));
    expect(terms.filter((f) => f.endsWith('/terms.ts')).length).toBeGreaterThan(20);
    const edges = (from: readonly string[], wrong: (target: string) => boolean): string[] =>
      from.flatMap((f) =>
        imports(f)
          .filter((i) => i.target !== null && wrong(i.target))
          .map((i) => `${f} -> ${i.target}`),
      );
    expect(edges(terms, (to) => !terms.includes(to))).toEqual([]);
    // They run in a browser too: the page of a report holds them and nothing else of a kernel.
    expect(terms.filter((f) => imports(f).some((i) => i.target === null))).toEqual([]);
    const inPage = [...reachable('report/html/page.ts', () => true)].filter((f) => f.startsWith('kernels/'));
    expect(inPage).toContain('kernels/attend/terms.ts');
    expect(inPage.filter((f) => !terms.includes(f))).toEqual([]);
    expect(
      edges(
        files.filter((f) => !GPU_SIDE.test(f) && !GPU_COMMANDS.test(f)),
        (to) => LAUNCH.test(to),
      ),
    ).toEqual([]);
    expect(
      edges(
        files.filter((f) => !f.startsWith('bench/') && !REFERENCE.test(f)),
        (to) => REFERENCE.test(to),
      ),
    ).toEqual([]);
    // A folder is a kernel, shared, or WGSL alone.
    const folders = new Set(kernels.filter((f) => f.split('/').length === 3).map((f) => f.split('/')[1]));
    for (const folder of folders)
      if (!['shared', 'tables', 'host'].includes(folder as string))
        for (const part of ['terms', 'launch', 'reference']) expect(kernels).toContain(`kernels/${folder}/${part}.ts`);
  });

  it('has one list of kernels: their folders, in tables that are written from them', () => {
    execFileSync(process.execPath, ['scripts/write-kernel-tables.mjs', '--check'], { cwd: ROOT });
    expect([...KERNEL_NAMES].sort()).toEqual(Object.keys(TERMS).sort());
  });

  it('has kernels below all rooms but the arithmetic of codecs, which references and tests of stored rows use', () => {
    const own = /^(kernels|numbers)\/|^errors\.ts$|^io\/root\.ts$/;
    const above = files
      .filter((f) => f.startsWith('kernels/'))
      .flatMap((f) => imports(f).flatMap(({ target }) => (target && !own.test(target) ? [`${f} -> ${target}`] : [])));
    expect(above.sort()).toEqual([
      'kernels/append_residual/reference.ts -> codecs/residual.ts',
      'kernels/append_residual/reference.ts -> codecs/small-floats.ts',
      'kernels/append_residual/reference.ts -> gpu/residual-layout.ts',
      'kernels/attend_residual/reference.ts -> gpu/residual-layout.ts',
      'kernels/shared/cache/cache.reference.ts -> codecs/quantise.ts',
    ]);
  });

  it('measures without Node: no module of the measuring page imports it', () => {
    const loaded = reachable('measure/page.ts', () => true);
    expect([...loaded]).toEqual(
      expect.arrayContaining([
        'bench/calibrate/calibrate.ts',
        'gpu/browser.ts',
        'kernels/launches.ts',
        'kernels/references.ts',
      ]),
    );
    const native = [...loaded].filter((f) =>
      imports(f).some((i) => i.loads && (i.specifier.startsWith('node:') || i.specifier === 'webgpu')),
    );
    // The bundle of a page has the texts of the kernels in place of kernels/files.ts, which alone loads io/root.ts, and
    // a refusal in place of plan/ask/depth-trace.ts, which alone loads io/files.ts.
    expect(native.sort()).toEqual(['io/files.ts', 'io/root.ts', 'kernels/files.ts']);
    expect([...loaded].filter((f) => f !== 'plan/ask/depth-trace.ts' && text(f).includes("/files.js'"))).toEqual([
      'kernels/source.ts',
    ]);
    const globals = [...loaded].filter(
      (f) =>
        f !== 'io/files.ts' && /\bprocess\.(env|hrtime|platform|std|cwd|on|argv)|\bBuffer\.(from|alloc)/.test(text(f)),
    );
    expect(globals).toEqual([]);
  });

  it('imports Dawn (webgpu) in src/gpu only', () => {
    const importers = files.filter((f) => imports(f).some((i) => i.specifier === 'webgpu'));
    expect(importers.filter((f) => !f.startsWith('gpu/'))).toEqual([]);
    expect(importers.length).toBeGreaterThan(0);
  });

  it('lets the float64 decoder run without a GPU', () => {
    const reference = files.filter((f) => f.startsWith('decoder/') && !f.startsWith('decoder/gpu/'));
    expect(reference.length).toBeGreaterThan(10);
    const reaching = reference.filter((f) =>
      [...reachable(f, () => true)].some((g) => imports(g).some((i) => i.specifier === 'webgpu')),
    );
    expect(reaching).toEqual([]);
    expect(
      reference.flatMap((f) =>
        imports(f)
          .filter((i) => i.target?.startsWith('decoder/gpu/'))
          .map((i) => `${f} -> ${i.target}`),
      ),
    ).toEqual([]);
  });

  it('the GPU decoder knows the GPU, what it executes and what it is specified by, and nothing else', () => {
    const rooms = /^(decoder|gpu|kernels|schedule|codecs|eviction|geometry)\/|^errors\.ts$|^numbers\/hash\.ts$/;
    const own = files.filter((f) => f.startsWith('decoder/gpu/'));
    expect(own.length).toBeGreaterThan(5);
    const strangers = own.flatMap((f) =>
      imports(f)
        .filter((i) => i.target !== null && !rooms.test(i.target))
        .map((i) => `${f} -> ${i.target}`),
    );
    expect(strangers).toEqual([]);
    // The reference is what it is tested against: nothing may be computed by it.
    expect(
      own.flatMap((f) =>
        imports(f)
          .filter((i) => i.target?.startsWith('decoder/reference/'))
          .map((i) => `${f} -> ${i.target}`),
      ),
    ).toEqual([]);
  });

  it('has no import cycle among modules that load each other; of types none from kernels to the GPU decoder', () => {
    const layered = /^(kernels|gpu|geometry|codecs|eviction|schedule|decoder\/gpu)\//;
    const state = new Map<string, 'open' | 'done'>();
    const cycles: string[] = [];
    const walk = (file: string, path: readonly string[]): void => {
      if (state.get(file) === 'done') return;
      if (state.get(file) === 'open') {
        cycles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
        return;
      }
      state.set(file, 'open');
      for (const i of imports(file))
        if ((i.loads || layered.test(file)) && !i.dynamic && i.target !== null && graph.has(i.target))
          walk(i.target, [...path, file]);
      state.set(file, 'done');
    };
    for (const f of files) walk(f, []);
    expect(cycles).toEqual([]);
  });

  it('lets data flow one way between the rooms', () => {
    // Types as well.
    const order = [
      ['numbers', 'errors.ts', 'nearest.ts', 'present.ts', 'version.ts', 'kernels'],
      ['schema', 'geometry', 'devices'],
      ['codecs', 'eviction', 'schedule'],
      ['quality'],
      ['cost'],
      ['stacks'],
      ['plan'],
      ['serving'],
      ['report'],
      ['paper'],
      ['ranking'],
      ['commands'],
      ['cli.ts'],
    ];
    const levelOf = (file: string): number => order.findIndex((rooms) => rooms.includes(file.split('/')[0] as string));
    const backwards = planner.flatMap((f) =>
      imports(f)
        .filter((i) => i.target !== null && levelOf(f) >= 0 && levelOf(i.target) > levelOf(f))
        .map((i) => `${f} -> ${i.target}`),
    );
    const allowed = new Set([
      // Scenario files are read with the planner's reader.
      'schema/scenario.ts -> plan/ask/calibrations.ts',
      // The names of codecs, paths and policies are the choices of settings.
      'schema/settings.ts -> codecs/codec.ts',
      'schema/settings.ts -> eviction/policy.ts',
      'schema/codec.ts -> codecs/codec.ts',
      'schema/fidelity.ts -> codecs/codec.ts',
    ]);
    expect(backwards.filter((edge) => !allowed.has(edge))).toEqual([]);
  });

  // Signal 0 only asks whether a process lives.
  it('ends the process in cli.ts only', () => {
    const enders = files.filter((f) =>
      /process\s*\.\s*((exit|abort|reallyExit)\s*\(|kill\s*\((?!pid, 0\))|exitCode\s*=)/.test(text(f)),
    );
    expect(enders).toEqual(['cli.ts']);
  });

  it('keeps files short enough to read', () => {
    const long = files.filter((f) => text(f).split('\n').length > 650);
    expect(long).toEqual([]);
  });

  it('imports only declared packages and node:; the library only those that an install brings', () => {
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
      devDependencies: Record<string, string>;
    };
    // The build bundles what the command line alone imports.
    const library = reachable('index.ts', () => true);
    const declared = (f: string): Record<string, string> =>
      library.has(f) ? manifest.dependencies : { ...manifest.dependencies, ...manifest.devDependencies };
    expect(library.size).toBeGreaterThan(50);
    const undeclared = files.flatMap((f) =>
      imports(f)
        .filter((i) => i.target === null && i.loads && !i.specifier.startsWith('node:') && i.specifier !== '<computed>')
        .filter(
          (i) =>
            !Object.hasOwn(
              declared(f),
              i.specifier
                .split('/')
                .slice(0, i.specifier.startsWith('@') ? 2 : 1)
                .join('/'),
            ),
        )
        .map((i) => `${f} -> ${i.specifier}`),
    );
    expect(undeclared).toEqual([]);
  });

  it('scripts load modules that exist', () => {
    const named = readdirSync(join(ROOT, 'scripts')).flatMap((name) =>
      [...readFileSync(join(ROOT, 'scripts', name), 'utf8').matchAll(/dist\/((?:src|kernels)\/[\w/-]+)\.js/g)].map(
        ([, path]) => `${path}.ts`,
      ),
    );
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});
