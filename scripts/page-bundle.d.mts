/** Program of a report's page. */
export function pageBundle(): Promise<{ text: string; inputs: string[] }>;

/** Program of the measuring page. */
export function measureBundle(): Promise<{ text: string; inputs: string[] }>;
export function plannerBundle(): Promise<{
  readonly first: string;
  readonly later: string;
  readonly inputs: readonly string[];
}>;
