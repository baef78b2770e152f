// The engine has no Intl. What apps reach for is en-US, in UTC: that much is
// here, and another time zone is refused instead of answered wrongly.

const group = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

const currencySigns = { USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", ILS: "₪" };
const wholeCurrencies = ["JPY", "KRW", "CLP", "VND"];

const formatNumber = (value, options = {}) => {
  const number = Number(value);
  if (Number.isNaN(number)) return "NaN";
  const style = options.style ?? "decimal";
  const currency = style === "currency" ? String(options.currency ?? "").toUpperCase() : "";
  if (style === "currency" && !/^[A-Z]{3}$/.test(currency)) throw new TypeError("currency style needs a currency code");
  const usual = style === "currency" ? (wholeCurrencies.includes(currency) ? [0, 0] : [2, 2]) : style === "percent" ? [0, 0] : [0, 3];
  const minimum = options.minimumFractionDigits ?? Math.min(usual[0], options.maximumFractionDigits ?? usual[0]);
  const maximum = options.maximumFractionDigits ?? Math.max(usual[1], minimum);
  if (!(minimum >= 0 && maximum <= 100 && minimum <= maximum)) throw new RangeError("fraction digits are out of range");

  const size = Math.abs(style === "percent" ? number * 100 : number);
  let text = "∞";
  if (Number.isFinite(size)) {
    let [whole, fraction = ""] = (size >= 1e21 ? BigInt(size).toString() : size.toFixed(maximum)).split(".");
    while (fraction.length > minimum && fraction.endsWith("0")) fraction = fraction.slice(0, -1);
    if (options.minimumIntegerDigits) whole = whole.padStart(options.minimumIntegerDigits, "0");
    text = (options.useGrouping === false ? whole : group(whole)) + (fraction === "" ? "" : "." + fraction);
  }
  const sign = number < 0 || Object.is(number, -0) ? "-" : "";
  if (style === "percent") return sign + text + "%";
  if (style === "currency") return sign + (currencySigns[currency] ?? currency + "\u00a0") + text;
  return sign + text;
};

const months = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const two = (n) => String(n).padStart(2, "0");

const dateStyles = {
  full: { weekday: "long", year: "numeric", month: "long", day: "numeric" },
  long: { year: "numeric", month: "long", day: "numeric" },
  medium: { year: "numeric", month: "short", day: "numeric" },
  short: { year: "2-digit", month: "numeric", day: "numeric" },
};
const timeStyles = {
  full: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
  long: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
  medium: { hour: "numeric", minute: "2-digit", second: "2-digit" },
  short: { hour: "numeric", minute: "2-digit" },
};
const dateFields = ["weekday", "year", "month", "day"], timeFields = ["hour", "minute", "second"];

const formatDate = (date, options = {}, usual = "any") => {
  if (Number.isNaN(date.getTime())) return "Invalid Date";
  const zone = options.timeZone ?? "UTC";
  if (!["UTC", "GMT", "ETC/UTC", "ETC/GMT"].includes(String(zone).toUpperCase())) throw new RangeError("time zone " + zone + " is not supported");
  const wanted = { ...options, ...dateStyles[options.dateStyle], ...timeStyles[options.timeStyle] };
  const has = (fields) => fields.some((field) => wanted[field] !== undefined);
  if (!has(dateFields) && !has(timeFields)) {
    if (usual !== "time") Object.assign(wanted, { year: "numeric", month: "numeric", day: "numeric" });
    if (usual !== "date") Object.assign(wanted, { hour: "numeric", minute: "2-digit", second: "2-digit" });
  }
  return [datePart(date, wanted), timePart(date, wanted)].filter(Boolean).join(
    options.dateStyle === "full" || options.dateStyle === "long" ? " at " : ", ");
};

const datePart = (date, { weekday, year, month, day }) => {
  const y = year && (year === "2-digit" ? two(date.getUTCFullYear() % 100) : String(date.getUTCFullYear()));
  const d = day && (day === "2-digit" ? two(date.getUTCDate()) : String(date.getUTCDate()));
  const w = weekday && (weekday === "long" ? weekdays[date.getUTCDay()] : weekdays[date.getUTCDay()].slice(0, 3));
  if (month === "long" || month === "short") {
    const name = month === "long" ? months[date.getUTCMonth()] : months[date.getUTCMonth()].slice(0, 3);
    const monthDay = [name, d].filter(Boolean).join(" ");
    return [w, d ? [monthDay, y].filter(Boolean).join(", ") : [name, y].filter(Boolean).join(" ")].filter(Boolean).join(", ");
  }
  const m = month && (month === "2-digit" ? two(date.getUTCMonth() + 1) : String(date.getUTCMonth() + 1));
  return [w, [m, d, y].filter(Boolean).join("/")].filter(Boolean).join(", ");
};

const timePart = (date, { hour, minute, second, hour12, hourCycle, timeZoneName }) => {
  if (hour === undefined && minute === undefined && second === undefined) return "";
  const half = hour !== undefined && (hour12 ?? !(hourCycle === "h23" || hourCycle === "h24"));
  const hours = half ? date.getUTCHours() % 12 || 12 : date.getUTCHours();
  const text = [
    hour && (hour === "2-digit" || !half ? two(hours) : String(hours)),
    minute && two(date.getUTCMinutes()), second && two(date.getUTCSeconds()),
  ].filter(Boolean).join(":");
  return text + (half ? (date.getUTCHours() < 12 ? " AM" : " PM") : "") + (timeZoneName ? " UTC" : "");
};

const method = (prototype, name, value) =>
  Object.defineProperty(prototype, name, { value, writable: true, configurable: true });

method(Number.prototype, "toLocaleString", function toLocaleString(_locale, options) { return formatNumber(this.valueOf(), options); });
method(BigInt.prototype, "toLocaleString", function toLocaleString() { return this.toString().replace(/\d+/, group); });
method(Date.prototype, "toLocaleString", function toLocaleString(_locale, options) { return formatDate(this, options, "any"); });
method(Date.prototype, "toLocaleDateString", function toLocaleDateString(_locale, options) { return formatDate(this, options, "date"); });
method(Date.prototype, "toLocaleTimeString", function toLocaleTimeString(_locale, options) { return formatDate(this, options, "time"); });

class NumberFormat {
  #options;
  constructor(_locale, options = {}) { this.#options = { ...options }; }
  format = (value) => formatNumber(value, this.#options);
  resolvedOptions() { return { locale: "en-US", numberingSystem: "latn", style: "decimal", ...this.#options }; }
}
class DateTimeFormat {
  #options;
  constructor(_locale, options = {}) { this.#options = { ...options }; formatDate(new Date(0), this.#options, "date"); }
  format = (value) => formatDate(value === undefined ? new Date() : new Date(value), this.#options, "date");
  resolvedOptions() { return { locale: "en-US", calendar: "gregory", numberingSystem: "latn", timeZone: "UTC", ...this.#options }; }
}

expose({ Intl: Object.freeze({ NumberFormat, DateTimeFormat, getCanonicalLocales: () => ["en-US"] }) });
