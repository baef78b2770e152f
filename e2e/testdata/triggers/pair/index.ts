import type { AppDefinition, TriggerDefinition } from "@w6w/types";

const REDACTED = "[redacted]";

const paired: TriggerDefinition = {
  key: "paired",
  title: "Paired",
  params: [{ key: "stubborn", label: "Refuse to go", type: "boolean" }],

  onSubscribe({ params, callbackUrl, subscriptionId }) {
    return { hook: `hook of ${subscriptionId}`, callbackUrl, stubborn: params.stubborn === true };
  },

  onUnsubscribe({ state }) {
    if (state.stubborn) throw new Error("it stays");
  },

  // One event, many, or a failure, as the call asks for it; never the credential itself.
  handleIngest({ raw, state }) {
    if (raw.query.fail) throw new Error("this call is refused");
    if (Array.isArray(raw.body)) return raw.body;
    const credential = raw.headers.authorization;
    return [{ body: raw.body, method: raw.method, seen: !!credential && credential !== REDACTED, hook: state.hook }];
  },

  parseOutput({ call, normalized }) {
    return { parsed: normalized, method: call.method, masked: call.headers.authorization === REDACTED };
  },
};

// A poll of another app than the one a test disables.
const ticking: TriggerDefinition = {
  key: "ticking",
  title: "Ticking",
  params: [{ key: "url", label: "Vendor", type: "string", required: true }],
  async poll({ params }, ctx) {
    await ctx.fetch(`${params.url}/poll/tick`);
    return { events: [] };
  },
};

export default { triggers: [paired, ticking] } satisfies AppDefinition;
