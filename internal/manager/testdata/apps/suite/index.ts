import type { AppDefinition } from "@w6w/types";

// A list of what to do comes with each call or subscription, so that the suite says in one place
// what a hook does and what follows from it.
export default {
  triggers: [
    { key: "plain", title: "No hooks" },
    {
      key: "parsed",
      title: "Ingest parser",
      handleIngest({ raw, params, state, subscriptionId }) {
        if (raw.body?.throw) throw new Error(raw.body.throw);
        if (raw.body?.result !== undefined) return raw.body.result;
        return [{ raw, params, state, subscriptionId }];
      },
    },
    {
      // Fails on the call as it came, and reads it as it is stored.
      key: "mended",
      title: "Mended ingest parser",
      handleIngest({ raw }) {
        if (raw.headers.authorization !== "[redacted]") throw new Error("not mended yet");
        return raw.body.n;
      },
    },
    {
      key: "managed",
      title: "Registered at a vendor",
      params: [
        { key: "channel", label: "Channel", type: "string", required: true },
        { key: "refuse", label: "Refuse", type: "string" },
        { key: "stubborn", label: "Refuse to go", type: "boolean", default: false },
      ],
      async onSubscribe({ params, subscriptionId, callbackUrl, hostUrl, hostContext }) {
        if (params.refuse) throw new Error(params.refuse);
        return { params, subscriptionId, callbackUrl, hostUrl, hostContext };
      },
      async onUnsubscribe({ params, state }) {
        if (params.stubborn) throw new Error("the vendor says no to " + state.subscriptionId.slice(0, 4));
      },
      handleIngest({ state }) {
        return [{ state }];
      },
    },
    {
      key: "asking",
      title: "Params that the app itself answers for",
      requiresAuth: false,
      params: [
        { key: "workspace", label: "Workspace", type: "string", required: true, validation: { hook: "checkWorkspace" } },
        { key: "channel", label: "Channel", type: "select", dependsOn: ["workspace"], options: { source: "./channels.ts" } },
      ],
      checkWorkspace({ value, form }) {
        if (value === "crash") throw new Error("the vendor is away");
        return value.startsWith("T") ? { ok: true } : { ok: false, message: `must start with T, not with ${form.workspace[0]}` };
      },
    },
    {
      key: "polled",
      title: "Polled",
      minIntervalMs: 20000,
      params: [{ key: "fail", label: "Fail at", type: "number" }],
      poll({ params, state }) {
        const cursor = state?.cursor ?? 0;
        if (cursor === params.fail) throw new Error("the vendor is away");
        return { events: [1, 2, 3].map((n) => ({ n: cursor + n })), nextState: { cursor: cursor + 3 } };
      },
      parseOutput({ call, normalized }) {
        return { call, normalized };
      },
    },
    {
      key: "output",
      title: "Output parser",
      parseOutput({ call, normalized, subscriptionId }) {
        if (normalized.throw) throw new Error(normalized.throw);
        return { call, normalized, subscriptionId, parsed: true };
      },
    },
  ],
} satisfies AppDefinition;
