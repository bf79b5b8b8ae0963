/** Whether a file exists and is newer than these files and all that is in these folders. */
export function isNewest(file: string, sources: readonly string[]): boolean;
