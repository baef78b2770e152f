import type { TriggerDefinition } from "@w6w/types";

interface Params {
  url: string;
}

interface Item {
  id: string;
  title?: string;
  url?: string;
}

/** The ids that the feed had at the last check. */
interface State {
  seen: string[];
}

/** Most feeds show fewer items than this. */
const REMEMBERED = 500;

export const item: TriggerDefinition<Params, Item, State> = {
  key: "item",
  title: "New item",
  description: "Fires for every item that was not in the feed at the check before.",
  minIntervalMs: 10_000,
  params: [
    {
      key: "url",
      label: "Feed",
      type: "string",
      required: true,
      placeholder: "https://example.org/feed.json",
      validation: { pattern: "^https?://" },
    },
  ],
  output: [
    { key: "id", type: "string", label: "Id" },
    { key: "title", type: "string", label: "Title" },
    { key: "url", type: "string", label: "Link" },
  ],
  sample: { id: "1", title: "Hello", url: "https://example.org/hello" },

  /**
   * One check. `nextState` is stored together with the events; after a throw nothing is, and the
   * next check starts from the same state.
   */
  async poll({ params, state }, ctx) {
    const answer = await ctx.fetch(params.url, { headers: { accept: "application/feed+json, application/json" } });
    if (!answer.ok) throw new Error(`The feed answered ${answer.status}.`);
    const { items } = (await answer.json()) as { items: Item[] };

    const ids = items.map((i) => String(i.id));
    const seen = new Set(state?.seen ?? ids); // the first check remembers what is there
    const fresh = items.filter((i) => !seen.has(String(i.id)));
    return {
      events: fresh.reverse(), // a feed shows its newest first, a workflow is to see the oldest first
      nextState: { seen: [...new Set([...ids, ...seen])].slice(0, REMEMBERED) },
    };
  },
};
