// bench.mjs PEER URL CALLERS SECONDS: stores documents of 1 KiB, one a transaction, and prints
// {"n","seconds","p50","p99"}.
const [peer, url, callers, seconds] = process.argv.slice(2);

const word = (n) => Array.from({ length: n }, () => String.fromCharCode(97 + Math.floor(Math.random() * 26))).join('');
const document = (number) => ({
  number, action: 'opened', delivery: word(36), ref: 'refs/heads/' + word(12),
  repository: { id: 1, full_name: word(10) + '/' + word(14), private: false, description: word(180) },
  sender: { id: 2, login: word(12), url: 'https://api.example.test/users/' + word(12), site_admin: false },
  head: { sha: word(40), message: word(200), timestamp: '2026-01-02T03:04:05Z' },
  labels: [word(8), word(8), word(8)], body: word(190),
});
const documents = Array.from({ length: 1000 }, (_, i) => document(i));

const peers = {
  'graphile-worker': async () => {
    const { default: pg } = await import('pg');
    const { makeWorkerUtils, Logger } = await import('graphile-worker');
    const pgPool = new pg.Pool({ connectionString: url, max: 32 });
    const utils = await makeWorkerUtils({ pgPool, logger: new Logger(() => () => {}) });
    await utils.migrate();
    return (d) => utils.addJob('event', d);
  },
  'pg-boss': async () => {
    const { default: PgBoss } = await import('pg-boss');
    const boss = new PgBoss({ connectionString: url, max: 32, supervise: false, schedule: false });
    boss.on('error', () => {});
    await boss.start();
    await boss.createQueue('events');
    return (d) => boss.send('events', d);
  },
};

const insert = await peers[peer]();

async function load(ms) {
  const end = performance.now() + ms, latencies = [];
  let i = 0;
  await Promise.all(Array.from({ length: Number(callers) }, async () => {
    while (performance.now() < end) {
      const began = performance.now();
      await insert(documents[i++ % documents.length]);
      latencies.push(performance.now() - began);
    }
  }));
  return latencies;
}

await load(1000);
const began = performance.now();
const latencies = await load(Number(seconds) * 1000);
const took = (performance.now() - began) / 1000;
latencies.sort((a, b) => a - b);
const at = (q) => latencies[Math.min(latencies.length - 1, Math.floor(q * latencies.length))];
console.log(JSON.stringify({ n: latencies.length, seconds: took, p50: at(0.5), p99: at(0.99) }));
process.exit(0);
