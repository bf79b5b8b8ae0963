/** A real Chromium for tests of pages, started with what keeps it from talking to anyone. */
import { existsSync } from 'node:fs';
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core';

const PROGRAM = [process.env['LLA_SIM_CHROMIUM'] ?? '', '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
  (p) => p !== '' && existsSync(p),
);

/**
 * Why there is no browser, or null. Where LLA_SIM_REQUIRE_BROWSER is set, a missing browser is a failure, not a skip.
 */
export const noBrowser: string | null =
  PROGRAM !== undefined || process.env['LLA_SIM_REQUIRE_BROWSER'] === '1'
    ? null
    : 'no Chromium: run scripts/setup-browser.sh';

/** WebGPU on the processor, for pages that measure. */
export const SOFTWARE_GPU: readonly string[] = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];

/** @param gpu flags for the GPU; none unless given */
export async function startBrowser(gpu: readonly string[] = ['--disable-gpu']): Promise<Browser> {
  if (PROGRAM === undefined) throw new Error('no Chromium: run scripts/setup-browser.sh');
  return chromium.launch({
    executablePath: PROGRAM,
    args: [
      '--no-sandbox',
      ...gpu,
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

export interface Opened {
  readonly page: Page;
  /** Everything that went wrong or was asked for: console messages, exceptions, requests beside the file itself. */
  readonly incidents: string[];
  close(): Promise<void>;
}

/** Opens a file from disk as a reader does. */
export async function open(browser: Browser, file: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  return { ...(await openIn(context, file)), close: () => context.close() };
}

/** The same in a context, which keeps what pages store. @param hash behind the file's address */
export async function openIn(context: BrowserContext, file: string, hash = ''): Promise<Opened> {
  const page = await context.newPage();
  const incidents: string[] = [];
  page.on('console', (message) => incidents.push(`console ${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => incidents.push(`exception: ${String(error)}`));
  page.on('request', (request) => {
    if (request.url() !== `file://${file}`) incidents.push(`request: ${request.url()}`);
  });
  page.on('dialog', (dialog) => {
    incidents.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.goto(`file://${file}${hash}`);
  return { page, incidents, close: () => page.close() };
}
