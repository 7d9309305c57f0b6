// Controls for operators, and the recent changes with the API keys that made them.

import { call, journal, journals } from "./api.js";
import { Table, el, field, instant, number, once, setText } from "./dom.js";

const EVENTS_SEARCHED = 100000, SHOWN = 50;
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
    { title: "when", class: "name", text: each => instant(each.at_ms) },
    { title: "change", class: "why", text: changeText },
    { title: "by", text: each => each.by ?? "unknown" },
  ]);
  const name = el("input", { id: "throttle", required: true, autocomplete: "off" });
  const rate = el("input", { id: "rate", type: "number", min: "0", step: "any", placeholder: "empty: no limit" });
  const burst = el("input", { id: "burst", type: "number", min: "1", step: "any", placeholder: "empty: rate × 1 s" });
  const form = el("form", { class: "choices", onsubmit: event => { event.preventDefault(); save(); } },
    field("Throttle", name), field("Rate per second", rate), field("Burst", burst), el("button", {}, "Set throttle"));
  const hooks = new Table("Hooks by queue", [
    { title: "queue", class: "name", fill: (cell, queue) =>
      setText(once(cell, () => el("a", { href: `#/hooks/${encodeURIComponent(queue.name)}` })), queue.name) },
    { title: "waiting", class: "number", text: queue => number(queue.waiting) },
  ]);
  let updates = 0;

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
      changes.update((await latestChanges()).slice(0, SHOWN), each => `${each.at_ms} ${each.kind} ${each.queue} ${each.name} ${each.key}`);
    }, { isSilent: true });
  }

  app.live.watch(app.watched);
  load();
  const update = snapshot => {
    updates += 1;
    if (updates % 5 === 0) load();
    hooks.update(snapshot.queues.filter(queue => !queue.name.endsWith(".dlq")).sort((one, other) => one.name.localeCompare(other.name)), queue => queue.name);
  };
  return { title: "Controls", update, nodes: [
    el("section", { class: "panel" }, el("h2", {}, "Throttles"), throttles.node, form),
    el("p", { class: "faint" }, "Pause queues and keys, and change weights, on the page of the queue."),
    el("section", { class: "panel short" }, el("h2", {}, "Hooks"), hooks.node),
    el("section", { class: "panel" }, el("h2", {}, "Recent changes"), changes.node)] };
}

function changeText(event) {
  if (event.kind === "config_set") return event.value === undefined ? `${event.name} removed` : `${event.name} = ${event.value}`;
  if (event.kind === "queue_paused") {
    const subject = event.fairness_key ? `key ${event.fairness_key.join("/")} of ${event.queue}` : `queue ${event.queue}`;
    return `${subject} ${event.is_paused ? "paused" : "resumed"}`;
  }
  return event.kind === "queue_removed" ? `queue ${event.queue} deleted` : `queue ${event.queue} created or updated`;
}
