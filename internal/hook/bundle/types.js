// What @w6w/types exports besides types, as far as apps use it.

export const TRIGGER_HOOK_KINDS = Object.freeze(["onSubscribe", "onUnsubscribe", "handleIngest", "poll", "parseOutput"]);

// From good to bad. A state that cannot be known is worse than a good one.
const healthStates = ["ok", "unknown", "degraded", "down"];

export const worstHealthState = (states) =>
  healthStates[Math.max(0, ...[...states].map((state) => healthStates.indexOf(state)))];

export const redact = (connection) => {
  const { credential, credentials, secret, secrets, ...rest } = connection ?? {};
  return rest;
};

export const isDynamicOptions = (options) =>
  typeof options === "object" && options !== null && !Array.isArray(options) && "source" in options;
