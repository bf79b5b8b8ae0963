/** What the program prints as JSON, held against its published schema (schemas/). */
import { Ajv, type ValidateFunction } from 'ajv';
import { readFileSync } from 'node:fs';

const schemas = new Ajv({ allowUnionTypes: true, inlineRefs: false, validateSchema: false, code: { optimize: false } });
const compiled = new Map<string, ValidateFunction>();

/** @throws where the text is no JSON, names no published schema, or is not as that schema says */
export function checkPublished(text: string): void {
  const json = JSON.parse(text) as { schema?: unknown };
  const name = /^lla-sim\/([a-z]+)$/.exec(String(json.schema))?.[1];
  if (name === undefined) throw new Error(`no schema is named: ${text.slice(0, 80)}`);
  const check =
    compiled.get(name) ??
    schemas.compile(
      JSON.parse(readFileSync(new URL(`../../schemas/${name}.schema.json`, import.meta.url), 'utf8')) as object,
    );
  compiled.set(name, check);
  if (!check(json)) {
    const [error] = check.errors ?? [];
    throw new Error(`${name}${error?.instancePath} ${error?.message} ${JSON.stringify(error?.params)}`);
  }
}
