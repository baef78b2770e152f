const tokenPattern = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

class Headers {
  #map = new Map(); // lower-case name -> values in order

  constructor(init) {
    if (init === undefined || init === null) return;
    if (init instanceof Headers) {
      for (const [name, values] of init.#map) this.#map.set(name, [...values]);
    } else if (typeof init[Symbol.iterator] === "function") {
      for (const [name, value] of init) this.append(name, value);
    } else {
      for (const name of Object.keys(init)) this.append(name, init[name]);
    }
  }

  static #name(name) {
    name = String(name);
    if (!tokenPattern.test(name)) throw new TypeError("Invalid header name: " + JSON.stringify(name));
    return name.toLowerCase();
  }
  static #value(value) {
    value = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
    if (/[\0\r\n]/.test(value)) throw new TypeError("Invalid header value");
    return value;
  }

  append(name, value) {
    name = Headers.#name(name);
    value = Headers.#value(value);
    const values = this.#map.get(name);
    if (values === undefined) this.#map.set(name, [value]);
    else values.push(value);
  }
  set(name, value) { this.#map.set(Headers.#name(name), [Headers.#value(value)]); }
  delete(name) { this.#map.delete(Headers.#name(name)); }
  get(name) {
    const values = this.#map.get(Headers.#name(name));
    return values === undefined ? null : values.join(", ");
  }
  getSetCookie() { return [...(this.#map.get("set-cookie") ?? [])]; }
  has(name) { return this.#map.has(Headers.#name(name)); }
  forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
  *entries() {
    for (const name of [...this.#map.keys()].sort()) {
      if (name === "set-cookie") for (const value of this.#map.get(name)) yield [name, value];
      else yield [name, this.#map.get(name).join(", ")];
    }
  }
  *keys() { for (const [name] of this.entries()) yield name; }
  *values() { for (const [, value] of this.entries()) yield value; }
  [Symbol.iterator]() { return this.entries(); }
}
tag(Headers, "Headers");

class Blob {
  #bytes; #type;
  constructor(parts = [], options = {}) {
    const pieces = [];
    for (const part of parts) {
      if (part instanceof Blob) pieces.push(part.#bytes);
      else pieces.push(bytesOf(part)?.slice() ?? utf8(String(part)));
    }
    this.#bytes = concatBytes(pieces);
    const type = String(options.type ?? "");
    this.#type = /[^\x20-\x7e]/.test(type) ? "" : type.toLowerCase();
  }
  get size() { return this.#bytes.length; }
  get type() { return this.#type; }
  async arrayBuffer() { return this.#bytes.slice().buffer; }
  async bytes() { return this.#bytes.slice(); }
  async text() { return textOf(this.#bytes); }
  slice(start = 0, end = this.#bytes.length, type = "") {
    return new Blob([this.#bytes.slice(start, end)], { type });
  }
  static bytes(blob) { return blob.#bytes; }
}
tag(Blob, "Blob");
const blobBytes = Blob.bytes;
delete Blob.bytes;

class File extends Blob {
  #name; #lastModified;
  constructor(parts, name, options = {}) {
    super(parts, options);
    this.#name = String(name);
    this.#lastModified = options.lastModified ?? Date.now();
  }
  get name() { return this.#name; }
  get lastModified() { return this.#lastModified; }
}
tag(File, "File");

class FormData {
  #list = [];
  #entry(name, value, filename) {
    if (value instanceof Blob) {
      const asFile = value instanceof File && filename === undefined
        ? value : new File([value], filename ?? (value instanceof File ? value.name : "blob"), { type: value.type });
      return [String(name), asFile];
    }
    return [String(name), String(value)];
  }
  append(name, value, filename) { this.#list.push(this.#entry(name, value, filename)); }
  set(name, value, filename) {
    const entry = this.#entry(name, value, filename);
    const at = this.#list.findIndex((e) => e[0] === entry[0]);
    if (at < 0) { this.#list.push(entry); return; }
    this.#list[at] = entry;
    this.#list = this.#list.filter((e, i) => i <= at || e[0] !== entry[0]);
  }
  delete(name) { this.#list = this.#list.filter((e) => e[0] !== String(name)); }
  get(name) { return this.#list.find((e) => e[0] === String(name))?.[1] ?? null; }
  getAll(name) { return this.#list.filter((e) => e[0] === String(name)).map((e) => e[1]); }
  has(name) { return this.#list.some((e) => e[0] === String(name)); }
  forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
  *entries() { for (const [name, value] of this.#list) yield [name, value]; }
  *keys() { for (const [name] of this.#list) yield name; }
  *values() { for (const [, value] of this.#list) yield value; }
  [Symbol.iterator]() { return this.entries(); }
}
tag(FormData, "FormData");

const multipart = (form) => {
  const boundary = "----tocsin" + host.randomUUID().replaceAll("-", "");
  const escape = (text) => text.replace(/\r?\n|\r/g, "\r\n").replace(/[\r\n"]/g, (c) => ({ "\r": "%0D", "\n": "%0A", '"': "%22" })[c]);
  const pieces = [];
  for (const [name, value] of form) {
    let head = "--" + boundary + '\r\nContent-Disposition: form-data; name="' + escape(name) + '"';
    if (value instanceof Blob) {
      head += '; filename="' + escape(value.name) + '"\r\nContent-Type: ' + (value.type || "application/octet-stream");
      pieces.push(utf8(head + "\r\n\r\n"), blobBytes(value), utf8("\r\n"));
    } else {
      pieces.push(utf8(head + "\r\n\r\n" + value.replace(/\r?\n|\r/g, "\r\n") + "\r\n"));
    }
  }
  pieces.push(utf8("--" + boundary + "--\r\n"));
  return { bytes: concatBytes(pieces), type: "multipart/form-data; boundary=" + boundary };
};

// extractBody is the bytes of a body and the content type they imply.
const extractBody = (body) => {
  if (body === null || body === undefined) return { bytes: null, type: null };
  if (typeof body === "string") return { bytes: utf8(body), type: "text/plain;charset=UTF-8" };
  const bytes = bytesOf(body);
  if (bytes !== null) return { bytes: bytes.slice(), type: null };
  if (body instanceof URLSearchParams) return { bytes: utf8(body.toString()), type: "application/x-www-form-urlencoded;charset=UTF-8" };
  if (body instanceof FormData) return multipart(body);
  if (body instanceof Blob) return { bytes: blobBytes(body), type: body.type || null };
  return { bytes: utf8(String(body)), type: "text/plain;charset=UTF-8" };
};

const parseMultipart = (bytes, boundary) => {
  const form = new FormData();
  // Latin-1 keeps one character per byte, so positions are byte positions.
  const text = host.decode(bytes, "latin1", false);
  const marker = "--" + boundary;
  let at = text.indexOf(marker);
  if (at < 0) throw new TypeError("the body is not multipart");
  for (;;) {
    at += marker.length;
    if (text.startsWith("--", at)) return form;
    const headEnd = text.indexOf("\r\n\r\n", at);
    const next = text.indexOf("\r\n" + marker, headEnd + 2);
    if (headEnd < 0 || next < 0) throw new TypeError("the multipart body is cut short");
    const head = textOf(bytes.subarray(at + 2, headEnd));
    const content = bytes.subarray(headEnd + 4, Math.max(next, headEnd + 4));
    const parameter = (key) => {
      const found = new RegExp("; *" + key + '="([^"]*)"', "i").exec(head);
      return found === null ? undefined : found[1].replace(/%0D|%0A|%22/g, (c) => ({ "%0D": "\r", "%0A": "\n", "%22": '"' })[c]);
    };
    const name = parameter("name");
    if (name === undefined) throw new TypeError("a multipart part has no name");
    const filename = parameter("filename");
    if (filename === undefined) form.append(name, textOf(content));
    else form.append(name, new File([content], filename, { type: /content-type: *([^\r\n]+)/i.exec(head)?.[1] ?? "" }));
    at = next + 2;
  }
};

// Body is what Request and Response share.
class Body {
  #bytes = null; #used = false; #stream = null;
  static fill(target, bytes) { target.#bytes = bytes; }
  static peek(target) { return target.#bytes; }
  get bodyUsed() { return this.#used; }
  get body() {
    if (this.#bytes === null) return null;
    if (this.#stream === null) this.#stream = new BodyStream(() => (this.#used ? null : this.#consume()));
    return this.#stream;
  }
  #consume() {
    if (this.#used) throw new TypeError("Body has already been consumed");
    this.#used = true;
    return this.#bytes ?? new Uint8Array(0);
  }
  async arrayBuffer() { return this.#consume().slice().buffer; }
  async bytes() { return this.#consume().slice(); }
  async blob() { return new Blob([this.#consume()], { type: this.headers.get("content-type") ?? "" }); }
  async text() {
    const text = textOf(this.#consume());
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
  async json() { return JSON.parse(await this.text()); }
  async formData() {
    const type = this.headers.get("content-type") ?? "";
    if (/^application\/x-www-form-urlencoded/i.test(type)) {
      const form = new FormData();
      for (const [name, value] of new URLSearchParams(await this.text())) form.append(name, value);
      return form;
    }
    const boundary = /^multipart\/form-data.*; *boundary=(?:"([^"]+)"|([^;]+))/i.exec(type);
    if (boundary === null) throw new TypeError("the content type is not a form");
    return parseMultipart(this.#consume(), boundary[1] ?? boundary[2]);
  }
}
const { fill: fillBody, peek: peekBody } = Body;
delete Body.fill;
delete Body.peek;

// BodyStream is as much of ReadableStream as a body that is already here
// needs: cancel, a reader with one chunk, async iteration.
class BodyStream {
  #take;
  constructor(take) { this.#take = take; }
  get locked() { return false; }
  async cancel() { this.#take(); }
  getReader() {
    const take = this.#take;
    return {
      async read() {
        const value = take();
        return value === null || value.length === 0 ? { value: undefined, done: true } : { value: value.slice(), done: false };
      },
      async cancel() { take(); },
      releaseLock() {},
    };
  }
  async *[Symbol.asyncIterator]() {
    const value = this.#take();
    if (value !== null && value.length > 0) yield value.slice();
  }
}
tag(BodyStream, "ReadableStream");

const upperMethods = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"];

class Request extends Body {
  #url; #method; #headers; #signal;
  constructor(input, init = {}) {
    super();
    const from = input instanceof Request ? input : null;
    this.#url = from !== null ? from.#url : new URL(String(input)).href;
    const method = String(init.method ?? from?.method ?? "GET");
    if (!tokenPattern.test(method)) throw new TypeError("Invalid method: " + method);
    const upper = method.toUpperCase();
    this.#method = upperMethods.includes(upper) ? upper : method;
    this.#headers = new Headers(init.headers ?? from?.headers);
    this.#signal = init.signal ?? from?.signal ?? null;
    const inherited = init.body === undefined && from !== null;
    const { bytes, type } = inherited ? { bytes: peekBody(from), type: null } : extractBody(init.body);
    if (bytes !== null && (this.#method === "GET" || this.#method === "HEAD")) {
      throw new TypeError("Request with GET/HEAD method cannot have body");
    }
    fillBody(this, bytes);
    if (type !== null && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
  }
  get url() { return this.#url; }
  get method() { return this.#method; }
  get headers() { return this.#headers; }
  get signal() { return this.#signal; }
  get redirect() { return "follow"; }
  clone() { return new Request(this); }
}
tag(Request, "Request");

class Response extends Body {
  #status; #statusText; #headers; #url = ""; #type = "default"; #redirected = false;
  constructor(body = null, init = {}) {
    super();
    const status = init.status ?? 200;
    if (!Number.isInteger(status) || status < 200 || status > 599) throw new RangeError("The status provided is outside the range [200, 599]");
    this.#status = status;
    this.#statusText = String(init.statusText ?? "");
    this.#headers = new Headers(init.headers);
    const { bytes, type } = extractBody(body);
    fillBody(this, bytes);
    if (type !== null && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
  }
  static received(answer, bytes, asked) {
    const response = new Response();
    response.#status = answer.status;
    response.#statusText = answer.statusText;
    response.#url = answer.url;
    response.#redirected = answer.url !== asked.split("#")[0];
    response.#type = "basic";
    for (const [name, value] of answer.headers) response.#headers.append(name, value);
    fillBody(response, bytes);
    return response;
  }
  static json(data, init = {}) {
    const response = new Response(JSON.stringify(data), init);
    if (!new Headers(init.headers).has("content-type")) response.#headers.set("content-type", "application/json");
    return response;
  }
  static error() {
    const response = new Response();
    response.#status = 0;
    response.#type = "error";
    return response;
  }
  static redirect(url, status = 302) {
    return new Response(null, { status, headers: { location: new URL(url).href } });
  }
  get status() { return this.#status; }
  get ok() { return this.#status >= 200 && this.#status <= 299; }
  get statusText() { return this.#statusText; }
  get headers() { return this.#headers; }
  get url() { return this.#url; }
  get type() { return this.#type; }
  get redirected() { return this.#redirected; }
  clone() {
    const copy = new Response();
    copy.#status = this.#status;
    copy.#statusText = this.#statusText;
    copy.#headers = new Headers(this.#headers);
    copy.#url = this.#url;
    copy.#type = this.#type;
    copy.#redirected = this.#redirected;
    fillBody(copy, peekBody(this));
    return copy;
  }
}
tag(Response, "Response");
const receivedResponse = Response.received;
delete Response.received;

// Host operations under way, by the id the host gave them.
const pending = new Map();
const hostErrors = new WeakMap(); // an error the host made -> its code

const settleFetch = (id, error, answer, bytes) => {
  const waiting = pending.get(id);
  if (waiting === undefined) return;
  pending.delete(id);
  if (error === undefined) {
    waiting.resolve(receivedResponse(answer, bytes === undefined ? null : new Uint8Array(bytes), waiting.url));
    return;
  }
  waiting.reject(hostError(error.code, error.message));
};

const hostError = (code, message) => {
  const error = new TypeError(message);
  if (code) {
    Object.defineProperty(error, "code", { value: code, configurable: true, enumerable: true, writable: true });
    hostErrors.set(error, code);
  }
  return error;
};

const contextFetch = async (input, init) => {
  const request = new Request(input, init ?? {});
  const { signal } = request;
  if (signal !== null) signal.throwIfAborted();
  const id = host.fetch(request.method, request.url, JSON.stringify([...request.headers]), peekBody(request));
  if (id < 0) throw hostError("", "too many requests are under way");
  return new Promise((resolve, reject) => {
    pending.set(id, { resolve, reject, url: request.url });
    if (signal !== null) signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
};

expose({ Headers, Blob, File, FormData, Request, Response });
