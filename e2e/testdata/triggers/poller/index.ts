import type { AppDefinition, TriggerDefinition } from "@w6w/types";

// The vendor counts the checks and says how each goes.
const counted: TriggerDefinition = {
  key: "counted",
  title: "Counted",
  params: [
    { key: "url", label: "Vendor", type: "string", required: true },
    { key: "name", label: "Name", type: "string", required: true },
  ],

  async poll({ params, state }, ctx) {
    const cursor = state?.cursor ?? 0;
    const answer = await ctx.fetch(`${params.url}/poll/${params.name}?cursor=${cursor}`);
    if (!answer.ok) throw new Error("the vendor answered " + answer.status);
    await answer.text();
    return { events: [1, 2, 3].map((n) => ({ n: cursor + n })), nextState: { cursor: cursor + 3 } };
  },

  parseOutput({ call, normalized }) {
    return { polled: call.n, n: normalized.n };
  },
};

export default { triggers: [counted] } satisfies AppDefinition;
