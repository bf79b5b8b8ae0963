/** The command line and its chunks, in a folder. */
export function commandBundles(outdir: string): Promise<void>;
