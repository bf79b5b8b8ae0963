/** The head of a page that stands alone in its file. */
import { policyHash } from '../../numbers/sha256.js';
import { VERSION } from '../../version.js';
import { html, Html } from './html.js';

/**
 * From the doctype to the end of the head. The content policy allows one style and these scripts, by hash, and no
 * request.
 * @param scripts the page's programs, which the caller puts at the page's end
 * @param workers the program starts workers from its own text
 * @throws where a script holds what would end its element
 */
export function pageHead({
  title,
  style,
  scripts,
  workers = false,
}: {
  readonly title: string;
  readonly style: string;
  readonly scripts: readonly string[];
  readonly workers?: boolean;
}): Html {
  if (scripts.some((script) => /<\/script|<!--/i.test(script)))
    throw new Error('the page program must not hold the end of a script element');
  const allowed = `style-src ${policyHash(style)}; script-src ${scripts.map(policyHash).join(' ')};`;
  const worker = workers ? ' worker-src blob:;' : '';
  const policy = `default-src 'none'; ${allowed}${worker} base-uri 'none'; form-action 'none'`;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="lla-sim ${VERSION}">
<title>${title}</title>
<style>${new Html(style)}</style>
</head>`;
}
