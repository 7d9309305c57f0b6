// Durations as people write them, such as 30s or 5m, and as the API wants them, in milliseconds.

import { el } from "./dom.js";

const UNITS = { ms: 1, s: 1000, m: 60000, min: 60000, h: 3600000, d: 86400000 };
export const DURATION = "\\d+(\\.\\d+)?\\s*(ms|s|m|min|h|d)";

export function milliseconds(text) {
  const [, value, unit] = /^([\d.]+)\s*(ms|s|min|m|h|d)$/.exec(text.trim()) ?? [];
  return unit === undefined ? null : Math.round(Number(value) * UNITS[unit]);
}

export function durationText(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms === 0) return "0s";
  const unit = ["d", "h", "m", "s"].find(each => ms >= UNITS[each] && ms % UNITS[each] === 0) ?? "ms";
  return `${ms / UNITS[unit]}${unit}`;
}

export function durationInput(properties) {
  return el("input", { pattern: DURATION, autocomplete: "off", title: "A number with a unit: ms, s, m, h or d", ...properties });
}
