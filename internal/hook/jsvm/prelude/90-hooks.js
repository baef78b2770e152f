// How the host loads an app and calls its hooks.

const hooks = new Map(); // "<trigger key>/<hook>" or "auth:<key>/<hook>" -> { self, call }
let app = null;
let ownGlobals = new Set(); // the names that were there when the app was loaded

const isObject = (value) => typeof value === "object" && value !== null;
const listOf = (value) => (Array.isArray(value) ? value : isObject(value) ? [value] : []);

// A hook may be a path: the module's default export, or the export that has
// the hook's name, is the function then.
const functionOf = (value, name, modules) => {
  if (typeof value === "function") return value;
  if (typeof value !== "string" || !Object.hasOwn(modules, value)) return null;
  const found = modules[value].default ?? modules[value][name];
  return typeof found === "function" ? found : null;
};

const addHooks = (prefix, self, modules) => {
  for (const name in self) {
    const call = functionOf(self[name], name, modules);
    if (call !== null) hooks.set(prefix + "/" + name, { self, call });
  }
};

// load takes what the bundle exported: { app, modules }.
const load = (exported) => {
  const namespace = exported.app;
  const definition = namespace.default ?? namespace.app;
  if (!isObject(definition)) throw new TypeError("the app has no default export (nor an export named app) that is an object");
  const modules = exported.modules ?? {};
  for (const trigger of listOf(definition.triggers)) {
    if (isObject(trigger) && typeof trigger.key === "string") {
      for (const name of [...hooks.keys()]) if (name.startsWith(trigger.key + "/")) hooks.delete(name);
      addHooks(trigger.key, trigger, modules);
      // What a param names by its path (options.source, validation.hook) is called by that path.
      const params = JSON.stringify(trigger.params ?? null) ?? "";
      for (const path in modules) {
        const call = params.includes(JSON.stringify(path)) ? functionOf(path, "default", modules) : null;
        if (call !== null) hooks.set(trigger.key + "/" + path, { self: trigger, call });
      }
    }
  }
  for (const method of listOf(definition.auth)) {
    if (isObject(method)) addHooks("auth:" + String(method.key ?? method.type ?? ""), method, modules);
  }
  app = definition;
  ownGlobals = new Set(Reflect.ownKeys(globalThis));
};

const describe = () => {
  let definition;
  try {
    definition = JSON.stringify(app);
  } catch (error) {
    throw new TypeError("the app's definition is not plain data: " + describeError(error));
  }
  return '{"definition":' + definition + ',"hooks":' + JSON.stringify([...hooks.keys()]) + "}";
};

const noFile = async () => { throw new DOMException("this host keeps no files", "NotSupportedError"); };
const file = Object.freeze({ read: noFile, create: noFile });
const contextLog = (level, message, data) => logLine(level, message, data);

const addRawBody = (input, text) => {
  if (!isObject(input) || !isObject(input.raw)) return;
  const { raw } = input;
  if (text !== undefined) raw.rawBody = text;
  // Few hooks want the base64 form, and making it costs as much as parsing
  // the body: it looks like a plain property and is made when first read.
  const call = host.callNumber();
  const keep = (value) => Object.defineProperty(raw, "rawBodyBase64", { value, enumerable: true, configurable: true, writable: true });
  Object.defineProperty(raw, "rawBodyBase64", {
    get() { const value = host.rawBodyBase64(call); keep(value); return value; },
    set: keep,
    enumerable: true, configurable: true,
  });
};

const invoke = (name, input, extra, hasRaw, rawText) => {
  const hook = hooks.get(name);
  if (hook === undefined) { host.fail("hook_not_declared", "", "the app has no hook " + name, ""); return; }
  if (hasRaw) addRawBody(input, rawText);
  const context = { fetch: contextFetch, log: contextLog, file };
  if (isObject(extra)) Object.assign(context, extra);
  let result;
  try {
    result = hook.call.call(hook.self, input, context);
    if (isObject(result) && typeof result.then === "function") {
      Promise.resolve(result).then(succeed, fail);
      return;
    }
  } catch (error) {
    fail(error);
    return;
  }
  succeed(result);
};

const succeed = (result) => {
  let text;
  try {
    text = result === undefined ? "null" : JSON.stringify(result);
  } catch (error) {
    if (error instanceof InternalError) fail(error);
    else host.fail("hook_returned_invalid", "", "the result is not JSON: " + describeError(error), "");
    return;
  }
  if (text === undefined) host.fail("hook_returned_invalid", "", "the result is a " + typeof result, "");
  else host.settle(text);
};

const fail = (error) => {
  let name = "", message = "", stack = "";
  try {
    if (error instanceof Error) {
      name = String(error.name);
      message = String(error.message);
      stack = String(error.stack ?? "");
    } else {
      message = isObject(error) ? show(error) : String(error);
    }
  } catch {
    message = "the thrown value cannot be shown";
  }
  host.fail(isObject(error) ? hostErrors.get(error) ?? "" : "", name, message, stack);
};

// reset drops what a call left behind, so that it cannot wake in the next one.
// It answers false when a global will not go.
const reset = () => {
  timers.clear();
  intervals.clear();
  pending.clear();
  return Reflect.ownKeys(globalThis).every((key) => ownGlobals.has(key) || Reflect.deleteProperty(globalThis, key));
};
