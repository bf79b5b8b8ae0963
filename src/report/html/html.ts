/** HTML from templates in which every value is escaped, unless it is HTML already. */

/** HTML that was built here: what is in it was escaped. */
export class Html {
  constructor(readonly text: string) {}
  toString(): string {
    return this.text;
  }
}

type Value = Html | string | number | boolean | null | undefined | readonly Value[];

/**
 * Text as HTML shows it, in content and in quoted attributes. Control characters, which HTML forbids, become U+FFFD.
 */
export function escapeHtml(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '\ufffd')
    .replace(/[&<>"'`]/g, (c) => `&#${c.charCodeAt(0)};`);
}

function written(value: Value): string {
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return (value as readonly Value[]).map(written).join('');
  if (value === null || value === undefined || value === false || value === true) return '';
  return escapeHtml(String(value as string | number));
}

/** A template: html`<p>${text}</p>`. */
export function html(parts: TemplateStringsArray, ...values: readonly Value[]): Html {
  return new Html(parts.map((part, i) => (i === 0 ? part : written(values[i - 1]) + part)).join(''));
}
