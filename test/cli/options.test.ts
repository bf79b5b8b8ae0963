/** Options as yargs reads them: what a value becomes, what is refused and in which words, help, completion. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CODEC_KINDS } from '../../src/codecs/codec.js';
import { PLANNED_KINDS } from '../../src/codecs/registry.js';
import { MOST_SHOWN } from '../../src/commands/command.js';
import { COMMANDS } from '../../src/commands/commands.js';
import { ELSEWHERE } from '../../src/schema/other-names.js';
import { parse, takenBy } from '../../src/commands/parser.js';
import { DEVICES } from '../../src/devices/catalogue.js';
import { UserError } from '../../src/errors.js';
import { PRESET_NAMES } from '../../src/geometry/presets.js';
import { SETTINGS } from '../../src/schema/settings.js';
import { inProcess, words } from './program.js';

const argsOf = async (...argv: string[]): Promise<unknown> => (await parse(argv))?.args;

/** The error of a command line, as it is printed. */
async function refusal(...argv: string[]): Promise<string> {
  const error = await parse(argv).catch((e: unknown) => e);
  if (!(error instanceof UserError)) throw new Error(`${argv.join(' ')} is not refused: ${String(error)}`);
  expect(error.exitCode).toBe(2);
  return `${error.message}; ${error.hint}`;
}

/** What a shell is told after these words, the last of which is being typed. */
async function completionsOf(...typed: string[]): Promise<string[]> {
  const o = await inProcess('--get-yargs-completions', 'lla-sim', ...typed);
  return o.out.split('\n').filter((line) => line !== '');
}

describe('values', () => {
  it('are taken as they are written', async () => {
    for (const given of [
      ['plan', 's.yaml', '--vram', '080', '--codec', 'full, lla', '--codec=cla', '--all', '-o', '-'],
      ['plan', '--vram=080', '--codec', 'full,lla,cla', '--all', '--output', '-', '--', 's.yaml'],
    ])
      expect(await argsOf(...given)).toEqual({
        positional: 's.yaml',
        secondPositional: null,
        flags: { vram: '080', codec: ['full', 'lla', 'cla'], all: true, output: '-' },
      });
    expect(await argsOf('plan', '--context', '4k', '--batch', '-4')).toEqual({
      positional: null,
      secondPositional: null,
      flags: { ctx: '4k', batch: '-4' },
    });
  });

  it('of any text reach the command unchanged', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', minLength: 1 }), async (text) => {
        fc.pre(text.trim() !== '');
        expect(await argsOf('plan', `--model=${text}`)).toMatchObject({ positional: null, flags: { model: text } });
      }),
      { numRuns: 40 },
    );
  });
});

describe('refusals name the option, the rule and the cure', () => {
  const oneOf = (flag: string, choices: string, given: string): string =>
    `--${flag} must be one of ${choices}, not "${given}"; write for example`;
  it.each([
    ['plan --vrm 80GB', 'unknown option "--vrm"; did you mean --vram? see lla-sim plan --help'],
    ['simulate --output-tokens 10 --tp 2', 'unknown option "--tp"; here it is --gpus; see lla-sim simulate --help'],
    ['plan --tp 2', 'unknown option "--tp"; here it is --gpus; see lla-sim plan --help'],
    ['plan --context-length 2k', 'unknown option "--context-length"; here it is --ctx; see lla-sim plan --help'],
    ['plan --qps 2', 'unknown option "--qps"; lla-sim simulate has --rate; see lla-sim plan --help'],
    ['simulate --qps 2', 'unknown option "--qps"; here it is --rate; see lla-sim simulate --help'],
    ['bench --tp 2', 'unknown option "--tp"; see lla-sim bench --help'],
    ['plan -x', 'unknown option "-x"; see lla-sim plan --help'],
    ['plan --no-all', 'unknown option "--no-all"; did you mean --all? see lla-sim plan --help'],
    ['plan --vram.x 1', 'unknown option "--vram.x"; did you mean --vram? see lla-sim plan --help'],
    ['plan --ctx 4k --vram', '--vram needs a value; write one after it; see lla-sim plan --help'],
    ['plan --vram --ctx 4k', '--vram needs a value; write one after it; see lla-sim plan --help'],
    ['plan --vram=', '--vram needs a value; write one after it; see lla-sim plan --help'],
    ['plan --ratio=', '--ratio needs a value; write one after it; see lla-sim plan --help'],
    ['plan --all=1', '--all takes no value; write --all alone'],
    ['plan --help=1', '--help takes no value; write --help, or --help all'],
    ['plan --vram 1GB --vram 2GB', '--vram is given more than once; give it once'],
    ['plan --ctx 1k --context 2k', '--ctx is given more than once; give it once'],
    ['plan --codec full lla', '"lla" is a value of --codec without a comma before it; write --codec full,lla'],
    ['plan a.yaml b.yaml', '"b.yaml" is one word too many; lla-sim plan takes one scenario; see lla-sim plan --help'],
    ['plan --version', 'unknown option "--version"; see lla-sim plan --help'],
    ['models x y', '"y" is one word too many; lla-sim models takes one name; see lla-sim models --help'],
    ['bench --shapes small,x', `${oneOf('shapes', 'attention, products, small', 'x')} --shapes products`],
    ['paper --format csv', `${oneOf('format', 'table, markdown, json', 'csv')} --format markdown`],
    ['completion fish', 'completion scripts are for bash and zsh, not "fish"; see lla-sim completion --help'],
    ['completion zsh bash', '"bash" is one word too many; see lla-sim completion --help'],
    ['completion --shell x', 'unknown option "--shell"; see lla-sim completion --help'],
  ])('%s', async (line, message) => {
    expect(await refusal(...words(line))).toBe(message);
  });

  it.each([
    ['plann --device h200', /^unknown command "plann"; did you mean plan\? /],
    ['plna', /^unknown command "plna"; did you mean plan\? commands: plan, /],
    ['--vram 80GB', /^no command is given before "--vram"; commands: plan, /],
  ])('%s', async (line, message) => expect(await refusal(...words(line))).toMatch(message));

  it('name an option that there is, whatever it is called elsewhere', async () => {
    const flags = new Set<string>();
    for (const { load } of Object.values(COMMANDS))
      for (const flag of Object.keys((await load()).command.options)) flags.add(flag);
    for (const [, here] of ELSEWHERE) for (const flag of here) expect(flags, flag).toContain(flag);
  });

  it('of every choice of every command', async () => {
    for (const [name, { load }] of Object.entries(COMMANDS)) {
      for (const [flag, spec] of Object.entries((await load()).command.options)) {
        if (!spec.choices) continue;
        expect(await refusal(name, `--${flag}`, 'nonsense')).toContain(
          `--${flag} must be one of ${spec.choices.join(', ')}, not "nonsense"`,
        );
        for (const choice of spec.choices) expect(await parse([name, `--${flag}`, choice])).not.toBeNull();
      }
    }
  });
});

describe('help', () => {
  /** The options that a help names. */
  const named = (out: string): string[] =>
    [...out.matchAll(/^ *(?:-\w, )?--([\w-]+)[, ] /gm)].map((m) => m[1] as string);

  it('is printed once; --help all names every option of its command once', async () => {
    for (const [name, { load }] of Object.entries(COMMANDS)) {
      const { command } = await load();
      for (const asked of ['--help all', '--quiet -h all']) {
        const { code, out, err } = await inProcess(name, ...words(asked));
        expect([code, err]).toEqual([0, '']);
        const positionals = [command.positional, command.secondPositional].map((w) => (w ? ` [${w.name}]` : ''));
        expect(out.split(`lla-sim ${name}${positionals.join('')}\n`).length).toBe(2);
        expect(named(out).sort(), name).toEqual([...takenBy(command), 'help'].sort());
      }
      expect(named((await inProcess('--help', name)).out)).toEqual(
        expect.arrayContaining(takenBy(command).filter((flag) => flag in command.options)),
      );
    }
  });

  it('shows at most twelve options of a command, and says how many more there are', async () => {
    for (const [name, { load }] of Object.entries(COMMANDS)) {
      const { command } = await load();
      for (const asked of ['--help', '-h']) {
        const { code, out, err } = await inProcess(name, asked);
        expect([code, err]).toEqual([0, '']);
        const shown = named(out);
        expect(shown.length, name).toBeLessThanOrEqual(MOST_SHOWN);
        const more = takenBy(command).length + 1 - shown.length;
        if (more > 0) expect(out).toContain(`${more} more options: lla-sim ${name} --help all`);
        else expect(out).not.toContain('--help all');
        if (command.shown) expect(shown.sort()).toEqual([...command.shown, 'help'].sort());
      }
    }
  });
});

describe('completion', () => {
  it('has a help, and takes a shell', async () => {
    for (const asked of ['--help', '-h', '--help all']) {
      const { code, out, err } = await inProcess('completion', ...words(asked));
      expect([code, err]).toEqual([0, '']);
      expect(out).toMatch(/^lla-sim completion \[shell\]\n\ncompletion script for bash or zsh \[the one in \$SHELL\]/);
    }
  });

  it('of commands and options', async () => {
    expect(await completionsOf('')).toEqual(expect.arrayContaining(Object.keys(COMMANDS)));
    expect(await completionsOf('plan', '--us')).toContain('--usd-per-hour');
    for (const [name, { load }] of Object.entries(COMMANDS)) {
      const flags = takenBy((await load()).command).filter((flag) => flag !== 'help');
      expect(await completionsOf(name, '--')).toEqual(expect.arrayContaining(flags.map((flag) => `--${flag}`)));
    }
  });

  it('of values: closed lists, names that a file may stand for, lists with commas', async () => {
    expect(await completionsOf('plan', '--codec', '')).toEqual(CODEC_KINDS);
    const asked = CODEC_KINDS.filter((kind) => !PLANNED_KINDS.includes(kind));
    expect(SETTINGS.codec.help).toContain(`[all but ${asked.join(', ')}]`);
    expect(await completionsOf('plan', '--codec', 'full,lla-2')).toEqual(['full,lla-2d']);
    expect(await completionsOf('run', '--path', 'ab')).toEqual(['absorbed']);
    expect(await completionsOf('report', '--device', '')).toEqual(DEVICES.map((d) => d.id));
    expect(await completionsOf('plan', '--model', 'ouro')).toEqual(PRESET_NAMES.filter((n) => n.startsWith('ouro')));
    expect(await completionsOf('plan', '--format', 'm')).toEqual(['markdown']);
  });

  it('leaves files to the shell', async () => {
    for (const typed of ['plan -o ', 'plan --calibration cal', 'plan --model ./'])
      expect(await completionsOf(...words(typed))).toEqual([]);
  });
});
