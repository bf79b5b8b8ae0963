/**
 * Writes the project's documents and pages as one static site, which works under any path and from disk:
 *
 *   npm run build && npm run site [FOLDER]      site/ unless given
 *
 * Every Markdown page that README leads to becomes HTML (marked), with the links between them; what else they link to
 * is copied. A search page holds the text of all. No page makes a request or runs a script, but for those that plan,
 * measure and search.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, posix, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Marked } from 'marked';
import { escapeHtml } from '../dist/src/report/html/html.js';
import { STYLE } from '../dist/src/report/html/style.js';
import { scriptJson } from '../dist/src/report/page-data.js';
import { policyHash } from '../dist/src/numbers/sha256.js';
import { VERSION } from '../dist/src/version.js';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const START = 'README.md';
/** Pages of the program itself. */
const PROGRAMS = { 'plan.html': 'Plan', 'measure.html': 'Measure' };

const OWN_STYLE = `${STYLE}
main{padding-top:.5rem}main p,main li{max-width:78ch}main img{max-width:100%;height:auto}
pre{overflow-x:auto;background:var(--soft);padding:.7rem;border-radius:.4rem}pre code{background:none;padding:0}
h1,h2,h3,h4{scroll-margin-top:1rem}nav a[aria-current]{font-weight:600;text-decoration:none;color:inherit}
td{white-space:normal}table{margin:.6rem 0}
blockquote{margin:.6rem 0;padding-left:1rem;border-left:3px solid var(--line)}
form{display:flex;flex-wrap:wrap;gap:.5rem;align-items:end}form label{flex:1 1 14rem}
@media print{pre{white-space:pre-wrap}}
`;

/** The id that a heading has on the sites where the same Markdown is read. */
const slugOf = (heading) =>
  heading
    .toLowerCase()
    .replace(/<[^>]*>|&[a-z#0-9]+;/g, '')
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .trim()
    .replace(/ /g, '-');

const isOutside = (link) => /^[a-z]+:/i.test(link);
const plain = (html) =>
  html
    .replace(/<[^>]*>/g, ' ')
    .replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
    .replace(/&(amp|lt|gt|quot);/g, (_, name) => ({ amp: '&', lt: '<', gt: '>', quot: '"' })[name])
    .replace(/\s+/g, ' ')
    .trim();

/** Where a file of the project lies in the site. */
const placeOf = (path) => (path === START ? 'index.html' : path.replace(/\.md$/, '.html'));
const isDocument = (path) => path.endsWith('.md');

/** A Markdown file as HTML, its headings, and the files of the project that it links to. */
function rendered(path) {
  const links = new Set();
  const headings = [];
  const here = placeOf(path);
  const target = (href) => {
    if (isOutside(href) || href.startsWith('#')) return href;
    const [file, anchor] = href.split('#');
    const found = posix.join(posix.dirname(path), file);
    if (!existsSync(join(ROOT, found))) throw new Error(`${path} links to ${found}, which does not exist`);
    links.add(found);
    const to = posix.relative(posix.dirname(here), placeOf(found));
    return anchor === undefined ? to : `${to}#${anchor}`;
  };
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth }) {
        const inner = this.parser.parseInline(tokens);
        const id = slugOf(plain(inner));
        headings.push({ id, title: plain(inner), depth });
        return `<h${depth} id="${id}">${inner}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        return `<a href="${escapeHtml(target(href))}">${this.parser.parseInline(tokens)}</a>`;
      },
      image({ href, text }) {
        return `<img src="${escapeHtml(target(href))}" alt="${escapeHtml(text)}">`;
      },
      // Text between tags of its own would be HTML: the documents have none.
      html: ({ text }) => escapeHtml(text),
    },
  });
  const html = marked
    .parse(readFileSync(join(ROOT, path), 'utf8'))
    .replace(/<table>/g, '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>')
    .replace(/<\/table>/g, '</table></div>')
    .replace(/<pre>/g, '<pre tabindex="0">');
  return { path, html, headings, links: [...links] };
}

/** All documents that the start leads to, and the other files that they need. */
function collected() {
  const pages = [];
  const files = new Set();
  const known = new Set([START]);
  for (const path of known) {
    const page = rendered(path);
    pages.push(page);
    for (const link of page.links) (isDocument(link) ? known : files).add(link);
  }
  return { pages, files: [...files] };
}

/** A whole page. @param script its program; none unless given */
function documentOf({ place, title, body, script = '', pages }) {
  const up = (to) => posix.relative(posix.dirname(place), to) || to;
  const policy =
    `default-src 'none'; style-src ${policyHash(OWN_STYLE)}; img-src 'self' ` +
    `file:;${script === '' ? '' : ` script-src ${policyHash(script)};`} base-uri 'none'; form-action 'self' file:`;
  const item = (to, name) => `<a href="${up(to)}"${to === place ? ' aria-current="page"' : ''}>${escapeHtml(name)}</a>`;
  const listed = pages.filter(({ path }) => path === START || path.startsWith('docs/') || path === 'DESIGN.md');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${OWN_STYLE}</style>
</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<header><nav aria-label="Pages">${[
    ...Object.entries(PROGRAMS).map(([to, name]) => item(to, name)),
    ...listed.map((page) => item(placeOf(page.path), page.path === START ? 'Start' : titleOf(page))),
    item('search.html', 'Search'),
  ].join(' ')}</nav></header>
<main id="text" tabindex="-1">
${body}
</main>
<footer><p>lla-sim ${VERSION}.</p></footer>${script === '' ? '' : `\n<script>${script}</script>`}
</body>
</html>
`;
}

const titleOf = ({ headings, path }) => headings[0]?.title ?? path;

/** A page's text by heading, for the search. */
function sectionsOf({ path, html, headings }) {
  const parts = html.split(/<h[1-6] id="[^"]*">/).slice(1);
  return parts.map((part, i) => ({
    to: `${placeOf(path)}#${headings[i].id}`,
    title: i === 0 ? headings[0].title : `${headings[0].title}: ${headings[i].title}`,
    text: plain(part.replace(/^.*?<\/h[1-6]>/s, '')),
  }));
}

const SEARCH = `
const sections = JSON.parse(document.getElementById('sections').textContent);
const field = document.getElementById('find');
const list = document.getElementById('found');
function search() {
  const words = field.value.toLowerCase().split(/\\s+/).filter((w) => w !== '');
  const hits = words.length === 0 ? [] : sections
    .map((s) => ({ s, title: s.title.toLowerCase(), text: s.text.toLowerCase() }))
    .filter((h) => words.every((w) => h.title.includes(w) || h.text.includes(w)))
    .sort((a, b) => words.filter((w) => b.title.includes(w)).length - words.filter((w) => a.title.includes(w)).length);
  list.replaceChildren(...hits.slice(0, 40).map(({ s, text }) => {
    const item = document.createElement('li');
    const link = document.createElement('a');
    link.href = s.to;
    link.textContent = s.title;
    const at = Math.max(0, text.indexOf(words[0]) - 60);
    item.append(link, document.createElement('br'), s.text.slice(at, at + 200));
    return item;
  }));
  document.getElementById('count').textContent = words.length === 0 ? '' : hits.length + ' sections';
}
field.addEventListener('input', search);
document.getElementById('form').addEventListener('submit', (event) => { event.preventDefault(); search(); });
`;

/** Writes the site. @returns paths of all its pages */
export function writeSite(folder) {
  const { pages, files } = collected();
  rmSync(folder, { recursive: true, force: true });
  const put = (place, text) => {
    mkdirSync(dirname(join(folder, place)), { recursive: true });
    writeFileSync(join(folder, place), text);
    return place;
  };
  const written = pages.map((page) =>
    put(
      placeOf(page.path),
      documentOf({ place: placeOf(page.path), title: `lla-sim: ${titleOf(page)}`, body: page.html, pages }),
    ),
  );
  const sections = pages.flatMap(sectionsOf);
  const body = `<h1>Search</h1>
<form id="form"><label for="find">Words of a section<input type="search" id="find" autocomplete="off"></label>
<button>Search</button></form>
<p id="count" role="status"></p><ol id="found"></ol>
<script type="application/json" id="sections">${scriptJson(sections)}</script>`;
  written.push(
    put('search.html', documentOf({ place: 'search.html', title: 'lla-sim: search', body, script: SEARCH, pages })),
  );
  for (const name of Object.keys(PROGRAMS)) copyFileSync(join(ROOT, 'dist', name), join(folder, name));
  for (const file of files) {
    const from = placeOf(file);
    mkdirSync(dirname(join(folder, from)), { recursive: true });
    copyFileSync(join(ROOT, from), join(folder, from));
  }
  return [...written, ...Object.keys(PROGRAMS)];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = resolve(process.argv[2] ?? join(ROOT, 'site'));
  if (!existsSync(join(ROOT, 'dist/plan.html'))) throw new Error('dist/ is missing: npm run build first');
  const pages = writeSite(folder);
  console.log(`${pages.length} pages in ${relative(process.cwd(), folder) || '.'}`);
}
