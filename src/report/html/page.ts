/// <reference lib="dom" />
/** The program inside a report's page, bundled for browsers (scripts/page-bundle.mjs). */
import type { PageData } from '../page-data.js';
import { mountReport } from './mount.js';

mountReport(JSON.parse(document.getElementById('data')?.textContent ?? '') as PageData);
