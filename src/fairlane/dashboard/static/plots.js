// Charts, drawn by the Plotly script from the server's plotly package. The script is large, so it loads once the page is
// usable. Until then, and without it, the tables and lists beside the charts have the numbers.

import { el, setText } from "./dom.js";

const SCRIPT = "/dashboard/plotly.js", NAME_MAX = 28;
const CONFIG = { displayModeBar: false, responsive: true };
let loading = null;

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const ask = () => document.head.append(el("script", { src: SCRIPT, onload: () => resolve(window.Plotly),
      onerror: () => { loading = null; reject(new Error("Charts are not available: install fairlane[report] on the server.")); } }));
    if (window.requestIdleCallback) window.requestIdleCallback(ask, { timeout: 2000 });
    else setTimeout(ask, 100);
  });
  return loading;
}

// Plotly interprets some HTML in labels, and names come from messages.
export function label(text) {
  const cut = text.length > NAME_MAX ? `${text.slice(0, NAME_MAX)}…` : text;
  return cut.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  #wanted = null;
  #state = "new";

  constructor(caption, { tall = 260 } = {}) {
    this.place = el("div", { class: "plot", role: "img", "aria-label": caption });
    this.place.style.height = `${tall}px`;
    this.lack = el("p", { class: "faint lack", hidden: true });
    this.node = el("figure", { class: "panel" }, el("figcaption", {}, caption), this.place, this.lack);
    this.caption = caption;
  }

  // Draws traces. The summary is for screen readers.
  draw(traces, layout = {}, summary = "") {
    this.place.setAttribute("aria-label", summary ? `${this.caption}: ${summary}` : this.caption);
    this.#wanted = [traces, layout];
    if (this.#state === "ready") this.#redraw(window.Plotly);
    else if (this.#state === "new") this.#begin();
  }

  async #begin() {
    this.#state = "loading";
    try {
      const script = await plotly();
      this.#state = "ready";
      this.#redraw(script);
    } catch (error) {
      this.#state = "without";
      this.place.hidden = true;
      this.lack.hidden = false;
      setText(this.lack, error.message);
    }
  }

  #redraw(script) {
    if (!this.place.isConnected || document.hidden) return;
    const [traces, layout] = this.#wanted, axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
    const { xaxis, yaxis, ...rest } = layout;
    script.react(this.place, traces, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { t: 10, r: 10, b: 30, l: 40 }, legend: { orientation: "h", y: 1.15 }, hovermode: "closest",
      ...rest, xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, rangemode: "tozero", ...yaxis },
    }, CONFIG);
  }
}

// Releases the charts in a part of the page that is about to be replaced.
export function clear(part) {
  for (const place of part.querySelectorAll(".js-plotly-plot")) window.Plotly.purge(place);
}

const LINES = [["enqueued", "enqueued", "--faint", "dash"], ["leased", "delivered", "--accent", "solid"], ["acked", "acknowledged", "--good", "dot"], ["failed", "failed", "--bad", "solid"]];
const at = ms => new Date(ms).toISOString().replace("T", " ").replace("Z", "");

function line(history, name, title, hue, dash = "solid") {
  return { type: "scatter", mode: "lines", name: title, x: history.map(each => at(each.at_ms)), y: history.map(each => each[name]), line: { color: colour(hue), dash, width: 2 } };
}

// Rates of the last minutes: enqueued, delivered, acknowledged and failed.
export class Timeline {
  constructor() {
    this.chart = new Chart("Messages per second (last five minutes, since this page was opened)");
    this.legend = LINES.map(([name, title]) => el("li", { class: name }, title, " ", el("b", {}, "0"), "/s"));
    this.node = this.chart.node;
    this.node.append(el("ul", { class: "legend" }, ...this.legend));
  }

  update(history) {
    const last = history.at(-1);
    LINES.forEach(([name], at) => setText(this.legend[at].querySelector("b"), (last?.[name] ?? 0).toFixed(0)));
    const summary = last ? LINES.map(([name, title]) => `${title} ${last[name].toFixed(0)}`).join(", ") : "";
    this.chart.draw(LINES.map(([name, title, hue, dash]) => line(history, name, title, hue, dash)), { xaxis: { type: "date" }, showlegend: false }, summary);
  }
}

// Waiting and in-flight messages of the last minutes.
export class Backlog {
  constructor() {
    this.chart = new Chart("Messages waiting and in flight", { tall: 200 });
    this.node = this.chart.node;
  }

  update(history) {
    const last = history.at(-1), summary = last ? `${last.waiting} waiting, ${last.in_flight} in flight` : "";
    this.chart.draw([line(history, "waiting", "waiting", "--warn"), line(history, "in_flight", "in flight", "--accent")], { xaxis: { type: "date" } }, summary);
  }
}

// The shares that keys received, beside their entitled shares.
export class Shares {
  constructor() {
    this.chart = new Chart("Share of service of the busiest keys: entitled and received");
    this.node = this.chart.node;
  }

  update(keys) {
    const names = keys.map(key => label(key.name)), bar = (title, at, hue) => ({ type: "bar", name: title, x: names, y: keys.map(key => key.shares[at]), marker: { color: colour(hue) } });
    this.chart.draw([bar("entitled", 1, "--faint"), bar("received", 0, "--accent")],
      { barmode: "group", xaxis: { type: "category" }, yaxis: { tickformat: ".0%" } }, keys.map(key => `${key.name} received ${Math.round(key.shares[0] * 100)} of ${Math.round(key.shares[1] * 100)} per cent`).join(", "));
  }
}
