import type { AuthDefinition } from "@w6w/types";
import { baseUrl } from "../lib/client.ts";

interface Credential {
  accessToken: string;
  refreshToken: string;
  expiresAt?: string;
}

/**
 * Access tokens that last an hour. These hooks alone see the credential; the triggers' requests
 * are signed on their way out.
 */
export const token: AuthDefinition = {
  key: "token",
  type: "bearer",
  displayName: "Access token",

  sign({ request, credential }) {
    const { accessToken } = credential as Credential;
    request.headers["authorization"] = `Bearer ${accessToken}`;
    return request;
  },

  /** Runs before a hook when the credential has expired. Its fetch is not signed. */
  async refresh({ credential }, ctx) {
    const { refreshToken } = credential as Credential;
    const answer = await ctx.fetch(`${baseUrl(ctx)}/token`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ refreshToken }),
    });
    if (!answer.ok) throw new Error(`The box office gave no new token: ${answer.status}`);
    return await answer.json();
  },
};
