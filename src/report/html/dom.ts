/// <reference lib="dom" />
/** What the programs of all pages do alike. */

/** Finds elements of a page by the rest of their ids. */
export const finder =
  (prefix: string) =>
  <T extends HTMLElement>(id: string): T => {
    const found = document.getElementById(prefix + id);
    if (!found) throw new Error(`the page lacks #${prefix}${id}`);
    return found as T;
  };

export function say(line: HTMLElement, words: string, wrong = false): void {
  line.textContent = words;
  line.classList.toggle('wrong', wrong);
}

/** @param share 0 to 1 */
export function showShare(bar: HTMLElement, share: number): void {
  bar.setAttribute('aria-valuenow', (100 * share).toFixed(0));
  (bar.firstElementChild as HTMLElement).style.width = `${(100 * share).toFixed(1)}%`;
}

/** Lets the reader save a JSON text. */
export function saveJson(text: string, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Takes a file that is dropped on an element or chosen in an input. */
export function takeFiles(drop: HTMLElement, input: HTMLInputElement, take: (file: File) => void): void {
  const first = (files: FileList | null | undefined): void => void (files?.[0] && take(files[0]));
  input.addEventListener('change', () => first(input.files));
  for (const kind of ['dragover', 'dragleave', 'drop'] as const)
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle('over', kind === 'dragover');
      if (kind === 'drop') first(event.dataTransfer?.files);
    });
}
