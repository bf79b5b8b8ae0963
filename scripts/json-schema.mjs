/**
 * JSON Schemas of TypeScript types, read from the declarations that a build leaves in dist/. What JSON cannot hold
 * (functions) is left out; objects have no other fields than their type.
 */
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** A program over declarations, for whoever reads types or docstrings. */
export function declarations(file) {
  const path = fileURLToPath(new URL(`../dist/src/${file}`, import.meta.url));
  const program = ts.createProgram([path], {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    lib: ['lib.es2023.d.ts'],
    types: [],
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    noEmit: true,
  });
  const source = program.getSourceFile(path);
  if (!source) throw new Error(`${path} is missing: npm run build first`);
  const checker = program.getTypeChecker();
  return { checker, exported: checker.getExportsOfModule(checker.getSymbolAtLocation(source)) };
}

/** The words of a docstring, in one line. */
export const wordsOf = (symbol, checker) =>
  ts.displayPartsToString(symbol.getDocumentationComment(checker)).replace(/\s+/g, ' ').trim();

/** Schemas of an interface's fields, by name. */
export function schemasOf(file, interfaceName) {
  const { checker, exported } = declarations(file);
  const found = exported.find(({ name }) => name === interfaceName);
  if (!found) throw new Error(`${file} exports no ${interfaceName}`);
  const fields = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(found));
  return new Map(
    fields.map((field) => {
      const writer = new Writer(checker);
      const root = writer.of(checker.getTypeOfSymbol(field), true);
      return [field.name, { description: wordsOf(field, checker), ...root, definitions: writer.definitions() }];
    }),
  );
}

/** Types of one schema; those with names are written once, as definitions. */
class Writer {
  #checker;
  #names = new Map();
  #written = new Map();

  constructor(checker) {
    this.#checker = checker;
  }

  definitions() {
    return Object.fromEntries([...this.#written].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** @param inline a type with a name is written here too */
  of(type, inline = false) {
    const checker = this.#checker;
    if (type.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) return {};
    if (type.flags & ts.TypeFlags.Null) return { type: 'null' };
    if (type.isStringLiteral() || type.isNumberLiteral()) return { const: type.value };
    if (type.flags & ts.TypeFlags.BooleanLiteral) return { const: type.intrinsicName === 'true' };
    if (type.flags & ts.TypeFlags.Boolean) return { type: 'boolean' };
    if (type.flags & ts.TypeFlags.Number) return { type: 'number' };
    if (type.flags & (ts.TypeFlags.String | ts.TypeFlags.TemplateLiteral)) return { type: 'string' };
    if (type.isUnion()) return this.#union(type);
    if (checker.isTupleType(type)) {
      const items = checker.getTypeArguments(type).map((t) => this.of(t));
      return { type: 'array', items, minItems: items.length, maxItems: items.length };
    }
    if (checker.isArrayType(type)) return { type: 'array', items: this.of(checker.getTypeArguments(type)[0]) };
    const name = inline ? null : this.#nameOf(type);
    if (name === null) return this.#object(type);
    if (!this.#written.has(name)) {
      this.#written.set(name, {});
      this.#written.set(name, this.#object(type));
    }
    return { $ref: `#/definitions/${name}` };
  }

  /** The name of a declared type without arguments; two types of one name are numbered. */
  #nameOf(type) {
    if (this.#names.has(type)) return this.#names.get(type);
    const symbol = type.aliasSymbol ?? type.symbol;
    const given = type.aliasTypeArguments ?? (type.flags & ts.TypeFlags.Object ? type.typeArguments : undefined);
    const anonymous = !symbol || symbol.name.startsWith('__') || (given?.length ?? 0) > 0;
    const taken = new Set(this.#names.values());
    let name = anonymous ? null : symbol.name;
    for (let i = 2; name !== null && taken.has(name); i++) name = `${symbol.name}${i}`;
    this.#names.set(type, name);
    return name;
  }

  #union(type) {
    const parts = type.types.filter((t) => !(t.flags & ts.TypeFlags.Undefined));
    const isLiteral = (t) => t.isStringLiteral() || t.isNumberLiteral();
    const both = parts.filter((t) => t.flags & ts.TypeFlags.BooleanLiteral).length === 2;
    const literals = parts.filter(isLiteral).map((t) => t.value);
    const others = parts.filter((t) => !isLiteral(t) && !(both && t.flags & ts.TypeFlags.BooleanLiteral));
    const schemas = [
      ...(literals.length > 0 ? [literals.length === 1 ? { const: literals[0] } : { enum: literals }] : []),
      ...(both ? [{ type: 'boolean' }] : []),
      ...others.map((t) => this.of(t)),
    ];
    if (schemas.length === 1) return schemas[0];
    // Words and null alike are one list of types.
    if (schemas.every((s) => Object.keys(s).join() === 'type')) return { type: schemas.map((s) => s.type) };
    return { anyOf: schemas };
  }

  #object(type) {
    const checker = this.#checker;
    const properties = {};
    const required = [];
    for (const field of checker.getPropertiesOfType(type)) {
      const of = checker.getTypeOfSymbol(field);
      if (of.getCallSignatures().length > 0) continue;
      const description = wordsOf(field, checker);
      const schema = this.of(of);
      // Beside $ref other words would be ignored.
      properties[field.name] =
        description === '' ? schema : { description, ...('$ref' in schema ? { allOf: [schema] } : schema) };
      if (!(field.flags & ts.SymbolFlags.Optional)) required.push(field.name);
    }
    const index = checker.getIndexInfoOfType(type, ts.IndexKind.String) ?? checker.getIndexInfosOfType(type)[0];
    return {
      type: 'object',
      properties,
      ...(required.length > 0 ? { required } : {}),
      additionalProperties: index ? this.of(index.type) : false,
    };
  }
}
