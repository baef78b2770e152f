class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return utf8(String(text)); }
  encodeInto(text, target) {
    const units = String(text);
    let read = 0, written = 0;
    for (const character of units) {
      const bytes = utf8(character);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }
}
tag(TextEncoder, "TextEncoder");

class TextDecoder {
  #encoding; #fatal; #ignoreBOM; #rest = new Uint8Array(0); #started = false;
  constructor(label = "utf-8", options = {}) {
    const name = String(label).trim().toLowerCase();
    if (["utf-8", "utf8", "unicode-1-1-utf-8"].includes(name)) this.#encoding = "utf-8";
    else if (["utf-16le", "utf-16", "ucs-2"].includes(name)) this.#encoding = "utf-16le";
    else if (["latin1", "iso-8859-1", "ascii", "us-ascii", "windows-1252"].includes(name)) this.#encoding = "windows-1252";
    else throw new RangeError("The encoding label '" + label + "' is not supported");
    this.#fatal = Boolean(options.fatal);
    this.#ignoreBOM = Boolean(options.ignoreBOM);
  }
  get encoding() { return this.#encoding; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBOM; }

  decode(input, options = {}) {
    let bytes = input === undefined ? new Uint8Array(0) : needBytes(input, "input");
    if (this.#rest.length > 0) bytes = concatBytes([this.#rest, bytes]);
    this.#rest = new Uint8Array(0);
    if (options.stream) {
      const keep = this.#incomplete(bytes);
      this.#rest = bytes.slice(bytes.length - keep);
      bytes = bytes.subarray(0, bytes.length - keep);
    }
    let text = host.decode(bytes, this.#encoding, this.#fatal);
    if (!this.#started && !this.#ignoreBOM && text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    this.#started = Boolean(options.stream) && (this.#started || text.length > 0);
    return text;
  }

  // How many bytes at the end may still become a character.
  #incomplete(bytes) {
    if (this.#encoding === "windows-1252") return 0;
    if (this.#encoding === "utf-16le") return bytes.length % 2;
    for (let back = 1; back <= 3 && back <= bytes.length; back++) {
      const byte = bytes[bytes.length - back];
      if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > back ? back : 0;
      if (byte < 0x80) return 0;
    }
    return 0;
  }
}
tag(TextDecoder, "TextDecoder");

const btoa = (data) => {
  const encoded = host.btoa(String(data));
  if (encoded === null) throw new DOMException("The string contains characters outside of the Latin1 range", "InvalidCharacterError");
  return encoded;
};

const atob = (data) => {
  const decoded = host.atob(String(data));
  if (decoded === null) throw new DOMException("The string is not correctly encoded", "InvalidCharacterError");
  return decoded;
};

expose({ DOMException, TextEncoder, TextDecoder, btoa, atob });
