import type { HookContext } from "@w6w/types";

/** Where this account's API is: the connection's `display` says so, without being a secret. */
export function baseUrl(ctx: HookContext): string {
  const display = ctx.connection?.display as { baseUrl?: string } | undefined;
  return (display?.baseUrl ?? "https://api.boxoffice.example/v1").replace(/\/$/, "");
}

export class BoxOfficeError extends Error {
  constructor(readonly status: number, what: string) {
    super(`The box office answered ${status} to ${what}`);
    this.name = "BoxOfficeError";
  }

  /** What is gone already need not be removed. */
  get gone(): boolean {
    return this.status === 404 || this.status === 410;
  }
}

/** The box office's API. `ctx.fetch` signs each request with the connection's credential. */
export class BoxOffice {
  constructor(private readonly ctx: HookContext) {}

  async request<T>(path: string, method = "GET", body?: unknown): Promise<T> {
    const answer = await this.ctx.fetch(baseUrl(this.ctx) + path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!answer.ok) throw new BoxOfficeError(answer.status, `${method} ${path.split("?")[0]}`);
    const text = await answer.text();
    return (text === "" ? null : JSON.parse(text)) as T;
  }

  async deleteWebhook(id: string): Promise<void> {
    try {
      await this.request(`/webhooks/${encodeURIComponent(id)}`, "DELETE");
    } catch (error) {
      if (!(error instanceof BoxOfficeError && error.gone)) throw error;
    }
  }
}
