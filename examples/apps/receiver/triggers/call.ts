import type { TriggerDefinition } from "@w6w/types";

/**
 * One run per call. The trigger has no hooks, so the body's JSON text goes through as it came:
 * key order, big numbers and escapes survive. The callback URL is the only secret there is.
 */
export const call: TriggerDefinition = {
  key: "call",
  title: "Call",
  description: "Fires for every call of the callback URL. The event is the call's body.",
  sample: { hello: "world" },
};
