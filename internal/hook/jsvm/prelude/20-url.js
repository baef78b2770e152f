const formEncode = (text) =>
  encodeURIComponent(text.isWellFormed() ? text : text.toWellFormed())
    .replace(/%20/g, "+")
    .replace(/[!'()~]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());

const formDecode = (text) => {
  const spaced = text.includes("+") ? text.replaceAll("+", " ") : text;
  if (!spaced.includes("%")) return spaced;
  return host.percentDecode(spaced);
};

class URLSearchParams {
  #list = [];
  #changed = null; // told after every change; belongs to a URL

  constructor(init = "") {
    if (init instanceof URLSearchParams) {
      this.#list = init.#list.map(([name, value]) => [name, value]);
    } else if (init !== null && (typeof init === "object" || typeof init === "function")) {
      if (typeof init[Symbol.iterator] === "function") {
        for (const pair of init) {
          const entry = [...pair];
          if (entry.length !== 2) throw new TypeError("each entry must be a pair of name and value");
          this.#list.push([String(entry[0]), String(entry[1])]);
        }
      } else {
        for (const name of Object.keys(init)) this.#list.push([name, String(init[name])]);
      }
    } else {
      this.#parse(String(init));
    }
  }

  static forURL(query, changed) {
    const params = new URLSearchParams(query);
    params.#changed = changed;
    return params;
  }

  static replace(params, query) { params.#list = []; params.#parse(query); }

  #parse(query) {
    if (query.startsWith("?")) query = query.slice(1);
    for (const part of query.split("&")) {
      if (part === "") continue;
      const at = part.indexOf("=");
      this.#list.push(at < 0 ? [formDecode(part), ""] : [formDecode(part.slice(0, at)), formDecode(part.slice(at + 1))]);
    }
  }
  #update() { if (this.#changed !== null) this.#changed(this.toString()); }

  get size() { return this.#list.length; }
  append(name, value) { this.#list.push([String(name), String(value)]); this.#update(); }
  delete(name, value) {
    name = String(name);
    this.#list = this.#list.filter((e) => e[0] !== name || (value !== undefined && e[1] !== String(value)));
    this.#update();
  }
  get(name) {
    name = String(name);
    const entry = this.#list.find((e) => e[0] === name);
    return entry === undefined ? null : entry[1];
  }
  getAll(name) { name = String(name); return this.#list.filter((e) => e[0] === name).map((e) => e[1]); }
  has(name, value) {
    name = String(name);
    return this.#list.some((e) => e[0] === name && (value === undefined || e[1] === String(value)));
  }
  set(name, value) {
    name = String(name);
    const at = this.#list.findIndex((e) => e[0] === name);
    if (at < 0) this.#list.push([name, String(value)]);
    else {
      this.#list[at][1] = String(value);
      this.#list = this.#list.filter((e, i) => i <= at || e[0] !== name);
    }
    this.#update();
  }
  sort() { this.#list.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)); this.#update(); }
  forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
  *entries() { for (const [name, value] of this.#list) yield [name, value]; }
  *keys() { for (const [name] of this.#list) yield name; }
  *values() { for (const [, value] of this.#list) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([name, value]) => formEncode(name) + "=" + formEncode(value)).join("&"); }
}
tag(URLSearchParams, "URLSearchParams");
const { forURL: searchParamsForURL, replace: replaceSearchParams } = URLSearchParams;
delete URLSearchParams.forURL;
delete URLSearchParams.replace;

// The order in which the host writes the parts of a URL, one per line.
const HREF = 0, PROTOCOL = 1, USERNAME = 2, PASSWORD = 3, HOST = 4, HOSTNAME = 5, PORT = 6, PATHNAME = 7, SEARCH = 8, HASH = 9, ORIGIN = 10;

class URL {
  #parts; #params = null;

  constructor(url, base) {
    const parts = host.urlParse(String(url), base === undefined ? null : String(base));
    if (parts === null) {
      const error = new TypeError("Invalid URL");
      error.code = "ERR_INVALID_URL";
      throw error;
    }
    this.#parts = parts.split("\n");
  }

  static canParse(url, base) { return host.urlParse(String(url), base === undefined ? null : String(base)) !== null; }
  static parse(url, base) { return URL.canParse(url, base) ? new URL(url, base) : null; }

  #set(part, value) {
    const parts = host.urlSet(this.#parts[HREF], part, String(value));
    if (parts !== null) this.#parts = parts.split("\n");
    return parts !== null;
  }

  get href() { return this.#parts[HREF]; }
  set href(value) {
    this.#parts = new URL(value).#parts;
    if (this.#params !== null) replaceSearchParams(this.#params, this.search);
  }
  get origin() { return this.#parts[ORIGIN]; }
  get protocol() { return this.#parts[PROTOCOL]; }
  set protocol(value) { this.#set("protocol", value); }
  get username() { return this.#parts[USERNAME]; }
  set username(value) { this.#set("username", value); }
  get password() { return this.#parts[PASSWORD]; }
  set password(value) { this.#set("password", value); }
  get host() { return this.#parts[HOST]; }
  set host(value) { this.#set("host", value); }
  get hostname() { return this.#parts[HOSTNAME]; }
  set hostname(value) { this.#set("hostname", value); }
  get port() { return this.#parts[PORT]; }
  set port(value) { this.#set("port", value); }
  get pathname() { return this.#parts[PATHNAME]; }
  set pathname(value) { this.#set("pathname", value); }
  get search() { return this.#parts[SEARCH]; }
  set search(value) {
    this.#set("search", value);
    if (this.#params !== null) replaceSearchParams(this.#params, this.search);
  }
  get hash() { return this.#parts[HASH]; }
  set hash(value) { this.#set("hash", value); }
  get searchParams() {
    if (this.#params === null) this.#params = searchParamsForURL(this.search, (query) => this.#set("search", query));
    return this.#params;
  }
  toString() { return this.href; }
  toJSON() { return this.href; }
}
tag(URL, "URL");

expose({ URL, URLSearchParams });
