import type { TriggerDefinition } from "@w6w/types";

/** {"count": 3, "from": 51} becomes {"n": 51}, {"n": 52}, {"n": 53}; anything else is one event. */
export const fan: TriggerDefinition = {
  key: "fan",
  title: "Fan",
  description: "Fires as often as the call asks for.",
  sample: { n: 1 },
  async handleIngest({ raw }) {
    const body = (raw as unknown as { body: unknown }).body as { count?: number; from?: number };
    if (!body.count) return [body];
    return Array.from({ length: body.count }, (_, i) => ({ n: (body.from ?? 1) + i }));
  },
};
