/// <reference lib="dom" />
/** All codecs in order, as `plan --rank` prints them: by a button, as it plans once for every published claim. */
import { UserError } from '../errors.js';
import { answer } from '../plan/ask/prepare.js';
import { sourcesFrom } from '../plan/ask/sources.js';
import { shellWord } from '../report/command-line.js';
import { addressOf } from '../report/link.js';
import { html } from '../report/html/html.js';
import { ranked, rankedScenario, rankedText } from '../ranking/ranked.js';
import type { Row } from '../schema/ledger-file.js';
import type { Scenario } from '../schema/settings.js';
import { answersTo } from './answer.js';
import { element, fill, whole } from './dom.js';
import type { Asking } from './serving.js';

const WIDTH = 120;

interface Ranked extends Asking {
  /** Of the question that was asked; null where none can be made. */
  readonly link: () => string | null;
}

/** @returns clears the ranking of a question that is no longer asked */
export function mountRanking({ asked, source, link, shelf }: Ranked): () => void {
  let turn = 0;
  const status = (text: string): void => void (element('ranked-status').textContent = text);
  function clear(): void {
    turn++;
    fill('ranked', html``);
    status('');
  }
  async function rank(): Promise<void> {
    clear();
    const mine = turn;
    status('Ranking…');
    try {
      await whole();
      const rows = JSON.parse(element('claims').textContent ?? '') as Row[];
      const plan = async (one: Scenario) => answer(one, await sourcesFrom(shelf, one, null));
      const texts: string[] = [];
      for (const { view, failure } of await answersTo(rankedScenario(asked()), source(asked()), shelf, true)) {
        if (failure) throw failure;
        texts.push(rankedText(await ranked(view.report, { rows, plan }), { width: WIDTH }));
        if (mine !== turn) return;
      }
      const opened = link();
      fill(
        'ranked',
        html`<div class="scroll" role="region" aria-label="All codecs in order" tabindex="0">\
<pre>${texts.join('\n')}</pre></div>\
${
  opened === null
    ? ''
    : html`<p>The same from the command line: \
<code class="command">lla-sim open ${shellWord(addressOf(opened))} --rank</code></p>`
}`,
      );
      status('');
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      if (mine === turn) status(`Not ranked: ${error.message}; ${error.hint}.`);
    }
  }
  element('rank').addEventListener('click', () => void rank());
  return clear;
}
