// Charts of reports, drawn by the Plotly script from the server's plotly package. The script is large, so it loads once the page is
// usable. Until then, and without it, the tables and lists beside the charts have the numbers.

import { el, setText } from "./dom.js";

const SCRIPT = "/dashboard/plotly.js";
const CONFIG = { displayModeBar: false, responsive: true };
let loading = null;

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const ask = () => document.head.append(el("script", { src: SCRIPT, onload: () => resolve(window.Plotly),
      onerror: () => { loading = null; reject(new Error("Charts are not available: install fairlane[server] on the server.")); } }));
    if (window.requestIdleCallback) window.requestIdleCallback(ask, { timeout: 2000 });
    else setTimeout(ask, 100);
  });
  return loading;
}

const PALETTE = ["--s1", "--s2", "--s3", "--s5", "--s4", "--s0"];
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
    script.react(this.place, traces.map(recoloured), {
      colorway: PALETTE.map(colour),
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { t: 10, r: 10, b: 30, l: 40 }, legend: { orientation: "h", y: 1.15 }, hovermode: "closest",
      ...rest, xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, rangemode: "tozero", ...yaxis },
    }, CONFIG);
  }
}

// Reports choose colours of their own; on this page all charts have the same palette.
function recoloured(trace) {
  const { marker, line, ...rest } = trace;
  const plain = part => typeof part?.color === "string" ? Object.fromEntries(Object.entries(part).filter(([name]) => name !== "color")) : part;
  return { ...rest, ...(marker && { marker: plain(marker) }), ...(line && { line: plain(line) }) };
}

// Releases the charts in a part of the page that is about to be replaced.
export function clear(part) {
  for (const place of part.querySelectorAll(".js-plotly-plot")) window.Plotly.purge(place);
}
