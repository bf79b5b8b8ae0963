/** Rows of cells of each table of a TeX file, by the table's label. */
export function tablesIn(tex: string): Map<string, string[][]>;
/** The TypeScript module that holds them. */
export function moduleOf(tables: ReadonlyMap<string, string[][]>): string;
