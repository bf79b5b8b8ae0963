/** A plan as the server that runs it is started. */
import { serveCommand, type ServeRequest } from '../../stacks/serve-command.js';
import { serverDefaults, usualBlockTokens } from '../../stacks/server-memory.js';
import { cachesPrefixes, dividesPrompts, listedAs, watermarkOf } from '../../stacks/serving.js';
import type { Answer } from '../answer-types.js';
import type { Plan, PlanRequest } from '../types.js';

/** How a server was simulated. */
interface Simulated extends Pick<ServeRequest, 'speculation'> {
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly maxModelLen: number;
  readonly blockTokens: number;
  readonly watermark: number;
  readonly chunkedPrefill: boolean;
  readonly prefixCaching: boolean;
  readonly asyncScheduling: boolean;
  readonly prefillReplicas: number;
}

/** The server's words for a plan, where a stack runs it. @param as it was simulated; else at the operating batch */
export function served(r: PlanRequest, p: Plan, as: Simulated | null = null): Pick<Answer, 'serve'> {
  const command = serveCommand({
    stack: r.servingStack ?? '',
    version: r.servingVersion,
    model: listedAs(r),
    sequences: as?.maxNumSeqs ?? r.mostSequences ?? (p.knee ?? p.decode).batch,
    contextTokens: Math.min(
      as?.maxModelLen ?? r.maxModelLen ?? r.contextTokens,
      as || r.maxModelLen ? mostTokens(r, p, as?.blockTokens ?? usualBlockTokens(r.servingStack)) : Infinity,
    ),
    cacheType: p.cacheType,
    hosted: { geometry: r.geometry, gpus: r.gpus, vramBytes: r.device.vramBytes, device: r.device.id ?? '' },
    utilization: r.utilization,
    reserveBytes: r.reserveBytes,
    server: r.server,
    runtime: r.runtime?.choice ?? null,
    speculation: as?.speculation ?? null,
    unlike: as && !r.runtime ? unlikeDefaults(r, as) : {},
  });
  return command ? { serve: [command.line, ...command.notes].join('; ') } : {};
}

/** Tokens of one sequence that the cache's whole blocks hold: servers refuse to start with a longer one. */
function mostTokens({ contextTokens, pageTokens }: PlanRequest, { memory }: Plan, blockTokens: number): number {
  const { usableBytes, weightsBytes, codecBytes, kvBytesPerSequence } = memory;
  const blockBytes = (kvBytesPerSequence / (Math.ceil(contextTokens / pageTokens) * pageTokens)) * blockTokens;
  return Math.floor((usableBytes - weightsBytes - codecBytes) / blockBytes + 1e-9) * blockTokens;
}

/** What was simulated and a server does not do by default. */
function unlikeDefaults(r: PlanRequest, as: Simulated): ServeRequest['unlike'] {
  const { servingStack: stack, servingVersion: version, device, geometry } = r;
  const host = stack === null ? null : { stack, version };
  const usual = serverDefaults(host, device.vramBytes, device.id ?? '');
  const readsWhole = geometry.promptsBothWays === true;
  return {
    ...(as.maxNumBatchedTokens === Math.max(usual.batchedTokens, as.maxNumSeqs)
      ? {}
      : { batchedTokens: as.maxNumBatchedTokens }),
    ...(as.chunkedPrefill || readsWhole || !dividesPrompts(host, as.maxModelLen) ? {} : { chunked: false }),
    ...(as.prefixCaching || readsWhole || as.speculation || !cachesPrefixes(host) ? {} : { prefixCaching: false }),
    ...(as.asyncScheduling ? {} : { asynchronous: false }),
    ...(as.blockTokens === usualBlockTokens(stack) ? {} : { blockTokens: as.blockTokens }),
    ...(as.watermark === watermarkOf(host) ? {} : { watermark: as.watermark }),
    ...(as.prefillReplicas > 0 ? { apart: true } : {}),
  };
}
