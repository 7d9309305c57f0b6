// Charts over time, drawn in SVG: no package is needed, they appear at once, and a time without data is a gap.

import { el, number, setText, svg } from "./dom.js";

const PAD = { left: 46, right: 8, top: 8, bottom: 20 }, GAP_STEPS = 2.5, TICKS_X = 6, NARROW = 560, TICKS_NARROW = 3;
const time = (ms, isLong) => new Date(ms).toISOString().slice(11, isLong ? 19 : 16);
const NICE = [1, 2, 2.5, 5, 10], STEPS_MS = [5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600].map(each => each * 1000);

// The instant that all charts of a page point at. Null while the pointer is elsewhere.
export class Cursor extends EventTarget {
  at_ms = null;

  set(ms) {
    if (ms === this.at_ms) return;
    this.at_ms = ms;
    this.dispatchEvent(new Event("move"));
  }
}

function top(most, tops) {
  const listed = tops?.find(each => each >= most);
  if (listed) return listed;
  if (most <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return NICE.find(each => each * size >= most) * size;
}

// Splits points where one is missing.
export function runs(points, step) {
  const found = [];
  points.forEach((point, at) => {
    if (at === 0 || point.at_ms - points[at - 1].at_ms > GAP_STEPS * step) found.push([]);
    found.at(-1).push(point);
  });
  return found;
}

// ``series`` are [name, title, class]. With ``isStacked`` the values of a point are parts that add up.
export class LineChart {
  constructor(caption, series, { cursor, format = number, tall = 170, isStacked = false, most = null, unit = "", tick = format, tops = null } = {}) {
    Object.assign(this, { caption, cursor, format, tall, isStacked, most, unit, tick, tops });
    this.drawing = svg("svg", { class: "lines", role: "img", "aria-label": caption });
    this.note = el("p", { class: "faint none", hidden: true }, "Nothing recorded yet.");
    this.legend = el("ul", { class: "legend" });
    this.node = el("figure", { class: "chart" }, el("figcaption", {}, caption), this.legend, this.drawing, this.note);
    this.data = null;
    this.setSeries(series);
    new ResizeObserver(() => this.draw()).observe(this.node);
    this.drawing.addEventListener("pointermove", event => this.point(event));
    this.drawing.addEventListener("pointerleave", () => cursor?.set(null));
    cursor?.addEventListener("move", () => this.mark());
  }

  setSeries(series) {
    this.series = series;
    this.items = series.map(([, title, kind]) => el("li", { class: kind }, el("i"), el("span", {}, title), " ", el("b")));
    this.legend.replaceChildren(...this.items);
  }

  // Draws points from one instant to another; ``step`` is the time between two points.
  update(points, { from, until, step }) {
    this.data = { points, from, until, step };
    this.draw();
  }

  point(event) {
    if (!this.data || !this.scale) return;
    const box = this.drawing.getBoundingClientRect();
    this.cursor?.set(Math.round(this.scale.at(event.clientX - box.left)));
  }

  draw() {
    const width = this.node.clientWidth;
    if (!this.data || !width) return;
    const { points, from, until, step } = this.data, high = this.tall - PAD.bottom - PAD.top, wide = width - PAD.left - PAD.right;
    const sums = points.map(point => this.values(point)).map(values => this.isStacked ? values.reduce((sum, each) => sum + (each ?? 0), 0) : Math.max(0, ...values.map(each => each ?? 0)));
    const most = this.most ?? top(Math.max(0, ...sums), this.tops);
    const x = ms => PAD.left + wide * (ms - from) / (until - from), y = value => PAD.top + high * (1 - value / most);
    this.scale = { x, at: place => from + (place - PAD.left) * (until - from) / wide };
    this.note.hidden = points.length > 0;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${this.tall}`);
    this.drawing.setAttribute("height", this.tall);
    this.marker = svg("line", { class: "marker", y1: PAD.top, y2: PAD.top + high, visibility: "hidden" });
    const parts = [...this.grid(most, x, y, width)];
    for (const run of runs(points, step)) parts.push(...(this.isStacked ? this.areas(run, x, y, step) : this.paths(run, x, y)));
    this.drawing.replaceChildren(...parts, this.marker);
    this.mark();
  }

  values(point) {
    return this.series.map(([name]) => point[name]);
  }

  * grid(most, x, y, width) {
    for (const part of [0, 0.5, 1]) {
      yield svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(part * most), y2: y(part * most) });
      yield svg("text", { x: PAD.left - 6, y: y(part * most) + 4, class: "tick end" }, this.tick(part * most));
    }
    const { from, until } = this.data, wanted = (until - from) / (width < NARROW ? TICKS_NARROW : TICKS_X);
    const step = STEPS_MS.find(each => each >= wanted) ?? STEPS_MS.at(-1);
    for (let at = Math.ceil(from / step) * step; at <= until; at += step) {
      yield svg("text", { x: Math.max(PAD.left + 12, Math.min(width - 24, x(at))), y: this.tall - 4, class: "tick middle" }, time(at, step < 60000));
    }
  }

  * paths(run, x, y) {
    for (const [name, , kind] of this.series) {
      const known = run.filter(point => point[name] !== null && point[name] !== undefined);
      if (known.length === 1) yield svg("circle", { class: `dot ${kind}`, cx: x(known[0].at_ms), cy: y(known[0][name]), r: 2 });
      else if (known.length) yield svg("path", { class: `line ${kind}`, d: known.map((point, at) => `${at ? "L" : "M"}${x(point.at_ms).toFixed(1)} ${y(point[name]).toFixed(1)}`).join("") });
    }
  }

  * areas(run, x, y, step) {
    const below = run.map(() => 0), end = run.at(-1).at_ms + step;
    for (const [name, , kind] of this.series) {
      const low = [...below];
      run.forEach((point, at) => { below[at] += point[name] ?? 0; });
      const corner = (at, level) => `${x(run[at].at_ms).toFixed(1)} ${y(level).toFixed(1)}L${x(run[at + 1]?.at_ms ?? end).toFixed(1)} ${y(level).toFixed(1)}`;
      const upper = run.map((_, at) => corner(at, below[at])).join("L");
      const lower = run.map((_, at) => `${x(run[at + 1]?.at_ms ?? end).toFixed(1)} ${y(low[at]).toFixed(1)}L${x(run[at].at_ms).toFixed(1)} ${y(low[at]).toFixed(1)}`).reverse().join("L");
      yield svg("path", { class: `area ${kind}`, d: `M${upper}L${lower}Z` });
    }
  }

  // Shows the values at the cursor, or the latest ones.
  mark() {
    if (!this.data || !this.marker) return;
    const at = this.cursor?.at_ms ?? null, point = nearest(this.data.points, at, this.data.step);
    this.marker.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const side of ["x1", "x2"]) this.marker.setAttribute(side, this.scale.x(at));
    const shown = this.series.map(([name]) => point?.[name] === null || point?.[name] === undefined ? "–" : `${this.format(point[name])}${this.unit}`);
    this.items.forEach((item, index) => setText(item.querySelector("b"), shown[index]));
    this.drawing.setAttribute("aria-label", `${this.caption}: ${this.series.map(([, title], index) => `${title} ${shown[index]}`).join(", ")}`);
  }
}

// Returns the point at an instant, or the latest; null in a gap.
export function nearest(points, at, step) {
  if (at === null) return points.at(-1) ?? null;
  const found = points.findLast(point => point.at_ms <= at);
  return found && at - found.at_ms <= GAP_STEPS * step ? found : null;
}
