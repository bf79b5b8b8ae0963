/** Sustained rates as CSV: a row a candidate. */
import type { SustainedRate } from '../serving/types.js';

const HEADER =
  'id,served_by,requests_per_second_low,requests_per_second,requests_per_second_high,replicas,usd_per_million_output_tokens,limited_by,p99_ttft_ms,p99_tpot_ms,output_throughput';

export function ratesCsv(candidates: readonly SustainedRate[]): string {
  const rows = candidates.map((s) =>
    [
      s.id,
      s.servedBy ?? '',
      s.requestsPerSecond.low,
      s.requestsPerSecond.estimate,
      s.requestsPerSecond.high,
      s.replicasFor?.replicas.high ?? '',
      s.usdPerMillionOutputTokens?.estimate ?? '',
      s.limitedBy,
      s.atEstimate?.p99_ttft_ms ?? '',
      s.atEstimate?.p99_tpot_ms ?? '',
      s.atEstimate ? s.outputTokensPerSecond : '',
    ]
      .map(cell)
      .join(','),
  );
  return `${[HEADER, ...rows].join('\n')}\n`;
}

const cell = (value: string | number): string => {
  const text = String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
