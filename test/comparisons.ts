/**
 * Comparisons with the name of a codec kind, path or eviction policy, found on the syntax tree: `===` and its kin,
 * switch cases, arguments of includes, has, get, startsWith and the like, `in`, members of sets and maps, keys of
 * look-up tables, indexing by a name, and constants that stand for a name.
 */
import ts from 'typescript';
import { CODEC_KINDS, PATH_CHOICES, PATHS } from '../src/codecs/codec.js';

export const NAMES: ReadonlySet<string> = new Set([
  ...CODEC_KINDS,
  ...PATHS,
  ...PATH_CHOICES,
  'streaming',
  'h2o',
  'budget',
]);

export interface Comparison {
  readonly line: number;
  readonly name: string;
  readonly text: string;
}

const EQUALITY = new Set([
  ts.SyntaxKind.EqualsEqualsEqualsToken,
  ts.SyntaxKind.ExclamationEqualsEqualsToken,
  ts.SyntaxKind.EqualsEqualsToken,
  ts.SyntaxKind.ExclamationEqualsToken,
]);
/** Methods that compare their argument with what they are called on. */
const METHODS = new Set(['includes', 'has', 'get', 'startsWith', 'endsWith', 'indexOf', 'is', 'test', 'exec', 'match']);

/** All comparisons of a file with a name. @param text TypeScript */
export function comparisonsIn(file: string, text: string): Comparison[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, false);
  const found: Comparison[] = [];
  const add = (node: ts.Node, name: string): void => {
    const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line;
    found.push({ line: line + 1, name, text: (text.split('\n')[line] ?? '').trim() });
  };
  /** A name that is written as a string, behind `as const`, parentheses and the like. */
  const nameOf = (node: ts.Expression | undefined): string | undefined => {
    let at = node;
    while (at && (ts.isAsExpression(at) || ts.isParenthesizedExpression(at) || ts.isSatisfiesExpression(at)))
      at = at.expression;
    return at && ts.isStringLiteralLike(at) && NAMES.has(at.text.replace(/[-:]$/, '')) ? at.text : undefined;
  };
  const each = (nodes: readonly (ts.Expression | undefined)[]): void => {
    for (const node of nodes) {
      const name = nameOf(node);
      if (node && name !== undefined) add(node, name);
    }
  };
  /** Names in an array (or in the pairs of one) that a set, a map or `includes` searches. */
  const members = (node: ts.Expression | undefined): void => {
    if (!node || !ts.isArrayLiteralExpression(node)) return;
    each(node.elements);
    for (const pair of node.elements) if (ts.isArrayLiteralExpression(pair)) each(pair.elements.slice(0, 1));
  };
  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node)) return;
    if (ts.isRegularExpressionLiteral(node))
      for (const name of NAMES) if (new RegExp(`(?<![\\w-])${name}(?![\\w]|-\\w)`).test(node.text)) add(node, name);
    if (ts.isBinaryExpression(node) && EQUALITY.has(node.operatorToken.kind)) each([node.left, node.right]);
    else if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.InKeyword) each([node.left]);
    else if (ts.isCaseClause(node)) each([node.expression]);
    else if (ts.isElementAccessExpression(node)) each([node.argumentExpression]);
    else if (ts.isVariableDeclaration(node)) each([node.initializer]);
    else if (ts.isNewExpression(node)) members(node.arguments?.[0]);
    else if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      if (METHODS.has(node.expression.name.text)) {
        each(node.arguments);
        members(node.expression.expression);
      }
    } else if (ts.isObjectLiteralExpression(node)) {
      const keys = node.properties.flatMap(({ name }) =>
        name && (ts.isIdentifier(name) || ts.isStringLiteral(name)) && NAMES.has(name.text) ? [name] : [],
      );
      // A single key may be a field of a record, such as `budget` of a command.
      if (keys.length > 1 || keys.some(ts.isStringLiteral)) for (const key of keys) add(key, key.text);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}
