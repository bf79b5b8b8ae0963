/** docs/api.md: the library's exports with their docstrings, read from the declarations of a build. */
import { format } from 'prettier';
import ts from 'typescript';
import { declarations } from './json-schema.mjs';

const INTRODUCTION = `# The library

What \`import ... from 'lla-sim'\` gives: the planner without the command line, for Node and bundlers, with
ES modules and types. [An example](commands.md#as-a-library). \`npm run schema\` writes this page from the docstrings.

Units are base units, and a name ends with its unit where a number has one: bytes, seconds, tokens, operations, scalars.
Every function checks its arguments and throws a \`UserError\` that names the one that is wrong.
`;

const { SymbolFlags, TypeFormatFlags } = ts;
const FLAGS = TypeFormatFlags.NoTruncation | TypeFormatFlags.UseAliasDefinedOutsideCurrentScope;

/** The text of the page. */
export async function apiPage() {
  const { checker, exported } = declarations('index.d.ts');
  const found = new Map();
  for (const e of exported) found.set(e.name, e.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(e) : e);
  const own = new Set(found.keys());
  for (const symbol of [...found.values()])
    for (const call of callsOf(symbol, checker))
      for (const type of [...call.parameters.map((p) => checker.getTypeOfSymbol(p)), call.getReturnType()])
        for (const named of namedIn(type, checker)) if (!found.has(named.name)) found.set(named.name, named);
  const parts = { Functions: [], Values: [], Types: [], 'Types without an export': [] };
  for (const [name, symbol] of [...found].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const isFunction = callsOf(symbol, checker).length > 0;
    const kind = isFunction ? 'Functions' : symbol.flags & SymbolFlags.Value ? 'Values' : 'Types';
    const code = await tidy(codeOf(name, symbol, checker));
    const said = `### ${name}\n\n${words(symbol, checker)}\`\`\`ts\n${code}\`\`\`\n`;
    parts[own.has(name) ? kind : 'Types without an export'].push(said);
  }
  const listed = Object.entries(parts).map(([title, items]) => `## ${title}\n\n${items.join('\n')}`);
  return [INTRODUCTION, ...listed].join('\n');
}

const callsOf = (symbol, checker) =>
  symbol.flags & SymbolFlags.Class ? [] : checker.getTypeOfSymbol(symbol).getCallSignatures();

/** Types of this project that a type of a signature names: itself, elements of a list, what a promise holds. */
function namedIn(type, checker) {
  const parts = type.isUnion() && !type.aliasSymbol ? type.types : [type];
  return parts.flatMap((part) => {
    const symbol = part.aliasSymbol ?? part.symbol;
    const inside = (checker.getTypeArguments?.(part) ?? []).flatMap((t) => namedIn(t, checker));
    const isOurs = symbol?.declarations?.some((d) => !/node_modules/.test(d.getSourceFile().fileName));
    const isNamed =
      isOurs && !symbol.name.startsWith('__') && symbol.flags & (SymbolFlags.Interface | SymbolFlags.TypeAlias);
    return isNamed ? [symbol, ...inside] : inside;
  });
}

/** How a symbol is declared. */
function codeOf(name, symbol, checker) {
  const [call] = callsOf(symbol, checker);
  if (call) return `function ${name}${checker.signatureToString(call, undefined, FLAGS)};`;
  if (symbol.flags & SymbolFlags.TypeAlias) {
    const type = checker.getDeclaredTypeOfSymbol(symbol);
    return `type ${name} = ${checker.typeToString(type, undefined, FLAGS | TypeFormatFlags.InTypeAlias)};`;
  }
  if (symbol.flags & (SymbolFlags.Class | SymbolFlags.Interface)) return symbol.declarations[0].getText();
  return `const ${name}: ${checker.typeToString(checker.getTypeOfSymbol(symbol), undefined, FLAGS)};`;
}

/** A docstring: its words, then its parameters, result and errors. */
function words(symbol, checker) {
  const said = ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
  const tags = symbol.getJsDocTags(checker).map(({ name, text }) => {
    const value = ts.displayPartsToString(text).replace(/\s+/g, ' ').trim();
    if (name === 'param') return `- ${value.replace(/^(\S+)/, '`$1`:')}`;
    return name === 'throws' ? `- Throws ${value}` : `- Returns ${value}`;
  });
  return [said, tags.join('\n')]
    .filter((part) => part !== '')
    .map((part) => `${part}\n\n`)
    .join('');
}

/** A declaration as the project's formatter writes it, without the keywords of declaration files. */
const tidy = (code) =>
  format(code.replace(/^export (declare )?/, '').replace(/^class/, 'declare class'), {
    parser: 'typescript',
    printWidth: 100,
    singleQuote: true,
  });
