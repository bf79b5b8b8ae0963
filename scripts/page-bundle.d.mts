/** Program of a report's page. */
export function pageBundle(): Promise<{ text: string; inputs: string[] }>;
