// No-op jobs through queues of others: `node peers.cjs NAME DATABASE JOBS WORKERS` prints the nanoseconds from the first fetch to
// the last completion. As with pond, what is done is queued before, each worker has one job at a time, and each job counts by itself.
const [name, connectionString, jobs, workers] = process.argv.slice(2);
const [count, concurrency] = [Number(jobs), Number(workers)];
const max = 8; // connections, as many as a control plane has

async function pgBoss() {
  const PgBoss = require('pg-boss');
  const boss = new PgBoss({ connectionString, max, supervise: false, schedule: false });
  boss.on('error', (fault) => { throw fault; });
  await boss.start();
  await boss.createQueue('noop');
  for (let at = 0; at < count; at += 500) {
    const batch = Array.from({ length: Math.min(500, count - at) }, () => ({ name: 'noop', data: {} }));
    await boss.insert(batch);
  }
  const begun = process.hrtime.bigint();
  let done = 0;
  const work = async () => {
    for (;;) {
      const [job] = await boss.fetch('noop', { batchSize: 1 });
      if (!job) return;
      await boss.complete('noop', job.id);
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  const took = process.hrtime.bigint() - begun;
  if (done !== count) throw new Error(`${done} of ${count} jobs`);
  await boss.stop({ graceful: false });
  return took;
}

async function graphileWorker() {
  const { makeWorkerUtils, runOnce, Logger } = require('graphile-worker');
  const logger = new Logger(() => () => {});
  const { Pool } = require('pg');
  const pgPool = new Pool({ connectionString, max });
  const utils = await makeWorkerUtils({ pgPool, logger });
  await utils.migrate();
  await utils.withPgClient((client) =>
    client.query("select graphile_worker.add_job('noop', '{}'::json) from generate_series(1, $1)", [count]));
  let done = 0;
  const begun = process.hrtime.bigint();
  await runOnce({ pgPool, logger, concurrency, noHandleSignals: true, taskList: { noop: async () => { done += 1; } } });
  const took = process.hrtime.bigint() - begun;
  if (done !== count) throw new Error(`${done} of ${count} jobs`);
  await utils.release();
  await pgPool.end();
  return took;
}

const peers = { 'pg-boss': pgBoss, 'graphile-worker': graphileWorker };
peers[name]().then((took) => { console.log(String(took)); process.exit(0); }, (fault) => { console.error(fault); process.exit(1); });
