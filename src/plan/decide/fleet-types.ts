/** The GPUs that a number of users needs. Base units: seconds, tokens, dollars. */
import type { Evidence, Interval } from '../../cost/evidence.js';
import type { Choice, Score } from '../types.js';

/** One codec for a number of users: how many GPUs, and how they are divided. */
export interface FleetRow {
  readonly planId: string;
  readonly name: string;
  readonly label: string;
  /** GPUs that share the model: one replica. */
  readonly tensorParallel: number;
  /** Where the users are divided evenly: of the fullest replica. */
  readonly usersPerReplica: number;
  /** Largest batch that meets --tpot, without that target the largest that fits; beside the prefill of a prompt. */
  readonly mostUsersPerReplica: number;
  /** What keeps one more user out of a replica: memory, --tpot, or the server's --max-num-seqs. */
  readonly limitedBy: 'memory' | 'tpot' | 'max-num-seqs';
  readonly replicas: number;
  readonly gpus: number;
  /** Of all GPUs; null without a price. */
  readonly usdPerHour: number | null;
  /** With `usersPerReplica`. Null where no speed is known. */
  readonly secondsPerStep: Interval | null;
  readonly evidence: Evidence | null;
  /** Probability that --tpot is met. */
  readonly chance: number | null;
  /** Of one replica at its operating point. */
  readonly tokensPerSecond: number;
  readonly quality: Choice['quality'];
  readonly worst: Score | null;
  readonly servedBy: string | null;
}

/** The GPUs that a number of users needs. */
export interface Fleet {
  readonly users: number;
  /** Of each codec the fewest GPUs, fewest first. */
  readonly rows: readonly FleetRow[];
  /** Fewest GPUs with what runs today and keeps quality. */
  readonly deploy: FleetRow | null;
  /** Fewer with kernels that would have to be written. */
  readonly upside: FleetRow | null;
  /** Where nothing keeps quality: the fewest GPUs that hold the users. */
  readonly cheapest: FleetRow | null;
  /** Fewer still with a codec whose scores fail. */
  readonly fails: FleetRow | null;
  /** The command of a replica of `deploy`; null where no stack is known to run it. */
  readonly serve: string | null;
  /** Users of eight GPUs with the plan of `deploy`: as one replica, and as eight. */
  readonly eightGpus: { readonly oneReplica: number; readonly eightReplicas: number } | null;
}
