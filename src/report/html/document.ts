/**
 * The report as one HTML file. It uses no network: style, data and program are inside. A content policy allows exactly
 * this style and this program, by their hashes, so injected code could not run.
 */
import { pageHead } from './page-head.js';
import { formatTokens } from '../../numbers/units.js';
import { VERSION } from '../../version.js';
import { scriptJson, type PageData } from '../page-data.js';
import type { Picture } from '../pictures/picture.js';
import type { View } from '../view.js';
import { reportBody, titleOf } from './body.js';
import type { FixedPart } from '../folder.js';
import { Html, html } from './html.js';
import { STYLE } from './style.js';

/**
 * @param parts that the controls do not change
 * @param script the page's program, bundled for browsers
 * @returns a whole document, the same for the same input
 */
export function htmlDocument(
  view: View,
  pictures: readonly Picture[],
  data: PageData,
  parts: readonly FixedPart[],
  script: string,
): string {
  const { report } = view;
  const page = html`${pageHead({ title: titleOf(view), style: STYLE, scripts: [script] })}
<body>
<a class="skip" href="#table">Skip to the table of all combinations</a>
${reportBody(view, pictures, data, parts)}
<footer>
<p>Written by lla-sim ${VERSION} for ${formatTokens(report.contextTokens)} tokens on ${report.device.name}. Sizes are \
exact; times carry their evidence. The same planner runs in this page and on the command line. Beside this file: \
report.md, plans.csv, plans.json and the pictures as PNG.</p>
</footer>
<script type="application/json" id="data">${new Html(scriptJson(data))}</script>
<script>${new Html(script)}</script>
</body>
</html>
`;
  return page.text;
}
