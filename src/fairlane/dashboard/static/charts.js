// Small charts in table cells, in SVG and CSS, so that they appear at once. Large charts are in plots.js.

import { el, once, percent, setText, svg } from "./dom.js";

const WIDTH = 120, HEIGHT = 24;

function points(values, width, height, most, slots) {
  const step = width / Math.max(1, slots - 1), first = slots - values.length;
  return values.map((value, at) => `${((first + at) * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`).join(" ");
}

export function sparkline(cell, values, label) {
  const chart = once(cell, () => svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img" }, svg("polyline")));
  chart.setAttribute("aria-label", label);
  chart.firstChild.setAttribute("points", points(values, WIDTH, HEIGHT, Math.max(1, ...values), 60));
}

// The share a key received, as a bar, with its entitled share as a mark.
export function shareBar(cell, share, entitled, most) {
  const bar = once(cell, () => el("div", { class: "share" },
    el("div", { class: "track", "aria-hidden": "true" }, el("i", { class: "served" }), el("i", { class: "entitled" })), el("span")));
  const [track, words] = bar.children;
  track.children[0].style.width = `${(100 * share / most).toFixed(2)}%`;
  track.children[1].style.left = `${(100 * entitled / most).toFixed(2)}%`;
  bar.classList.toggle("over", share > entitled * 1.1 + 0.005);
  bar.classList.toggle("under", share < entitled * 0.9 - 0.005);
  setText(words, `${percent(share)}, entitled ${percent(entitled)}`);
}
