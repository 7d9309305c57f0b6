// Controls for operators, and the recent changes with the API keys that made them.

import { call, journal, journals } from "./api.js";
import { Pager, Table, ago, el, field, number } from "./dom.js";

const EVENTS_SEARCHED = 100000, SHOWN = 25;
const KINDS = "queue_set,queue_removed,queue_paused,config_set";

// Returns recent changes, the latest first. In a cluster every journal has each change of config within a second, so
// equal changes within two seconds count once.
async function latestChanges() {
  const found = new Map();
  for (const queue of await journals()) {
    const { end, beginning } = await journal({ queue, after: 0, count: 1 });
    const { events } = await journal({ queue, after: Math.max(beginning, end - EVENTS_SEARCHED), count: EVENTS_SEARCHED, kinds: KINDS });
    for (const event of events) found.set(event.kind === "config_set" ? `${Math.round(event.at_ms / 2000)} ${event.name} ${event.value}` : `${queue} ${event.sequence}`, event);
  }
  return [...found.values()].sort((one, other) => other.at_ms - one.at_ms);
}

export function controlsPage(app) {
  const throttles = new Table("Throttles", [
    { title: "throttle", class: "name", text: each => each.buckets == null ? each.name : `${each.name} (${number(each.buckets)} in use)` },
    { title: "rate /s", class: "number", text: each => each.charges_cost ? `${each.rate} by cost` : String(each.rate) },
    { title: "burst", class: "number", text: each => String(each.burst) },
    { title: "tokens now", class: "number", text: each => number(each.tokens) },
    { title: "controls", fill: (cell, each) => {
      if (!cell.firstChild) cell.append(el("button", { class: "quiet", "aria-label": `Edit throttle ${each.name}`, onclick: event => edit(event.target.closest("tr").item) }, "Edit"));
    } },
  ]);
  const changes = new Table("Recent changes", [
    { title: "when", class: "name", fill: (cell, each) => ago(cell, each.at_ms, app.now) },
    { title: "change", class: "why", text: changeText },
    { title: "by", text: each => each.by ?? "unknown" },
  ]);
  const name = el("input", { id: "throttle", required: true, autocomplete: "off" });
  const rate = el("input", { id: "rate", type: "number", min: "0", step: "any", placeholder: "empty: no limit" });
  const burst = el("input", { id: "burst", type: "number", min: "1", step: "any", placeholder: "empty: rate × 1 s" });
  const form = el("form", { class: "choices", onsubmit: event => { event.preventDefault(); save(); } },
    field("Throttle", name), field("Rate per second", rate), field("Burst", burst), el("button", {}, "Set throttle"));
  let updates = 0, latest = [];
  const pager = new Pager(SHOWN, () => list());

  function edit(throttle) {
    [name.value, rate.value, burst.value] = [throttle.name, throttle.rate, throttle.burst];
    rate.focus();
  }

  async function save() {
    const values = { [`throttle:${name.value}:burst`]: burst.value || null, [`throttle:${name.value}:rate`]: rate.value || null };
    const details = rate.value ? `${rate.value} per second, burst ${burst.value || "one second of the rate"}. The change applies at once to waiting messages in every queue that uses the throttle.`
      : "Without a rate the throttle limits nothing.";
    if (await app.confirm(`Set throttle ${name.value}?`, details)) await app.act(async () => { await call("config/set", { values }); await load(); });
  }

  async function load() {
    await app.act(async () => {
      throttles.update((await call("config/throttles")).throttles, each => each.name);
      latest = await latestChanges();
      list();
    }, { isSilent: true });
  }

  function list() {
    changes.update(pager.page(latest, "changes"), each => `${each.at_ms} ${each.kind} ${each.queue} ${each.name} ${each.key}`);
  }

  app.live.watch(app.watched);
  load();
  const update = () => {
    updates += 1;
    if (updates % 5 === 0) load();
  };
  return { title: "Controls", update, nodes: [
    el("section", { class: "panel" }, el("h2", {}, "Throttles"), throttles.node, form),
    el("p", { class: "faint" }, "Pause queues and keys, change weights, and edit policies and hooks on the page of the queue."),
    el("section", { class: "panel" }, el("h2", {}, "Recent changes"), pager.node, changes.node)] };
}

function changeText(event) {
  if (event.kind === "config_set") return event.value === undefined ? `${event.name} removed` : `${event.name} = ${event.value}`;
  if (event.kind === "queue_paused") {
    const subject = event.fairness_key ? `key ${event.fairness_key.join("/")} of ${event.queue}` : `queue ${event.queue}`;
    return `${subject} ${event.is_paused ? "paused" : "resumed"}`;
  }
  return event.kind === "queue_removed" ? `queue ${event.queue} deleted` : `queue ${event.queue} created or updated`;
}
