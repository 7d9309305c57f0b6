// Small charts in SVG and CSS: nothing to load, nothing to wait for.

import { el, once, percent, setText, svg } from "./dom.js";

const WIDTH = 120, HEIGHT = 24;

function points(values, width, height, most, slots) {
  const step = width / Math.max(1, slots - 1), first = slots - values.length;
  return values.map((value, at) => `${((first + at) * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`).join(" ");
}

export function sparkline(cell, values, told) {
  const chart = once(cell, () => svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img" }, svg("polyline")));
  chart.setAttribute("aria-label", told);
  chart.firstChild.setAttribute("points", points(values, WIDTH, HEIGHT, Math.max(1, ...values), 60));
}

// What a key was served, as a bar, against its fair share, as a mark.
export function shareBar(cell, share, fair, most) {
  const bar = once(cell, () => el("div", { class: "share" },
    el("div", { class: "track", "aria-hidden": "true" }, el("i", { class: "served" }), el("i", { class: "fair" })), el("span")));
  const [track, words] = bar.children;
  track.children[0].style.width = `${(100 * share / most).toFixed(2)}%`;
  track.children[1].style.left = `${(100 * fair / most).toFixed(2)}%`;
  bar.classList.toggle("over", share > fair * 1.1 + 0.005);
  bar.classList.toggle("under", share < fair * 0.9 - 0.005);
  setText(words, `${percent(share)}, fair ${percent(fair)}`);
}

const LINES = [["enqueued", "enqueued"], ["leased", "delivered"], ["acked", "acked"], ["failed", "failed"]];
const WIDE = 720, TALL = 150, SLOTS = 300, FEW = 60;

// Rates over the last minutes: a line each for what was enqueued, delivered, acked and failed.
export class Timeline {
  constructor() {
    this.lines = LINES.map(([name]) => svg("polyline", { class: `line ${name}` }));
    const chart = svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, class: "timeline", preserveAspectRatio: "none", "aria-hidden": "true" }, ...this.lines);
    this.legend = LINES.map(([name, title]) => el("li", { class: name }, title, " ", el("b", {}, "0"), "/s"));
    this.most = el("span", { class: "most" });
    this.node = el("figure", { class: "panel" },
      el("figcaption", {}, "Messages a second, since this page was opened or for five minutes"),
      el("div", { class: "plot" }, chart, this.most), el("ul", { class: "legend" }, ...this.legend));
  }

  update(history) {
    const shown = history.slice(-SLOTS);
    const slots = Math.min(SLOTS, Math.max(FEW, shown.length));
    const most = Math.max(1, ...shown.flatMap(rates => LINES.map(([name]) => rates[name])));
    setText(this.most, `${Math.round(most)}/s`);
    LINES.forEach(([name], at) => {
      this.lines[at].setAttribute("points", points(shown.map(rates => rates[name]), WIDE, TALL, most, slots));
      setText(this.legend[at].querySelector("b"), (shown.at(-1)?.[name] ?? 0).toFixed(0));
    });
  }
}
