/// <reference lib="dom" />
/** Simulations of the page, in a worker: the page stays alive, and ends one by ending the worker. */
import { UserError } from '../errors.js';
import type { ModelSource } from '../plan/ask/prepare.js';
import { sourcesFrom, type Shelf } from '../plan/ask/sources.js';
import { say, showShare } from '../report/html/dom.js';
import { html } from '../report/html/html.js';
import { servingPictures } from '../report/pictures/index.js';
import type { Scenario } from '../schema/settings.js';
import { drawingLater, element, fill, showFigures } from './dom.js';
import type { Said, Task } from './worker.js';

type Flags = Pick<Task, 'findRate' | 'ways'>;

export interface Asking {
  /** The question of the controls. @throws UserError for a value that its setting does not take */
  readonly asked: () => Scenario;
  readonly source: (scenario: Scenario) => ModelSource | null;
  readonly shelf: Shelf;
}

interface Serving extends Asking {
  readonly command: (scenario: Scenario) => string;
  readonly begins: () => void;
}

/** @returns what clears a simulation of an earlier question */
export function mountServing({ asked, source, shelf, command, begins }: Serving): () => void {
  const charts = drawingLater('served');
  let worker: Worker | null = null;

  const status = (text: string, wrong?: boolean): void => say(element('served-status'), text, wrong);

  function end(): void {
    worker?.terminate();
    worker = null;
    [element('bar').hidden, element('stop').hidden] = [true, true];
    for (const id of ['run', 'rate', 'ways']) element<HTMLButtonElement>(id).disabled = false;
  }

  async function begin(flags: Flags): Promise<void> {
    end();
    try {
      const scenario = { ...asked(), workload: asked().workload ?? {} };
      // Tables of other stacks are functions, and no simulation asks for them.
      const { otherStacks: _others, ...sources } = await sourcesFrom(shelf, scenario, source(scenario));
      begins();
      worker = new Worker(program());
      worker.addEventListener('message', ({ data }: MessageEvent<Said>) => said(data, scenario, flags));
      worker.addEventListener('error', () => {
        end();
        status('The simulation ended with a defect of the page.', true);
      });
      worker.postMessage({ scenario, sources, ...flags } satisfies Task);
      [element('bar').hidden, element('stop').hidden] = [false, false];
      for (const id of ['run', 'rate', 'ways']) element<HTMLButtonElement>(id).disabled = true;
      showShare(element('bar'), 0);
      status('Simulating…');
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      status(`Not simulated: ${error.message}; ${error.hint}.`, true);
    }
  }

  function said(data: Said, scenario: Scenario, { findRate, ways }: Flags): void {
    if (data.kind === 'progress') {
      showShare(element('bar'), data.share);
      status(`Simulating ${data.doing}…`);
      return;
    }
    end();
    if (data.kind === 'wrong') return status(`Not simulated: ${data.message}.`, true);
    status('');
    const pictures = servingPictures(data.report);
    const same = `${command(scenario)}${findRate ? ' --find-rate' : ''}${ways ? ' --ways' : ''}`;
    fill(
      'served-text',
      html`<div class="scroll" role="region" aria-label="The simulation" tabindex="0">\
<pre>${data.text}</pre></div><p>The same from the command line: <code class="command">${same}</code></p>`,
    );
    showFigures('served', pictures);
    void charts.draw(pictures);
  }

  element('serving').addEventListener('submit', (event) => {
    event.preventDefault();
    void begin({ findRate: false, ways: false });
  });
  element('rate').addEventListener('click', () => void begin({ findRate: true, ways: false }));
  element('ways').addEventListener('click', () => void begin({ findRate: true, ways: true }));
  element('stop').addEventListener('click', () => {
    end();
    status('Stopped.');
  });

  return () => {
    end();
    fill('served-text', html``);
    showFigures('served', []);
    status('');
  };
}

let address: string | null = null;
/** The page's own program as a worker's. */
const program = (): string =>
  (address ??= URL.createObjectURL(new Blob([element('program').textContent ?? ''], { type: 'text/javascript' })));
