// The prelude is the Web surface of a VM: one function body, made of the files
// of this directory in order of name. `host` holds the host's primitives; it
// is never reachable from an app. The intrinsics are frozen before the app
// runs, so the code here may use them directly.

const expose = (members) => {
  for (const name of Object.keys(members)) {
    Object.defineProperty(globalThis, name, {
      value: members[name], writable: false, enumerable: false, configurable: false,
    });
  }
};

const tag = (constructor, name) =>
  Object.defineProperty(constructor.prototype, Symbol.toStringTag, { value: name, configurable: true });

for (const name of ["dispose", "asyncDispose"]) {
  if (!(name in Symbol)) Object.defineProperty(Symbol, name, { value: Symbol("Symbol." + name) });
}

// Threads have no place here, and both are ways to build a precise clock.
delete globalThis.SharedArrayBuffer;
delete globalThis.Atomics;
// A hook cannot observe collection, so it cannot depend on its timing.
delete globalThis.gc;

class DOMException extends Error {
  #name;
  constructor(message = "", name = "Error") {
    super(String(message));
    this.#name = String(name);
  }
  get name() { return this.#name; }
  get code() { return DOMException.codes[this.#name] ?? 0; }
  static codes = {
    NotFoundError: 8, NotSupportedError: 9, InvalidStateError: 11, SyntaxError: 12, InvalidAccessError: 15,
    TimeoutError: 23, AbortError: 20, DataCloneError: 25,
  };
}
tag(DOMException, "DOMException");

// bytesOf is a Uint8Array over a BufferSource, or null.
const bytesOf = (source) => {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  return null;
};

const needBytes = (source, what) => {
  const bytes = bytesOf(source);
  if (bytes === null) throw new TypeError(what + " is not an ArrayBuffer or a view of one");
  return bytes;
};

const concatBytes = (parts) => {
  let size = 0;
  for (const part of parts) size += part.length;
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) { all.set(part, at); at += part.length; }
  return all;
};

const utf8 = (text) => new Uint8Array(host.utf8Encode(text));
const textOf = (bytes) => host.utf8Decode(bytes);
