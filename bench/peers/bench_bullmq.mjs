// BullMQ FlowProducer on Redis. Same command line and output as the Python
// drivers. Configs: best (jobs removed on completion, bulk calls of 50 runs), single (a call for each run), keep (jobs
// kept, as shipped).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';
import { FlowProducer, Queue, QueueEvents } from 'bullmq';
import Redis from 'ioredis';

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: v } = parseArgs({ options: Object.fromEntries(
  ['workload', 'runs', 'shards', 'steps', 'workers', 'concurrency', 'config', 'repeat', 'timeout'].map((k) => [k, { type: 'string' }])) });
const a = { workload: v.workload, shards: +(v.shards ?? 1000), steps: +(v.steps ?? 5), workers: +(v.workers ?? 2),
  concurrency: +(v.concurrency ?? 1), config: v.config ?? 'best', repeat: +(v.repeat ?? 1), timeout: +(v.timeout ?? 120) };
a.runs = +(v.runs ?? { W1: 1000, W2: 1, W3: 300, W4: 50, W5: 1000 }[a.workload]);
const kind = { W4: 'W3', W5: 'W3' }[a.workload] ?? a.workload;
const connection = { host: process.env.BENCH_REDIS_HOST ?? '127.0.0.1', port: Number(process.env.BENCH_REDIS_PORT ?? 6390) };
const r = new Redis(connection);
await r.flushall();
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'bench-'));
const marks = path.join(dir, 'marks'), logf = path.join(dir, 'log');
fs.writeFileSync(marks, '');
const log = fs.openSync(logf, 'a');
const procs = [];
process.on('exit', () => { procs.forEach((p) => p.kill('SIGKILL')); fs.rmSync(dir, { recursive: true, force: true }); });
for (let i = 0; i < a.workers; i++) {
  procs.push(spawn(process.execPath, ['bullmq_worker.mjs', String(a.concurrency)], { cwd: process.env.BENCH_NODE_DIR ?? here,
    stdio: ['ignore', log, log], env: { ...process.env, BENCH_MARKS: marks, BENCH_KEEP: a.config === 'keep' ? '1' : '0' } }));
}
process.on('SIGTERM', () => { procs.forEach((p) => p.kill('SIGKILL')); process.exit(124); });
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const sleep = (ms) => new Promise((f) => setTimeout(f, ms));
let pos = 0, seen = new Map(), dups = 0;
function poll() {
  const fd = fs.openSync(marks, 'r');
  const buf = Buffer.alloc(1 << 20);
  const n = fs.readSync(fd, buf, 0, buf.length, pos);
  fs.closeSync(fd);
  const end = buf.subarray(0, n).lastIndexOf(10) + 1;
  pos += end;
  for (const l of buf.subarray(0, end).toString().split('\n')) {
    if (!l) continue;
    const [id, t] = l.split(' ');
    if (seen.has(id)) dups++; else seen.set(id, Number(t));
  }
  return seen.size;
}
async function waitFor(n, s) {
  const end = now() + s;
  while (poll() < n) { if (now() > end) return false; await sleep(5); }
  return true;
}
const flow = new FlowProducer({ connection });
const queue = new Queue('bench', { connection });
const opts = a.config === 'keep' ? {} : { removeOnComplete: true };
const chain = (run) => {
  let t = { name: 'link', queueName: 'bench', data: { i: 1 }, opts };
  for (let i = 2; i <= a.steps; i++) t = { name: 'link', queueName: 'bench', data: { i, run, last: i === a.steps }, opts, children: [t] };
  return t;
};
const fan = (run, n) => ({ name: 'join', queueName: 'bench', data: { run, n }, opts,
  children: Array.from({ length: n }, (_, i) => ({ name: 'shard', queueName: 'bench', data: { i }, opts })) });
const submit = (run, shards) => kind === 'W1' ? flow.add(chain(run)) : kind === 'W2' ? flow.add(fan(run, shards))
  : queue.add('probe', { run }, opts);
const q = (xs, p) => xs.length ? [...xs].sort((x, y) => x - y)[Math.min(xs.length - 1, Math.round(p * (xs.length - 1)))] : null;
const stat = (pid) => { const s = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' '); return (Number(s[11]) + Number(s[12])) / 100; };
const cpu = () => procs.reduce((t, p) => t + (p.exitCode === null ? stat(p.pid) : 0), 0);
const rss = () => procs.map((p) => Math.round(Number(fs.readFileSync(`/proc/${p.pid}/status`, 'utf8').match(/VmHWM:\s+(\d+)/)[1]) / 102.4) / 10);
const version = createRequire(import.meta.url)('bullmq/package.json').version;

for (let i = 0; i < 4; i++) await submit(`warm${i}`, 4);
if (!await waitFor(4, 60)) { console.log(JSON.stringify({ peer: 'bullmq', ok: false, notes: 'warm-up did not finish ' + fs.readFileSync(logf, 'utf8').slice(-400) })); procs.forEach((p) => p.kill()); process.exit(1); }
await sleep(500);
for (let rep = 0; rep < a.repeat; rep++) {
  poll(); seen = new Map(); dups = 0;
  const ids = Array.from({ length: a.runs }, (_, i) => `r${rep}x${i}`);
  const sub = new Map();
  const cpu0 = cpu();
  await r.call('CONFIG', 'RESETSTAT');
  const t0 = now();
  let ok = true, submitS = 0, err = '';
  try {
    if (a.workload === 'W4') {
      for (const id of ids) {
        const s = now(); sub.set(id, s); await submit(id); submitS += now() - s;
        const end = now() + 20;
        while (!seen.has(id) && now() < end) { poll(); await sleep(1); }
        ok &&= seen.has(id);
        await sleep(20);
      }
    } else {
      if (a.workload === 'W2' || a.config === 'single') { for (const id of ids) { sub.set(id, now()); await submit(id, a.shards); } }
      else {
        // Bulk calls of 50 runs: the cheapest public way to submit many.
        for (let i = 0; i < ids.length; i += 50) {
          const part = ids.slice(i, i + 50);
          part.forEach((id) => sub.set(id, now()));
          if (kind === 'W1') await flow.addBulk(part.map(chain));
          else await queue.addBulk(part.map((run) => ({ name: 'probe', data: { run }, opts })));
        }
      }
      submitS = now() - t0;
      ok = a.workload === 'W5' || await waitFor(a.runs, a.timeout);
    }
  } catch (e) { ok = false; err = `${e.name}: ${e.message}; `; }
  const lat = [...seen].filter(([k]) => sub.has(k)).map(([k, t]) => (t - sub.get(k)) * 1000);
  const wall = lat.length ? Math.max(...seen.values()) - t0 : null;
  const per = { W1: a.steps, W2: a.shards + 1 }[a.workload] ?? 6;
  const rate = wall && ok && ['W1', 'W2', 'W3'].includes(a.workload);
  const info = await r.info();
  console.log(JSON.stringify({ peer: 'bullmq', version, workload: a.workload,
    params: { runs: a.runs, workers: a.workers, concurrency: a.concurrency, config: a.config, ...(a.workload === 'W2' ? { shards: a.shards } : {}), ...(a.workload === 'W1' ? { steps: a.steps } : {}) },
    steps_per_s: rate ? +(lat.length * per / wall).toFixed(1) : null, runs_per_s: rate ? +(lat.length / wall).toFixed(2) : null,
    p50_ms: lat.length ? +q(lat, 0.5).toFixed(2) : null, p95_ms: lat.length ? +q(lat, 0.95).toFixed(2) : null,
    wall_s: wall ? +wall.toFixed(3) : null, submit_s: +submitS.toFixed(4), finished: lat.length, ok,
    notes: err + 'redis, no persistence', dups, worker_cpu_s: +(cpu() - cpu0).toFixed(2), peak_rss_mb: rss(),
    redis_peak_mb: +(info.match(/used_memory_peak:(\d+)/)[1] / 2 ** 20).toFixed(1), redis_cmds: +info.match(/total_commands_processed:(\d+)/)[1] }));
  if (!ok) { const t = fs.readFileSync(logf, 'utf8').slice(-300); if (t) console.error(t); break; }
  await sleep(300);
}
procs.forEach((p) => p.kill('SIGKILL'));
fs.rmSync(dir, { recursive: true });
process.exit(0);
