/** Where the rows of an operation lie in a buffer. */

/** Offsets of rows in a buffer, in floats: the first one, and from one to the next. */
export interface Placement {
  readonly offset: number;
  readonly stride: number;
}

/** Rows that an operation reads and writes; side by side unless given. */
export interface PlacementOptions {
  readonly input?: Placement;
  readonly output?: Placement;
}

/** Offsets of an activation's rows, in floats: the first one, from a row to the next, and from a group to the next. */
export interface Rows {
  readonly offset?: number;
  readonly row?: number;
  readonly group?: number;
}
