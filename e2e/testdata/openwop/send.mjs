// Sends posts signed by the Standard Webhooks reference library: reads
// {secret, url, posts: [{id, body}]} and writes the answers.
import { createRequire } from "node:module";

const { Webhook } = createRequire(process.argv[2] + "/")("standardwebhooks");
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { secret, url, posts } = JSON.parse(Buffer.concat(chunks).toString("utf8"));
const answers = [];
for (const { id, body } of posts) {
  const now = new Date();
  const response = await fetch(url, {
    method: "POST",
    body,
    headers: {
      "content-type": "application/json",
      "webhook-id": id,
      "webhook-timestamp": String(Math.floor(now.getTime() / 1000)),
      "webhook-signature": new Webhook(secret).sign(id, now, body),
    },
  });
  answers.push({ status: response.status, body: await response.json() });
}
console.log(JSON.stringify(answers));
