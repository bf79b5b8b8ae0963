/**
 * Writes docs/codecs.md and its picture: run `npm run build && npm run codecs` after anything that changes a plan of
 * its models, or models/NAME/fidelity.json, which `lla-sim fidelity --model models/NAME -o models/NAME/fidelity.json`
 * makes.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { codecsMarkdown } from '../dist/src/ranking/page.js';
import { codecsPicture } from '../dist/src/ranking/codecs-picture.js';
import { pageOf } from '../dist/src/ranking/page-data.js';
import { png } from '../dist/src/report/pictures/png.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const page = await pageOf();
writeFileSync(`${root}docs/codecs.md`, codecsMarkdown(page));
writeFileSync(`${root}docs/codecs.png`, png(codecsPicture(page.models[0], page.here)));
