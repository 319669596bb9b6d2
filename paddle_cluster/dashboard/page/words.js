// SPDX-License-Identifier: Apache-2.0
// Elements and texts. Output of a job is inserted as text, never as markup.

const SIGNS = { good: "✓", bad: "✕", busy: "●", stopped: "■", unknown: "?" };

export const byId = (id) => document.getElementById(id);

export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

export const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

// A tag that shows a state by a sign, a text and a colour.
export function putTone(node, kind, words) {
  put(node, `${SIGNS[kind] ?? "?"} ${words}`);
  node.className = `tone ${kind in SIGNS ? kind : "unknown"}`;
}

// Replace a list's items. Elements that remain are kept, and with them the focus and the selection.
export function fill(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, at) => update(parent.children[at] ?? parent.appendChild(make()), item));
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const number = (value, digits = 5) =>
  !isNumber(value) ? "" : Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(digits)));

// A number, short enough for an axis: 824.5K, 0.2725, 1.2e-7.
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
export const short = (value) =>
  !isNumber(value) ? "" : value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : COMPACT.format(value);

// The ticks of an axis, with enough digits to distinguish them.
export function apart(ticks) {
  for (let digits = 4; digits < 9; digits++) {
    const told = ticks.map(new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: digits }).format);
    if (new Set(told).size === ticks.length) return ticks.map((tick, at) => (short(tick).includes("e") ? short(tick) : told[at]));
  }
  return ticks.map(short);
}

export const speed = (value) => (isNumber(value) ? value.toLocaleString("en", { maximumFractionDigits: value > 0 && value < 10 ? 1 : 0 }) : "");

export const whole = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : "");

export function bytes(value) {
  if (!isNumber(value)) return "";
  for (const [power, unit] of [[30, "GB"], [20, "MB"], [10, "kB"]]) {
    if (value >= 2 ** power) return `${(value / 2 ** power).toFixed(1)} ${unit}`;
  }
  return `${value} B`;
}

export const percent = (value) => (isNumber(value) ? `${Math.round(value).toLocaleString("en")} %` : "");

export const perSecond = (value) => (isNumber(value) ? `${bytes(Math.round(value))}/s` : "");

export const ofAll = (used, there) => (there ? `${bytes(used)} of ${bytes(there)}` : bytes(used));

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// A duration in its largest unit, rounded down as in `status`; or in its two largest: "1 min 26 s".
export function span(seconds, parts = 1) {
  let rest = Math.max(0, Math.floor(seconds));
  const first = Math.max(0, UNITS.findIndex(([, size]) => rest >= size));
  if (rest < 1) return "0 s";
  return UNITS.slice(first, first + parts).map(([unit, size]) => {
    const count = Math.floor(rest / size);
    rest %= size;
    return count ? `${count} ${unit}` : "";
  }).filter(Boolean).join(" ");
}

export const ago = (at) => (isNumber(at) ? `${span(Date.now() / 1000 - at)} ago` : "");

export const counted = (many, noun) => `${many.toLocaleString("en")} ${noun}${many === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;

export function stateOf(process) {
  const state = process.state || "unknown";
  if (process.signal) return `${state}, signal ${process.signal}`;
  return isNumber(process.code) ? `${state}, code ${process.code}` : state;
}
