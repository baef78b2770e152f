/** What this app reads of the host's TriggerCall. */
export interface Call {
  headers: Record<string, string>;
  /** Parsed when the content type is JSON, else text; null for an empty body. */
  body: unknown;
  /** The exact bytes: as text when they are valid UTF-8, and always as base64. */
  rawBody?: string;
  rawBodyBase64?: string;
}

/** The bytes that GitHub signed. A body that was parsed and printed again would not do. */
function exactBytes(call: Call): Uint8Array {
  if (typeof call.rawBody === "string") return new TextEncoder().encode(call.rawBody);
  return Uint8Array.from(atob(call.rawBodyBase64 ?? ""), (c) => c.charCodeAt(0));
}

/** The bytes of `sha256=<64 hex digits>`, null for anything else. */
function signatureBytes(header: string | undefined): Uint8Array | null {
  const hex = /^sha256=([0-9a-f]{64})$/i.exec(header ?? "")?.[1];
  return hex ? Uint8Array.from(hex.match(/../g)!, (byte) => parseInt(byte, 16)) : null;
}

/**
 * Throws unless `X-Hub-Signature-256` is the HMAC-SHA256 of the exact body under `secret`.
 * The comparison is `crypto.subtle.verify`, whose time does not depend on the signature.
 */
export async function verifySignature(call: Call, secret: string): Promise<void> {
  const signature = signatureBytes(call.headers["x-hub-signature-256"]);
  if (!signature) throw new Error("The delivery is not signed: no X-Hub-Signature-256 header.");

  const key = await crypto.subtle.importKey(
    "raw",
    new TextEncoder().encode(secret),
    { name: "HMAC", hash: "SHA-256" },
    false,
    ["verify"],
  );
  if (!await crypto.subtle.verify("HMAC", key, signature, exactBytes(call))) {
    throw new Error("The delivery's signature does not match its body.");
  }
}
