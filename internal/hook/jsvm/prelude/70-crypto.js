const hashes = { "SHA-1": 20, "SHA-256": 32, "SHA-384": 48, "SHA-512": 64 };

const unsupported = (what) => new DOMException(what + " is not supported", "NotSupportedError");

const algorithmOf = (algorithm) => {
  const given = typeof algorithm === "string" ? { name: algorithm } : { ...algorithm };
  const known = ["SHA-1", "SHA-256", "SHA-384", "SHA-512", "HMAC", "RSASSA-PKCS1-v1_5", "ECDSA", "Ed25519"];
  const name = known.find((n) => n.toLowerCase() === String(given.name).toLowerCase());
  if (name === undefined) throw unsupported("algorithm " + String(given.name));
  return { ...given, name };
};

const hashOf = (algorithm) => {
  const { name } = algorithmOf(algorithm.hash ?? "");
  if (!(name in hashes)) throw unsupported("hash " + name);
  return name;
};

class CryptoKey {
  constructor() { throw new TypeError("Illegal constructor"); }
}
// Keys are held by a map that apps cannot reach: what is not extractable stays
// out of the key object.
const keys = new WeakMap();
const makeKey = (type, algorithm, extractable, usages, material) => {
  const key = Object.create(CryptoKey.prototype, {
    type: { value: type, enumerable: true },
    algorithm: { value: Object.freeze(algorithm), enumerable: true },
    extractable: { value: extractable, enumerable: true },
    usages: { value: Object.freeze([...usages]), enumerable: true },
  });
  keys.set(key, material);
  return Object.freeze(key);
};
tag(CryptoKey, "CryptoKey");

const material = (key, usage, name) => {
  const held = keys.get(key);
  if (held === undefined) throw new TypeError("key is not a CryptoKey");
  if (usage !== null && !key.usages.includes(usage)) throw new DOMException("the key may not be used to " + usage, "InvalidAccessError");
  if (name !== null && key.algorithm.name !== name) throw new DOMException("the key is for " + key.algorithm.name, "InvalidAccessError");
  return held;
};

// attempt turns what a host primitive throws into the error Web Crypto names.
const attempt = (name, operation) => {
  try {
    return operation();
  } catch (error) {
    throw new DOMException(error.message, name);
  }
};

const importHMAC = (format, data, algorithm, extractable, usages) => {
  const hash = hashOf(algorithm);
  let bytes;
  if (format === "raw") bytes = needBytes(data, "keyData").slice();
  else if (format === "jwk") {
    if (data.kty !== "oct" || typeof data.k !== "string") throw new DOMException("not a symmetric JWK", "DataError");
    bytes = attempt("DataError", () => Uint8Array.fromBase64(data.k, { alphabet: "base64url" }));
  } else throw unsupported("format " + format);
  if (bytes.length === 0) throw new DOMException("the key is empty", "DataError");
  return makeKey("secret", { name: "HMAC", hash: { name: hash }, length: bytes.length * 8 }, extractable, usages, bytes);
};

const importAsymmetric = (format, data, algorithm, extractable, usages) => {
  if (!["raw", "pkcs8", "spki", "jwk"].includes(format)) throw unsupported("format " + format);
  const given = format === "jwk" ? utf8(JSON.stringify(data)) : needBytes(data, "keyData");
  // The answer is DER (pkcs8 or spki) behind one byte that tells them apart.
  const answer = attempt("DataError", () => new Uint8Array(host.importKey(algorithm.name, format, given)));
  const described = { name: algorithm.name };
  if (algorithm.name === "RSASSA-PKCS1-v1_5") described.hash = { name: hashOf(algorithm) };
  if (algorithm.name === "ECDSA") described.namedCurve = "P-256";
  return makeKey(answer[0] === 1 ? "private" : "public", described, extractable, usages, answer.slice(1));
};

const hashForSignature = (algorithm, key) => {
  if (algorithm.name === "Ed25519") return "";
  return algorithm.name === "ECDSA" ? hashOf(algorithm) : key.algorithm.hash.name;
};

const subtle = {
  async digest(algorithm, data) {
    const { name } = algorithmOf(algorithm);
    if (!(name in hashes)) throw unsupported("digest " + name);
    return host.digest(name, needBytes(data, "data"));
  },
  async importKey(format, data, algorithm, extractable, usages) {
    const wanted = algorithmOf(algorithm);
    if (wanted.name === "HMAC") return importHMAC(format, data, wanted, Boolean(extractable), usages);
    return importAsymmetric(format, data, wanted, Boolean(extractable), usages);
  },
  async exportKey(format, key) {
    const held = material(key, null, null);
    if (!key.extractable) throw new DOMException("the key is not extractable", "InvalidAccessError");
    if (key.type === "secret") {
      if (format === "raw") return held.slice().buffer;
      if (format !== "jwk") throw unsupported("format " + format);
      return {
        kty: "oct", k: held.toBase64({ alphabet: "base64url", omitPadding: true }),
        alg: "HS" + key.algorithm.hash.name.slice(4), key_ops: [...key.usages], ext: true,
      };
    }
    const answer = attempt("NotSupportedError", () => host.exportKey(key.algorithm.name, key.type, format, held));
    if (format !== "jwk") return answer;
    const jwk = JSON.parse(textOf(new Uint8Array(answer)));
    if (key.algorithm.name === "RSASSA-PKCS1-v1_5") jwk.alg = "RS" + key.algorithm.hash.name.slice(4);
    return { ...jwk, key_ops: [...key.usages], ext: true };
  },
  async generateKey(algorithm, extractable, usages) {
    const wanted = algorithmOf(algorithm);
    if (wanted.name !== "HMAC") throw unsupported("generateKey for " + wanted.name);
    const length = wanted.length ? Math.ceil(wanted.length / 8) : hashes[hashOf(wanted)] > 32 ? 128 : 64;
    return importHMAC("raw", crypto.getRandomValues(new Uint8Array(length)), wanted, Boolean(extractable), usages);
  },
  async sign(algorithm, key, data) {
    const wanted = algorithmOf(algorithm);
    const held = material(key, "sign", wanted.name);
    const bytes = needBytes(data, "data");
    if (wanted.name === "HMAC") return host.hmac(key.algorithm.hash.name, held, bytes);
    if (key.type !== "private") throw new DOMException("the key is not private", "InvalidAccessError");
    return attempt("OperationError", () => host.sign(wanted.name, hashForSignature(wanted, key), held, bytes));
  },
  async verify(algorithm, key, signature, data) {
    const wanted = algorithmOf(algorithm);
    const held = material(key, "verify", wanted.name);
    const mac = needBytes(signature, "signature"), bytes = needBytes(data, "data");
    if (wanted.name === "HMAC") return host.hmacVerify(key.algorithm.hash.name, held, mac, bytes);
    if (key.type !== "public") throw new DOMException("the key is not public", "InvalidAccessError");
    return attempt("OperationError", () => host.verify(wanted.name, hashForSignature(wanted, key), held, mac, bytes));
  },
};
for (const name of ["encrypt", "decrypt", "deriveKey", "deriveBits", "wrapKey", "unwrapKey"]) {
  subtle[name] = async () => { throw unsupported("crypto.subtle." + name); };
}

const crypto = Object.freeze({
  subtle: Object.freeze(subtle),
  randomUUID: () => host.randomUUID(),
  getRandomValues(array) {
    const bytes = needBytes(array, "array");
    if (bytes.length > 65536) throw new DOMException("more than 65536 bytes of randomness", "QuotaExceededError");
    bytes.set(new Uint8Array(host.random(bytes.length)));
    return array;
  },
});

expose({ crypto, CryptoKey });
