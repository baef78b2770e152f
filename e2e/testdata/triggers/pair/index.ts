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

export default { triggers: [paired] } satisfies AppDefinition;
