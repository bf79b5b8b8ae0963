/** Fleets: how many GPUs serve users. */
import { describe, expect, it } from 'vitest';
import { prepare } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { fleetOf, planFleet, reportOfReplica, type Fleet } from '../../src/plan/decide/fleet.js';
import { makePlan } from '../../src/plan/plan.js';
import type { PlanReport } from '../../src/plan/types.js';
import { fleetLines, fleetText } from '../../src/report/text/fleet-text.js';
import type { Scenario } from '../../src/schema/settings.js';
import { inProcess, scratch, words } from '../cli/program.js';

describe('fleets', () => {
  const USERS = 200;
  async function fleet(s: Scenario): Promise<{ fleet: Fleet; reports: PlanReport[] }> {
    const sources = await readSources(s);
    const planned = [1, 2, 4, 8].map((gpus) => {
      const { request, refused } = prepare({ ...s, gpus }, sources);
      return { request, report: makePlan(request, refused, { everyRow: false }) };
    });
    return { fleet: fleetOf(USERS, planned), reports: planned.map(({ report }) => report) };
  }

  const WIDE = { width: 400, colour: false, best: true } as const;
  const wordsOf = async (s: Scenario, users: number): Promise<string> => {
    const { fleet: found, reports } = planFleet(s, users, await readSources(s));
    return fleetText(found, reports[0]!, WIDE);
  };

  it('name a number of GPUs that servers seldom have only where plans of it pass', async () => {
    const ask = (tpot: string): ReturnType<typeof inProcess> =>
      inProcess('plan', ...words('--model huginn-3.5b --device a100-80 --users 400 --ctx 4096'), '--tpot', tpot);
    const [strict, loose] = [await ask('20ms'), await ask('40ms')];
    expect([strict.code, loose.code]).toEqual([3, 3]);
    expect(strict.err).not.toContain('--gpus');
    expect(loose.err).toContain('the heads also divide over 5 GPUs, where plans pass: add --gpus 5');
  });

  it('are the fewest GPUs over replicas and tensor parallelism that meet the target', async () => {
    const s: Scenario = { device: 'h100', context: '32k', tpot: '50ms', codec: ['full', 'lla'], ratio: [5.33] };
    const { fleet: found, reports } = await fleet(s);
    const deploy = found.deploy as NonNullable<Fleet['deploy']>;
    expect(deploy.servedBy).toBe('vLLM 0.24.0');
    expect(deploy.gpus).toBe(deploy.replicas * deploy.tensorParallel);
    expect(deploy.replicas * deploy.usersPerReplica).toBeGreaterThanOrEqual(USERS);
    expect((deploy.replicas - 1) * deploy.mostUsersPerReplica).toBeLessThan(USERS);
    // By hand: every number of GPUs that share the model.
    const users = (r: PlanReport): number => {
      const p = r.plans.find((x) => x.id === 'full/full');
      return p?.knee ? Math.min(p.knee.batch, p.prefill.batchBesidePrefill) : 0;
    };
    const gpus = reports.filter((r) => users(r) > 0).map((r) => Math.ceil(USERS / users(r)) * r.settings.gpus);
    expect(deploy.gpus).toBe(Math.min(...gpus));
    expect(found.eightGpus).toEqual({
      oneReplica: users(reports[3] as PlanReport),
      eightReplicas: 8 * users(reports[0] as PlanReport),
    });
    const text = fleetText(found, reports[0] as PlanReport, { width: 140, colour: false, best: true });
    // Of twelve lines three say how such predictions fared: a probability has its evidence beside it.
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(12);
    expect(text).toMatch(/9\d % sure\s+without\s+prompts\)/);
    expect(text).toMatch(/^Tested +published .* of vLLM [\d.]+.*: \d+ of \d+ in the interval/m);
    expect(text).toMatch(new RegExp(`^Deploy +${deploy.gpus} h100: `, 'm'));
    const narrow = fleetText(found, reports[0] as PlanReport, { width: 60, colour: false, best: false });
    for (const line of narrow.split('\n')) expect(line.length, line).toBeLessThanOrEqual(60);
    expect(narrow).toMatch(/^> full +\d/m);
  });

  it('have the time of the users that a replica has, and the command that serves as many as it can', async () => {
    const s: Scenario = { vram: '141GB', codec: ['full'], gpus: 1 };
    const sources = await readSources(s);
    const timeOf = (users: number): Fleet['deploy'] => planFleet(s, users, sources).fleet.deploy;
    const { request } = prepare({ ...s, batch: 20 }, sources);
    const [one, many] = [timeOf(1)!, timeOf(39)!];
    expect(one).toMatchObject({ usersPerReplica: 1, mostUsersPerReplica: 38, replicas: 1 });
    expect(many).toMatchObject({ usersPerReplica: 20, mostUsersPerReplica: 38, replicas: 2 });
    expect(many.secondsPerStep).toEqual(makePlan(request).plans[0]!.decode.secondsPerStep);
    expect(one.secondsPerStep!.high).toBeLessThan(many.secondsPerStep!.low);
    const { fleet: found, reports } = planFleet(s, 39, sources);
    const text = fleetText(found, reports[0]!, WIDE);
    expect(text).toContain('20 users each at');
    expect(text).toMatch(
      /^Serve +vllm serve \S+ --max-num-seqs 38 --max-model-len 4096 .*; so on each of 2 replicas$/m,
    );
  });

  it('say so where each user has a replica, and what keeps a second one out', async () => {
    const full: Scenario = { device: 'h100', codec: ['full'], gpus: 1 };
    expect(await wordsOf({ ...full, context: '64k' }, 3)).toMatch(
      /^Deploy +3 h100, one for each user \(a second does not fit\): full cache on vLLM [\d.]+ at /m,
    );
    const short = planFleet({ ...full, context: '32k' }, 1, await readSources(full)).fleet.deploy!;
    expect(short.mostUsersPerReplica).toBeGreaterThan(1);
    const tpot = `${1.001e3 * short.secondsPerStep!.high}ms`;
    expect(await wordsOf({ ...full, context: '32k', tpot }, 3)).toContain(
      '3 h100, one for each user (a second would make both miss --tpot): ',
    );
    expect(await wordsOf({ ...full, gpus: 2, server: { maxNumSeqs: 1 } }, 3)).toContain(
      '6 h100, 2 for each user (--max-num-seqs is 1): ',
    );
    expect(await wordsOf(full, 1)).toMatch(/^Deploy +1 h100: full cache on vLLM [\d.]+, 1 user at .*, at most \d+/m);
  });

  it('on a number of GPUs that is asked about are enough or not', async () => {
    const two: Scenario = { device: 'h100', context: '8k', codec: ['full', 'flashloop'], gpus: 2 };
    const most = planFleet(two, 1, await readSources(two)).fleet.deploy!.mostUsersPerReplica;
    expect(await wordsOf(two, most)).toMatch(
      new RegExp(`^Enough +yes: 2 h100 that share the model serve up to ${most}$`, 'm'),
    );
    const more = await wordsOf(two, most + 1);
    const { gpus: _gpus, ...open } = two;
    const fewest = planFleet(open, most + 1, await readSources(open)).fleet.deploy!.gpus;
    expect(fewest).toBeLessThan(4);
    expect(more).toMatch(
      new RegExp(
        `^Enough +no: 2 h100 that share the model serve ${most} of ${most + 1} users; it takes 4 in groups of 2, ` +
          `and fewest are ${fewest}, each with the whole model$`,
        'm',
      ),
    );
    // As a plan of one replica says.
    expect(more).toMatch(/retrieval of flashloop-\w+ at 8k is unknown/);
    expect(await wordsOf({ ...two, device: 'mi300x' }, 1)).toMatch(/^Enough +no: nothing that runs today/m);
    // Enough, but of unknown quality.
    const held = {
      device: 'b200',
      gpus: 2,
      model: 'ledger/models/llama-3.1-70b.json',
      weightType: 'fp8',
      context: '8k',
    };
    expect(await wordsOf(held, 8)).toMatch(/^Enough +yes, by memory and time: 2 b200 that share the model/m);
    expect(await wordsOf({ ...two, codec: ['full'], device: 'mi300x' }, 1)).toMatch(
      /^Estimate 2 mi300x: .* full cache, /m,
    );
    expect(await wordsOf(open, 1)).not.toContain('Enough');
  });

  it('a fleet of more GPUs is told by the replica’s own report: what fits there, not what one GPU misses', async () => {
    const s: Scenario = { model: 'ledger/models/llama-3.1-70b.json', device: 'mi300x', context: '8k', tpot: '40ms' };
    const planned = planFleet(s, 64, await readSources(s));
    expect(planned.fleet.upside!.tensorParallel).toBeGreaterThan(1);
    const words = fleetLines(planned.fleet, reportOfReplica(planned)).map(({ label, text }) => `${label} ${text}`);
    expect(words.join('\n')).not.toMatch(/nothing fits|needs new kernels/);
    expect(words.join('\n')).toContain('no kernels of a serving stack were measured on AMD Instinct MI300X');
  });

  it('name no number as the least that another grouping goes below, and no users of an unplanned one', async () => {
    const asked: Scenario = { model: 'ouro-2.6b', device: 'rtx-4090', context: '16k', codec: ['full'] };
    const sources = await readSources(asked);
    const open = planFleet(asked, 20, sources).fleet.deploy!;
    for (const gpus of [2, 4, 8]) {
      const { fleet: found, reports } = planFleet({ ...asked, gpus }, 20, sources);
      expect(found.fewest).toEqual({ gpus: open.gpus, tensorParallel: open.tensorParallel });
      expect(found.deploy!.gpus).toBeGreaterThanOrEqual(open.gpus);
      const text = fleetText(found, reports[0]!, WIDE);
      expect(text).toContain(`it takes ${found.deploy!.gpus} in groups of ${gpus}`);
      expect(text.includes(`and fewest are ${open.gpus} in groups of ${open.tensorParallel}`)).toBe(
        found.deploy!.gpus > open.gpus,
      );
      expect(text).not.toMatch(/^Instead/m);
    }
  });

  it('say with which plan a user waits for words', async () => {
    const card: Scenario = { model: 'ouro-2.6b', device: 'rtx-4090', context: '8k' };
    const s: Scenario = { ...card, codec: ['full', 'lla'], ratio: [10.67] };
    const { fleet: found, reports } = planFleet({ ...s, gpus: 2 }, 20, await readSources(s));
    const slow = [found.deploy, found.upside].flatMap((row) =>
      row && row.secondsPerStep!.estimate > 0.1 ? [row.name] : [],
    );
    expect(slow).toHaveLength(1);
    expect(fleetText(found, reports[0]!, WIDE)).toContain(`and with ${slow[0]} a user gets under 10 tok/s`);
  });

  it('on several GPUs begin with the best, and with what the others would have to cost', async () => {
    const ask = async (...flags: string[]): Promise<string> =>
      (await inProcess('plan', '--device', 'l40s,h100,mi300x', '--codec', 'full', '--users', '50', ...flags)).out;
    const all = /(\d+) h100.* (\d+) l40s/;
    const open = (await ask()).replace(/\s+/g, ' ');
    const [, few, many] = (all.exec(open) ?? []).map(Number) as [number, number, number];
    expect(few).toBeLessThan(many);
    expect(open).toContain(
      `Best ${few} h100; cheaper only where a GPU costs less than a share of one h100: ${many} l40s, below ` +
        `${Math.floor((100 * few) / many)} %; mi300x: nothing with confidence`,
    );
    // Dollars are not compared with GPUs.
    expect(await ask('--usd-per-hour', 'h100=99')).toMatch(new RegExp(`^Best +${few} h100;`));
    const dear = `h100=${(1.1 * many) / few},l40s=1,mi300x=1`;
    expect(await ask('--usd-per-hour', dear)).toMatch(
      new RegExp(`^Best +${many} l40s .* an hour\\); then ${few} h100`),
    );
  });

  it('recommend nothing beyond the published contexts, or by a stack that does not run the model', async () => {
    const far = await fleet({ device: 'h200', context: '128k', codec: ['full', 'lla'], ratio: [21.33] });
    expect([far.fleet.deploy, far.fleet.upside]).toEqual([null, null]);
    expect(far.fleet.cheapest?.gpus).toBeGreaterThan(0);
    expect(far.fleet.rows.map((row) => row.quality)).not.toContain('kept');
    const amd = await fleet({ device: 'mi300x', context: '8k', codec: ['full'] });
    expect(amd.fleet.deploy).toBeNull();
    const text = fleetText(amd.fleet, amd.reports[0] as PlanReport, { width: 200, colour: false, best: true });
    expect(text).toContain(
      'nothing with confidence: no kernels of a serving stack were measured on AMD Instinct MI300X',
    );
    // The full cache's kernels are there; what is missing is their times.
    expect(amd.fleet.upside?.planId).toBe('full/full');
    expect(text).toMatch(/nobody has published times of\s+the full\s+cache's kernels/);
    expect(text).not.toContain('have to be written');
  });

  it('are asked by a scenario file as by the flag; a batch beside it is refused', async () => {
    const folder = scratch();
    const asked = folder.file('fleet.yaml', 'device: h100\ncontext: 8k\ncodec: [full]\nusers: 10\n');
    const both = folder.file('both.yaml', 'device: h100\nusers: 10\nbatch: 4\n');
    const byFile = await inProcess('plan', asked);
    expect(byFile.out).toContain('10 users at once');
    expect(byFile.out).toBe(
      (await inProcess('plan', '--device', 'h100', '--ctx', '8k', '--codec', 'full', '--users', '10')).out,
    );
    const refused = await inProcess('plan', both);
    expect([refused.code, refused.err]).toEqual([2, expect.stringMatching(/users.* two questions/)]);
    folder.remove();
  });

  it('without a time target say that memory alone decides, and how slow that is', async () => {
    const o = await inProcess('plan', '--device', 'h200', '--ctx', '8k', '--users', '200');
    expect(o.out).toMatch(/Deploy.* users\s+each\s+at\s+\d+\s+ms\s+a\s+token/);
    expect(o.out.replace(/\s+/g, ' ')).toContain(
      'memory alone decides, and with lla-2d-21.33x by block-absorbed a user gets under 10 tok/s',
    );
    const refused = await inProcess('plan', '--device', 'h200', '--users', '2', '--sweep');
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('--users and --sweep')]);
  });

  it('do not name as failing what they name as the cheapest', async () => {
    const o = await inProcess('plan', '--device', 'h100', '--ctx', '256k', '--users', '1');
    expect(o.out).toMatch(/1 user at once[\s\S]*^Cheapest /m);
    expect(o.out).not.toMatch(/^Fails /m);
  });

  it('say every target that they were held against', async () => {
    const flags = '--device h100 --users 3 --codec full --ttft 2s --tpot 50ms --min gsm8k=0.5';
    const { out } = await inProcess('plan', ...words(flags));
    expect(out.replace(/\s+/g, ' ')).toContain(
      '; at most 50 ms a token, the first token within 2 s, gsm8k at least 0.5, 90 % sure',
    );
  });

  it('that cannot be end with exit code 3 and the nearest plan', async () => {
    const o = await inProcess('plan', '--device', 'h100', '--codec', 'full', '--users', '10', '--tpot', '1ms');
    expect(o.code).toBe(3);
    expect(o.err).toMatch(/closest: full cache .* against 1 ms/);
  });
});
