/** The comparison as a part of every report. */
import type { Sources } from '../plan/ask/prepare.js';
import type { FixedPart } from '../report/folder.js';
import { PaperModel } from './model.js';
import { paperDeviceOf } from './pricing.js';
import { paperHtml } from './print-html.js';
import { paperMarkdown } from './print-markdown.js';
import { paperReport } from './report.js';

/**
 * @param sources what the report rests on: its calibration prices the paper's latencies, too, where it is of an H200
 */
export function paperPart(sources: Sources): FixedPart {
  const report = paperReport(new PaperModel(paperDeviceOf(sources)));
  return {
    id: 'paper',
    title: 'The paper, held against the model',
    html: paperHtml(report),
    markdown: paperMarkdown(report, 2),
  };
}
