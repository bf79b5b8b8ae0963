/** Writes the command line and its chunks to a folder. @returns paths of all that was bundled */
export function commandBundles(outdir: string): Promise<string[]>;
