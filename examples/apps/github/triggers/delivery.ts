import type { TriggerDefinition } from "@w6w/types";
import { type Call, verifySignature } from "../lib/signature.ts";

interface Params {
  secret: string;
}

/**
 * One run per GitHub delivery. Set the subscription's callback URL as "Payload URL" of a
 * repository's or organization's webhook, with the same secret on both sides.
 */
export const delivery: TriggerDefinition<Params, unknown> = {
  key: "delivery",
  title: "Webhook delivery",
  description: "Fires for every delivery of a GitHub webhook. The event is GitHub's payload.",
  params: [
    {
      key: "secret",
      label: "Secret",
      type: "secret",
      required: true,
      hint: "The webhook's secret, as entered at GitHub.",
      validation: { minLength: 8 },
    },
  ],
  output: [
    { key: "action", type: "string", label: "Action" },
    { key: "repository.full_name", type: "string", label: "Repository" },
    { key: "sender.login", type: "string", label: "Sender" },
  ],
  sample: {
    action: "opened",
    repository: { full_name: "octo-org/octo-repo" },
    sender: { login: "octocat" },
  },

  async handleIngest({ raw, params }) {
    const call = raw as unknown as Call;
    await verifySignature(call, params.secret);
    return [payloadOf(call)];
  },
};

/** The payload of either content type that a GitHub webhook can be set to. */
function payloadOf(call: Call): unknown {
  if (call.headers["content-type"]?.startsWith("application/x-www-form-urlencoded")) {
    return JSON.parse(new URLSearchParams(call.rawBody ?? "").get("payload") ?? "null");
  }
  return typeof call.body === "string" ? JSON.parse(call.body) : call.body;
}
