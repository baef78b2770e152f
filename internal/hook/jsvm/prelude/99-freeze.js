// Freeze the intrinsics. A frozen prototype would also forbid its heirs to
// have an own property of the same name (`this.name = …` in a class that
// extends Error), so on the prototypes that apps extend by assignment each
// data property becomes an accessor whose setter defines it on the heir.
const openToHeirs = (prototype) => {
  for (const key of Reflect.ownKeys(prototype)) {
    const property = Object.getOwnPropertyDescriptor(prototype, key);
    if (!("value" in property) || !property.configurable) continue;
    const { value, enumerable } = property;
    Object.defineProperty(prototype, key, {
      get() { return value; },
      set(replacement) {
        if (this === prototype) throw new TypeError("Cannot assign to read only property '" + String(key) + "'");
        if (!isObject(this) && typeof this !== "function") return;
        Object.defineProperty(this, key, { value: replacement, writable: true, enumerable: true, configurable: true });
      },
      enumerable, configurable: false,
    });
  }
};

const freezeIntrinsics = () => {
  const heirs = [Object.prototype, Error.prototype, Function.prototype, Event.prototype, EventTarget.prototype];
  for (const E of [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, AggregateError, InternalError]) heirs.push(E.prototype);
  for (const prototype of heirs) openToHeirs(prototype);

  const hidden = [
    Object.getPrototypeOf(function* () {}), Object.getPrototypeOf(async function () {}), Object.getPrototypeOf(async function* () {}),
    Object.getPrototypeOf([][Symbol.iterator]()), Object.getPrototypeOf(""[Symbol.iterator]()),
    Object.getPrototypeOf(new Map()[Symbol.iterator]()), Object.getPrototypeOf(new Set()[Symbol.iterator]()),
    Object.getPrototypeOf("".matchAll(/a/g)), Object.getPrototypeOf(Uint8Array), BodyStream.prototype, Body.prototype, NumberFormat, DateTimeFormat,
  ];
  const seen = new Set();
  const freeze = (value) => {
    if (!isObject(value) && typeof value !== "function") return;
    if (value === globalThis || seen.has(value)) return;
    seen.add(value);
    Object.freeze(value);
    freeze(Object.getPrototypeOf(value));
    const prototype = Object.getOwnPropertyDescriptor(value, "prototype");
    if (prototype !== undefined) freeze(prototype.value);
  };
  for (const value of hidden) freeze(value);
  for (const key of Reflect.ownKeys(globalThis)) {
    const property = Object.getOwnPropertyDescriptor(globalThis, key);
    freeze(property.value);
    if ("value" in property && property.configurable) {
      Object.defineProperty(globalThis, key, { writable: false, configurable: false });
    }
  }
};

freezeIntrinsics();
expose({ self: globalThis });
return { load, describe, invoke, settleFetch, fireTimer, reset };
