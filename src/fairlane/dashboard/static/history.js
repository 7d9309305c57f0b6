// What a queue did in the last minutes, hour or day: rates, backlog, waits, and who was served.

import { history } from "./api.js";
import { el, field, keyText, number, percent, rate, setText, span } from "./dom.js";
import { Cursor, LineChart, nearest } from "./lines.js";

const RANGES = { live: ["Last 5 minutes", 300000, 1000], hour: ["Last hour", 3600000, 10000], day: ["Last day", 86400000, 300000] };
const LOAD_EVERY = 10, KEYS = 5, LEAST_MS = 300000;
const RATES = [["enqueued", "enqueued", "s0 dashed"], ["leased", "delivered", "s1"], ["acked", "acknowledged", "s3"], ["failed", "failed", "s4"], ["refused", "refused", "s5"]];
const PER_SECOND = RATES.map(([name]) => name);

// The heights of a chart of waits, and how its axis is labelled.
const SPANS = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 60000, 120000, 300000, 600000, 1200000, 3600000, 7200000, 21600000, 86400000];
const shortSpan = ms => ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${ms / 1000} s` : ms < 3600000 ? `${ms / 60000} min` : `${ms / 3600000} h`;

function point(slot) {
  const rates = Object.fromEntries(PER_SECOND.map(name => [name, slot.covered_ms ? slot[name] * 1000 / slot.covered_ms : 0]));
  return { ...slot, ...rates };
}

// The keys that were served most over all slots, and the part of the service that each had in each slot.
function shares(slots) {
  const sums = new Map();
  for (const { keys } of slots) for (const { key, served } of keys) sums.set(keyText(key), (sums.get(keyText(key)) ?? 0) + served);
  const names = [...sums].sort((one, other) => other[1] - one[1]).slice(0, KEYS).map(([name]) => name);
  const points = slots.filter(slot => slot.served).map(slot => {
    const own = Object.fromEntries(slot.keys.map(({ key, served }) => [keyText(key), served / slot.served]));
    const parts = names.map(name => own[name] ?? 0), others = Math.max(0, 1 - parts.reduce((sum, each) => sum + each, 0));
    return { at_ms: slot.at_ms, others, ...Object.fromEntries(parts.map((part, at) => [`k${at}`, part])) };
  });
  const series = names.map((name, at) => [`k${at}`, name, `s${at + 1}`]);
  return { points, series: points.some(each => each.others > 0.005) ? [...series, ["others", "all others", "s0"]] : series };
}

export class History {
  constructor(app, queue) {
    Object.assign(this, { app, queue, range: "hour", slots: [], at_ms: null, since_ms: null, updates: 0 });
    this.cursor = new Cursor();
    const options = { cursor: this.cursor };
    this.rates = new LineChart("Messages per second", RATES, { ...options, format: rate, unit: "/s" });
    this.backlog = new LineChart("Messages waiting and in flight", [["waiting", "waiting", "s2"], ["in_flight", "in flight", "s1"]], options);
    this.waits = new LineChart("Wait until delivery", [["wait_p50_ms", "p50", "s1"], ["wait_p99_ms", "p99", "s2"]], { ...options, format: span, tick: shortSpan, tops: SPANS });
    this.shares = new LineChart("Share of service of the busiest keys", [], { ...options, format: percent, isStacked: true, most: 1 });
    this.moment = el("p", { id: "moment", role: "status" });
    this.ranges = el("div", { class: "segments", role: "group", "aria-label": "Range" }, ...Object.entries(RANGES).map(([name, [title]]) =>
      el("button", { type: "button", "data-range": name, "aria-pressed": String(name === this.range), onclick: () => this.choose(name) }, title)));
    this.goto = el("input", { id: "at", type: "time", oninput: () => this.go() });
    this.node = el("section", { class: "panel", id: "history-charts" }, el("div", { class: "head" }, el("h2", {}, "History"), this.ranges),
      el("div", { class: "choices" }, field("What happened at (UTC)", this.goto), this.moment),
      el("div", { class: "charts" }, this.rates.node, this.backlog.node, ...(queue ? [this.waits.node, this.shares.node] : [this.waits.node])));
    this.cursor.addEventListener("move", () => this.tell());
  }

  choose(name) {
    this.range = name;
    for (const button of this.ranges.children) button.setAttribute("aria-pressed", String(button.dataset.range === name));
    this.slots = [];
    this.load();
    this.draw();
  }

  // Points at the latest instant with a time of day.
  go() {
    if (!this.goto.value) { this.cursor.set(null); return; }
    const [hours, minutes] = this.goto.value.split(":").map(Number), day = 86400000;
    let at = Math.floor(this.app.now / day) * day + (hours * 60 + minutes) * 60000;
    if (at > this.app.now) at -= day;
    if (this.app.now - at > RANGES[this.range][1]) this.choose("day");
    this.cursor.set(at);
  }

  async load() {
    if (this.range === "live") return;
    const range = this.range;
    await this.app.act(async () => {
      const found = await history(this.queue, range);
      if (range !== this.range) return;
      this.slots = found.slots.map(point);
      this.since_ms = found.since_ms;
      this.draw();
    }, { isSilent: true });
  }

  update() {
    if (this.updates % LOAD_EVERY === 0) this.load();
    this.updates += 1;
    if (this.range === "live") this.draw();
    else this.tell();
  }

  draw() {
    const [, length, step] = RANGES[this.range], isLive = this.range === "live";
    const points = isLive ? this.app.history(this.queue) : this.slots, until = this.app.now;
    const first = points[0]?.at_ms ?? until, domain = { from: Math.max(until - length, Math.min(first, until - LEAST_MS)), until, step };
    this.rates.update(points, domain);
    this.backlog.update(points, domain);
    this.waits.node.hidden = this.shares.node.hidden = isLive;
    if (!isLive) {
      this.waits.update(points, domain);
      const { points: parts, series } = shares(this.slots);
      if (series.map(each => each.join()).join() !== this.shares.series.map(each => each.join()).join()) this.shares.setSeries(series);
      this.shares.update(parts, domain);
    }
    this.tell();
  }

  // Says why nothing was recorded at an instant.
  reason(at) {
    if (this.range === "live") return "This page was not open.";
    if (this.since_ms === null) return "The server keeps a history of a limited number of queues (metrics_queues_max), and others were busier.";
    if (at < this.since_ms) return `The history begins ${span(this.app.now - this.since_ms)} ago.`;
    return "The server was down.";
  }

  // Says in words what was recorded at the cursor.
  tell() {
    const at = this.cursor.at_ms, step = RANGES[this.range][2];
    if (at === null) {
      setText(this.moment, this.since_ms && this.app.now - this.since_ms < RANGES.day[1] ? `Recorded for ${span(this.app.now - this.since_ms)}. Point at a chart or enter a time.` : "Point at a chart or enter a time.");
      return;
    }
    const points = this.range === "live" ? this.app.history(this.queue) : this.slots, found = nearest(points, at, step);
    const clock = new Date(at).toISOString().slice(11, step < 60000 ? 19 : 16);
    if (!found) { setText(this.moment, `${clock} UTC: nothing was recorded. ${this.reason(at)}`); return; }
    const parts = [`${rate(found.enqueued)} enqueued and ${rate(found.leased)} delivered per second`, `${number(found.waiting)} waiting`];
    if (found.wait_p99_ms !== null && found.wait_p99_ms !== undefined) parts.push(`p99 wait ${span(found.wait_p99_ms)}`);
    if (found.refused >= 0.05) parts.push(`${rate(found.refused)} refused per second`);
    if (found.failed >= 0.05) parts.push(`${rate(found.failed)} failed per second`);
    if (found.keys?.length) parts.push(`served most: ${found.keys.slice(0, 3).map(each => `${keyText(each.key)} ${percent(each.served / found.served)}`).join(", ")}`);
    setText(this.moment, `${clock} UTC: ${parts.join("; ")}.`);
  }
}
