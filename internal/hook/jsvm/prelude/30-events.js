class Event {
  #type; #cancelable; #prevented = false; #stopped = false;
  constructor(type, options = {}) { this.#type = String(type); this.#cancelable = Boolean(options.cancelable); }
  target = null;
  currentTarget = null;
  timeStamp = 0;
  get type() { return this.#type; }
  get cancelable() { return this.#cancelable; }
  get defaultPrevented() { return this.#prevented; }
  preventDefault() { if (this.#cancelable) this.#prevented = true; }
  stopPropagation() {}
  stopImmediatePropagation() { this.#stopped = true; }
  static stopped(event) { return event.#stopped; }
}
tag(Event, "Event");
const eventStopped = Event.stopped;
delete Event.stopped;

class EventTarget {
  #listeners = [];
  addEventListener(type, callback, options = {}) {
    if (callback === null || callback === undefined) return;
    type = String(type);
    if (this.#listeners.some((l) => l.type === type && l.callback === callback)) return;
    this.#listeners.push({ type, callback, once: Boolean(options && options.once) });
  }
  removeEventListener(type, callback) {
    this.#listeners = this.#listeners.filter((l) => l.type !== String(type) || l.callback !== callback);
  }
  dispatchEvent(event) {
    event.target = event.currentTarget = this;
    const handler = this["on" + event.type];
    if (typeof handler === "function") report(() => handler.call(this, event));
    for (const listener of [...this.#listeners]) {
      if (listener.type !== event.type || eventStopped(event)) continue;
      if (listener.once) this.removeEventListener(listener.type, listener.callback);
      const { callback } = listener;
      report(() => (typeof callback === "function" ? callback.call(this, event) : callback.handleEvent(event)));
    }
    event.currentTarget = null;
    return !event.defaultPrevented;
  }
}
tag(EventTarget, "EventTarget");

// report runs a callback that nobody waits for; what it throws goes to the log.
const report = (callback) => {
  try {
    callback();
  } catch (error) {
    logLine("error", "uncaught " + describeError(error));
  }
};

const describeError = (error) => {
  try {
    return error instanceof Error ? error.name + ": " + error.message : String(error);
  } catch {
    return "error";
  }
};

let makeSignal;
class AbortSignal extends EventTarget {
  #aborted = false; #reason = undefined;
  onabort = null;
  static #making = false;
  constructor() {
    super();
    if (!AbortSignal.#making) throw new TypeError("Illegal constructor");
  }
  get aborted() { return this.#aborted; }
  get reason() { return this.#reason; }
  throwIfAborted() { if (this.#aborted) throw this.#reason; }

  static {
    makeSignal = () => {
      AbortSignal.#making = true;
      const signal = new AbortSignal();
      AbortSignal.#making = false;
      const abort = (reason) => {
        if (signal.#aborted) return;
        signal.#aborted = true;
        signal.#reason = reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
        signal.dispatchEvent(new Event("abort"));
      };
      return { signal, abort };
    };
  }
  static abort(reason) {
    const { signal, abort } = makeSignal();
    abort(reason);
    return signal;
  }
  static timeout(milliseconds) {
    const { signal, abort } = makeSignal();
    setTimer(() => abort(new DOMException("The operation timed out", "TimeoutError")), milliseconds);
    return signal;
  }
  static any(signals) {
    const { signal, abort } = makeSignal();
    for (const source of signals) {
      if (source.aborted) { abort(source.reason); break; }
      source.addEventListener("abort", () => abort(source.reason), { once: true });
    }
    return signal;
  }
}
tag(AbortSignal, "AbortSignal");

class AbortController {
  #pair = makeSignal();
  get signal() { return this.#pair.signal; }
  abort(reason) { this.#pair.abort(reason); }
}
tag(AbortController, "AbortController");

// Timers. The host keeps the times, the VM the callbacks.
const timers = new Map();

const setTimer = (callback, milliseconds) => {
  const id = host.setTimer(Math.max(0, Number(milliseconds) || 0));
  timers.set(id, callback);
  return id;
};

const fireTimer = (id) => {
  const callback = timers.get(id);
  timers.delete(id);
  if (callback !== undefined) report(callback);
};

const setTimeout = (callback, milliseconds = 0, ...args) => {
  if (typeof callback !== "function") throw new TypeError("callback is not a function");
  return setTimer(() => callback(...args), milliseconds);
};

// An interval keeps its first id through all its timers.
const intervals = new Map();
const setInterval = (callback, milliseconds = 0, ...args) => {
  if (typeof callback !== "function") throw new TypeError("callback is not a function");
  const again = () => {
    intervals.set(first, setTimer(again, Math.max(1, milliseconds)));
    callback(...args);
  };
  const first = setTimer(again, Math.max(1, milliseconds));
  intervals.set(first, first);
  return first;
};

const clearTimeout = (id) => {
  const current = intervals.get(id) ?? id;
  intervals.delete(id);
  if (timers.delete(current)) host.clearTimer(current);
};

const queueMicrotask = (callback) => {
  if (typeof callback !== "function") throw new TypeError("callback is not a function");
  Promise.resolve().then(() => report(callback));
};

const performance = Object.freeze({ now: () => Date.now(), timeOrigin: 0 });

expose({
  Event, EventTarget, AbortSignal, AbortController,
  setTimeout, setInterval, clearTimeout, clearInterval: clearTimeout, queueMicrotask, performance,
});
