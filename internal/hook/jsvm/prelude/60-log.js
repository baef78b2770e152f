const levels = ["debug", "info", "warn", "error"];

const show = (value) => {
  if (typeof value === "string") return value;
  if (value instanceof Error) return describeError(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
};

const logLine = (level, message, data) => {
  if (!levels.includes(level)) level = "info";
  let text;
  if (data !== undefined) {
    try {
      text = JSON.stringify(data);
    } catch {
      text = JSON.stringify(describeError(data));
    }
  }
  host.log(level, String(message), text);
};

const console = {};
for (const [method, level] of Object.entries({ debug: "debug", trace: "debug", log: "info", info: "info", dir: "info", table: "info", warn: "warn", error: "error" })) {
  console[method] = (...args) => logLine(level, args.map(show).join(" "));
}
console.assert = (condition, ...args) => { if (!condition) console.error("Assertion failed", ...args); };
for (const method of ["group", "groupEnd", "time", "timeEnd", "count"]) console[method] = () => {};

expose({ console: Object.freeze(console) });
