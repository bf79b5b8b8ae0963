/** What a command is: its options, declared once for parsing, help and shell completion, and what it does. */
import type { ExitCode } from '../errors.js';
import { parseNumber } from '../numbers/units.js';

export interface OptionSpec {
  readonly type: 'string' | 'boolean';
  readonly help: string;
  /** May be given several times, and holds several values separated by commas. */
  readonly multiple?: boolean;
  readonly short?: string;
  /** A second name. */
  readonly alias?: string;
  /** Heading in the help. */
  readonly group?: string;
  /** The only values that it takes. */
  readonly choices?: readonly string[];
  /** What to write in place of it: the option is another command's, understood and refused. No help lists it. */
  readonly refused?: string;
  /** Values that a shell proposes, of an option that takes others too. */
  readonly proposals?: readonly string[];
}

type More = Omit<OptionSpec, 'type' | 'help' | 'group'>;

/** An option with a value. @param group its heading in the help; null: none */
export const option = (help: string, group: string | null = null, more: More = {}): OptionSpec => ({
  type: 'string',
  help,
  ...(group === null ? {} : { group }),
  ...more,
});

/** An option without a value. */
export const toggle = (help: string, group: string | null = null): OptionSpec => ({
  ...option(help, group),
  type: 'boolean',
});

export type OptionTable = Readonly<Record<string, OptionSpec>>;

/** Most options that --help shows of a command, itself among them. */
export const MOST_SHOWN = 12;

export interface Command {
  readonly options: OptionTable;
  /** Options that --help shows, where they are more than MOST_SHOWN; --help all shows the others. */
  readonly shown?: readonly string[];
  /** Name of the positional argument, where the command takes one. */
  readonly positional?: { readonly name: string; readonly help: string };
  /** Name of a second one. */
  readonly secondPositional?: { readonly name: string; readonly help: string };
  readonly examples: readonly (readonly [command: string, meaning: string])[];
  run(args: Args): Promise<ExitCode>;
}

/** What a command line says. */
export class Args {
  /** @param flags by their first name: text, true, or a list for those that hold several values */
  constructor(
    readonly flags: Readonly<Record<string, string | boolean | readonly string[] | undefined>>,
    readonly positional: string | null = null,
    readonly secondPositional: string | null = null,
  ) {}

  /** A flag's text, or null. */
  text(name: string): string | null {
    const given = this.flags[name];
    return typeof given === 'string' ? given : null;
  }

  /** Whether a flag without a value is given. */
  isSet(name: string): boolean {
    return this.flags[name] === true;
  }

  /** The value of a flag whose choices these are; the first where it is not given. */
  choice<T extends string>(name: string, choices: readonly T[]): T {
    return (this.text(name) ?? choices[0]) as T;
  }

  /** The values of a flag that holds several, out of its choices; null where it is not given. */
  choices<T extends string>(name: string): readonly T[] | null {
    const given = this.flags[name];
    return Array.isArray(given) ? (given as T[]) : null;
  }

  /** The number of a flag, or of `otherwise`. @throws UserError as parseNumber does */
  number(name: string, otherwise: string, rule: Parameters<typeof parseNumber>[2]): number {
    return parseNumber(this.text(name) ?? otherwise, `--${name}`, rule);
  }

  /** `--seed`, a whole number of 32 bits. */
  seed(otherwise = '0'): number {
    return this.number('seed', otherwise, { min: 0, max: 2 ** 32 - 1, whole: true });
  }

  /** Which adapter is opened: `--adapter` and `--backend`. */
  adapter(): { adapter?: string; backend?: string } {
    const [adapter, backend] = [this.text('adapter'), this.text('backend')];
    return { ...(adapter === null ? {} : { adapter }), ...(backend === null ? {} : { backend }) };
  }

  /** Where a result goes. */
  output(): { readonly file: string | null; readonly quiet: boolean } {
    return { file: this.text('output'), quiet: this.isSet('quiet') };
  }
}

/** Options that every command has, beside --help. */
export const COMMON: OptionTable = { quiet: toggle('no progress and no warnings', 'Output') };

export const OUTPUT: OptionTable = {
  output: option('write to this file instead of the terminal', 'Output', { short: 'o' }),
};

/** Backends of Dawn that this platform may have; a driver decides whether one does. */
const BACKENDS: Partial<Record<NodeJS.Platform, readonly string[]>> = { darwin: ['metal'], win32: ['d3d12', 'vulkan'] };

/** Which adapter is opened, where there are several. */
export const ADAPTER: OptionTable = {
  adapter: option('part of the name of the adapter, where there are several'),
  backend: option("Dawn backend [the platform's own]", null, { choices: BACKENDS[process.platform] ?? ['vulkan'] }),
};

/** How a command prints; the first is the default. */
export const formatOption = (formats: readonly string[]): OptionTable => ({
  format: option(`how to print [${formats[0]}]`, 'Output', { choices: formats }),
});
