const notCloneable = (value) => new DOMException(String(typeof value === "symbol" ? value.toString() : typeof value) + " could not be cloned", "DataCloneError");

const cloneValue = (value, seen) => {
  if (typeof value === "function" || typeof value === "symbol") throw notCloneable(value);
  if (typeof value !== "object" || value === null) return value;
  if (seen.has(value)) return seen.get(value);
  const keep = (copy) => { seen.set(value, copy); return copy; };

  if (value instanceof Date) return keep(new Date(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (ArrayBuffer.isView(value)) {
    const buffer = cloneValue(value.buffer, seen);
    const length = value instanceof DataView ? value.byteLength : value.length;
    return keep(new value.constructor(buffer, value.byteOffset, length));
  }
  if (value instanceof Map) {
    const copy = keep(new Map());
    for (const [k, v] of value) copy.set(cloneValue(k, seen), cloneValue(v, seen));
    return copy;
  }
  if (value instanceof Set) {
    const copy = keep(new Set());
    for (const v of value) copy.add(cloneValue(v, seen));
    return copy;
  }
  if (value instanceof Boolean || value instanceof Number || value instanceof String) return keep(Object(value.valueOf()));
  if (value instanceof Error) {
    const Type = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }[value.name] ?? Error;
    const copy = keep(new Type(value.message));
    Object.defineProperty(copy, "stack", { value: value.stack, configurable: true, writable: true });
    return copy;
  }
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet || value instanceof WeakRef) throw notCloneable(value);
  if (value instanceof Blob) return value;
  const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
  for (const name of Object.keys(value)) copy[name] = cloneValue(value[name], seen);
  return copy;
};

const structuredClone = (value) => cloneValue(value, new Map());
expose({ structuredClone });
