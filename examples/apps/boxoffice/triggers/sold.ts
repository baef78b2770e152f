import type { TriggerDefinition } from "@w6w/types";
import { BoxOffice, BoxOfficeError } from "../lib/client.ts";

interface Params {
  show?: string;
}

/** What onSubscribe returns is kept with the subscription and given to the later hooks. */
interface State {
  webhookId: string;
}

/** What is stored when a ticket is sold: the box office sends a notice, not the order. */
interface Notice {
  action: string;
  orderId: string;
}

interface Delivery {
  webhookId: string;
  action: string;
  orderId?: string;
}

export const sold: TriggerDefinition<Params, Notice, State> = {
  key: "sold",
  title: "Ticket sold",
  description: "Fires for every order. The event is the order itself.",
  params: [
    { key: "show", label: "Show", type: "string", hint: "Only orders for this show. Blank: every show." },
  ],
  output: [
    { key: "action", type: "string", label: "Action" },
    { key: "order.id", type: "string", label: "Order" },
    { key: "order.buyer", type: "string", label: "Buyer" },
    { key: "order.tickets", type: "number", label: "Tickets" },
  ],
  sample: { action: "order.placed", orderId: "o_1", order: { id: "o_1", buyer: "Ada", tickets: 2 } },

  /** Registers the webhook. A throw here, and there is no subscription. */
  async onSubscribe({ params, callbackUrl }, ctx) {
    const api = new BoxOffice(ctx);
    // An attempt that failed half-way may have left a webhook behind; the URL is this subscription's alone.
    const { webhooks } = await api.request<{ webhooks: { id: string; url: string }[] }>("/webhooks");
    for (const old of webhooks.filter((w) => w.url === callbackUrl)) await api.deleteWebhook(old.id);

    const made = await api.request<{ id: string }>("/webhooks", "POST", {
      url: callbackUrl,
      actions: ["order.placed", "order.refunded"],
      show: params.show ?? null,
    });
    return { webhookId: made.id };
  },

  /** Takes the webhook down. A throw is logged, and the subscription is deleted all the same. */
  async onUnsubscribe({ state }, ctx) {
    await new BoxOffice(ctx).deleteWebhook(state.webhookId);
  },

  /** Runs while the vendor waits for its answer, so it only reads what came. */
  handleIngest({ raw, state }) {
    const delivery = raw.body as Delivery | null;
    if (typeof delivery?.action !== "string") throw new Error("This is no delivery of the box office.");
    if (delivery.action === "test") return []; // the button on the webhook's page
    if (delivery.webhookId !== state.webhookId) {
      throw new Error(`The delivery is for webhook ${delivery.webhookId}, not ${state.webhookId}.`);
    }
    return [{ action: delivery.action, orderId: String(delivery.orderId) }];
  },

  /** Runs just before the workflow does. A throw is tried again, up to five times in all. */
  async parseOutput({ normalized }, ctx) {
    const notice = normalized as Notice;
    try {
      const order = await new BoxOffice(ctx).request(`/orders/${encodeURIComponent(notice.orderId)}`);
      return { ...notice, order };
    } catch (error) {
      if (error instanceof BoxOfficeError && error.gone) return { ...notice, order: null };
      throw error;
    }
  },
};
