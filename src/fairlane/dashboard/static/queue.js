// One queue: keys with shares and waits, charts, consumers, throttles, and controls.

import { call, queueOf } from "./api.js";
import { Table, ago, el, keyPath, keyText, number, once, setText, span } from "./dom.js";
import { History } from "./history.js";
import { Keys } from "./keys.js";
import { BYPASSES } from "./queues.js";

const SEARCH_MS = 400, LOAD_EVERY = 5;

export function queuePage(app, name) {
  const facts = el("dl", { class: "facts" });
  const bypassed = el("a", { class: "badge", id: "bypassed", hidden: true, href: `#/hooks/${encodeURIComponent(name)}` });
  const charts = new History(app, name);
  const pause = el("button", { id: "pause", onclick: () => togglePause() }, "Pause queue");
  const throttles = new Table("Throttles used by its messages", [
    { title: "throttle", class: "name", text: each => each.name },
    { title: "rate /s", class: "number", text: each => each.charges_cost ? `${each.rate} by cost` : String(each.rate) },
    { title: "burst", class: "number", text: each => String(each.burst) },
    { title: "tokens now", class: "number", text: each => number(each.tokens) },
  ]);
  const throttled = el("section", { class: "panel", hidden: true }, el("h2", {}, "Throttles"), throttles.node);
  const streams = new Table("Streaming consumers", [
    { title: "consumer", class: "name", text: each => each.owner ?? "unnamed" },
    { title: "credit", class: "number", hint: "Messages it may have in flight.", text: each => number(each.credit) },
    { title: "in flight", class: "number", text: each => number(each.leased) },
    { title: "oldest lease", class: "number", text: each => each.lease_ms === undefined ? "–" : age(app.now - each.lease_ms) },
  ]);
  const streaming = el("section", { class: "panel", hidden: true }, el("h2", {}, "Streaming consumers"), streams.node);
  const consumers = new Table("Registered consumers", [
    { title: "consumer", class: "name", text: each => each.name },
    { title: "claimed", class: "number", text: each => number(each.claimed) },
    { title: "open messages", class: "number", text: each => number(each.open_messages) },
    { title: "last seen", class: "number", fill: (cell, each) => ago(cell, each.heard_ms, app.now) },
  ]);
  const registered = el("section", { class: "panel", hidden: true }, el("h2", {}, "Registered consumers"), consumers.node);
  let typing = null, queue = null, updates = 0;
  const keys = new Keys({ rows: 20, actions: fillActions, onsearch: text => {
    clearTimeout(typing);
    typing = setTimeout(() => app.live.watch(name, text), SEARCH_MS);
  } });

  function fillActions(cell, key, row) {
    const box = once(cell, () => el("div", { class: "actions" },
      el("button", { class: "quiet", onclick: () => pauseKey(row.item) }), el("button", { class: "quiet", onclick: () => weigh(row.item) }, "Weight")));
    const word = key.is_paused ? "Resume" : "Pause";
    setText(box.children[0], word);
    box.children[0].setAttribute("aria-label", `${word} ${keyText(key.key)}`);
    box.children[1].setAttribute("aria-label", `Change the weight of ${keyText(key.key)}`);
  }

  async function togglePause() {
    const verb = queue.is_paused ? "resume" : "pause";
    const details = queue.is_paused ? "The queue delivers messages again." : "The queue delivers nothing until you resume it. Messages in flight can still be acknowledged.";
    if (await app.confirm(`${queue.is_paused ? "Resume" : "Pause"} queue ${name}?`, details)) await app.act(() => call(`queues/${verb}`, { queue: name }));
  }

  async function pauseKey(key) {
    const verb = key.is_paused ? "resume" : "pause";
    const details = key.is_paused ? "Its messages are delivered again." : "Its messages wait until you resume it. Other keys are not affected.";
    const question = `${key.is_paused ? "Resume" : "Pause"} ${keyText(key.key)} in ${name}?`;
    if (await app.confirm(question, details)) await app.act(() => call(`queues/${verb}`, { queue: name, key: key.key }));
  }

  async function weigh(key) {
    const input = el("input", { type: "number", min: 1, max: 1000, required: true, value: key.weight, "aria-label": "Weight" });
    const details = "1 to 1000. The weight applies at once to waiting messages and overrides the queue's policy.";
    if (await app.confirm(`Weight of ${keyText(key.key)} in ${name}`, details, input)) {
      await app.act(() => call("config/set", { values: { [`weight:${queueOf(name)}:${keyPath(key.key)}`]: input.value } }));
    }
  }

  async function purge() {
    const details = `This deletes ${number(queue.waiting)} waiting messages for good. Messages in flight stay. To confirm, type the name of the queue.`;
    if (await app.confirm(`Delete all waiting messages of ${name}?`, details, typed(), { word: "Delete messages", isDangerous: true })) await app.act(() => call("queues/purge", { queue: name }));
  }

  async function remove() {
    const details = `This deletes the queue with ${number(queue.waiting + queue.leased)} messages and ${number(queue.dead)} dead letters for good. To confirm, type the name of the queue.`;
    if (!await app.confirm(`Delete queue ${name}?`, details, typed(), { word: "Delete queue", isDangerous: true })) return;
    if (await app.act(() => call("queues/delete", { queue: name }))) { app.watched = null; location.hash = "#/"; }
  }

  // An input that accepts only the name of the queue.
  function typed() {
    const input = el("input", { id: "typed", required: true, autocomplete: "off", "aria-label": "Name of the queue" });
    input.addEventListener("input", () => input.setCustomValidity(input.value === name ? "" : `Type ${name} to confirm.`));
    input.setCustomValidity(`Type ${name} to confirm.`);
    return input;
  }

  async function loadConsumers() {
    await app.act(async () => {
      const found = (await call("queue/consumer/list", { queue: name })).consumers;
      registered.hidden = !found.length;
      consumers.update(found, each => each.name);
    }, { isSilent: true });
  }

  function update(snapshot) {
    queue = snapshot.queues.find(each => each.name === name) ?? queue;
    if (!queue) return;
    setText(pause, queue.is_paused ? "Resume queue" : "Pause queue");
    showFacts(facts, queue, app.now);
    bypassed.hidden = !queue.bypass;
    setText(bypassed, queue.bypass ? `${BYPASSES[queue.bypass]}; bypassed for now` : "");
    charts.update();
    if (updates % LOAD_EVERY === 0) loadConsumers();
    updates += 1;
    if (snapshot.queue?.name !== name) return;
    keys.update(queue, snapshot.queue);
    throttled.hidden = !snapshot.queue.throttles.length;
    throttles.update(snapshot.queue.throttles, each => each.name);
    if (!snapshot.streams) return;
    streaming.hidden = !snapshot.streams.length;
    const byName = snapshot.streams.sort((one, other) => (one.owner ?? "").localeCompare(other.owner ?? ""));
    streams.update(byName.map((each, at) => ({ ...each, at })), each => each.at);
  }

  app.live.watch(name);
  const to = (page, title) => el("a", { href: `#/${page}/${encodeURIComponent(name)}` }, title);
  const links = el("p", { class: "actions" }, to("messages", "Messages"), to("dead", "Dead letters"), to("schedules", "Schedules"), to("hooks", "Hooks"), to("policy", "Policy"),
    el("span", { class: "grow" }), pause, el("button", { id: "purge", class: "danger", onclick: purge }, "Delete messages"), el("button", { id: "delete", class: "danger", onclick: remove }, "Delete queue"));
  const closer = el("section", { class: "panel" }, el("h2", {}, "Fairness keys"), keys.node);
  return { title: `Queue ${name}`, nodes: [links, bypassed, facts, closer, charts.node, streaming, throttled, registered], update };
}

// The age of a lease is exact to about a second.
const age = ms => ms < 1000 ? "under 1 s" : span(ms);

function showFacts(list, queue, now) {
  const rows = [
    ["waiting", number(queue.waiting)],
    ["in flight", number(queue.leased)],
    ["oldest", queue.oldest_ms ? span(Math.max(0, now - queue.oldest_ms)) : "–"],
    ["dead letters", number(queue.dead)],
    ["consumers", `${number(queue.consumers)} streaming, ${number(queue.waiters)} polling`],
    ["state", queue.is_paused ? "paused" : queue.paused_keys ? `${queue.paused_keys} keys paused` : "running"],
  ];
  rows.forEach(([title, value], at) => {
    const box = list.children[at] ?? list.appendChild(el("div", {}, el("dt", {}, title), el("dd")));
    setText(box.children[1], value);
  });
}
