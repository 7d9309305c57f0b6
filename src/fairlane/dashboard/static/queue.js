// One queue: shares, waits, reasons, throttles, consumers, a timeline, and its controls.

import { call, queueOf } from "./api.js";
import { Table, el, keyPath, keyText, number, once, setText, span } from "./dom.js";
import { Keys } from "./keys.js";
import { Backlog, Shares, Timeline } from "./plots.js";

const SEARCH_MS = 400, LOOK_EVERY = 5, BARS = 12;

export function queuePage(app, name) {
  const facts = el("dl", { class: "facts" });
  const timeline = new Timeline(), backlog = new Backlog(), shares = new Shares();
  const pause = el("button", { id: "pause", onclick: () => togglePause() }, "Pause queue");
  const throttles = new Table("Throttles that its messages name", [
    { title: "throttle", class: "name", text: each => each.name },
    { title: "rate /s", class: "number", text: each => String(each.rate) },
    { title: "burst", class: "number", text: each => String(each.burst) },
    { title: "tokens now", class: "number", text: each => number(each.tokens) },
  ]);
  const throttled = el("section", { class: "panel", hidden: true }, el("h2", {}, "Throttles"), throttles.node);
  const streams = new Table("Consumers that messages are streamed to", [
    { title: "consumer", class: "name", text: each => each.owner ?? "without a name" },
    { title: "credit", class: "number", hint: "How many messages it may have in flight.", text: each => number(each.credit) },
    { title: "in flight", class: "number", text: each => number(each.leased) },
    { title: "oldest lease", class: "number", text: each => each.lease_ms === undefined ? "–" : age(app.now - each.lease_ms) },
  ]);
  const streaming = el("section", { class: "panel", hidden: true }, el("h2", {}, "Consumers"), streams.node);
  const consumers = new Table("Registered consumers", [
    { title: "consumer", class: "name", text: each => each.name },
    { title: "claim", class: "number", text: each => number(each.claimed) },
    { title: "open messages", class: "number", text: each => number(each.open_messages) },
    { title: "last heard of", class: "number", text: each => `${span(Math.max(0, app.now - each.heard_ms))} ago` },
  ]);
  const registered = el("section", { class: "panel", hidden: true }, el("h2", {}, "Registered consumers"), consumers.node);
  let typing = null, queue = null, looks = 0;
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
    const told = queue.is_paused ? "Its messages are delivered again." : "Nothing of it is delivered until it is resumed. What is in flight may be acked.";
    if (await app.confirm(`${queue.is_paused ? "Resume" : "Pause"} queue ${name}?`, told)) await app.act(() => call(`queues/${verb}`, { queue: name }));
  }

  async function pauseKey(key) {
    const verb = key.is_paused ? "resume" : "pause";
    const told = key.is_paused ? "Its messages are delivered again." : "Its messages wait until it is resumed; nobody else does.";
    const question = `${key.is_paused ? "Resume" : "Pause"} ${keyText(key.key)} in ${name}?`;
    if (await app.confirm(question, told)) await app.act(() => call(`queues/${verb}`, { queue: name, key: key.key }));
  }

  async function weigh(key) {
    const input = el("input", { type: "number", min: 1, max: 1000, required: true, value: key.weight, "aria-label": "Weight" });
    const told = "From 1 to 1000. It acts at once on what waits, and wins over the queue's policy.";
    if (await app.confirm(`Weight of ${keyText(key.key)} in ${name}`, told, input)) {
      await app.act(() => call("config/set", { values: { [`weight:${queueOf(name)}:${keyPath(key.key)}`]: input.value } }));
    }
  }

  async function lookForConsumers() {
    await app.act(async () => {
      const found = (await call("queue/consumer/list", { queue: name })).consumers;
      registered.hidden = !found.length;
      consumers.update(found, each => each.name);
    }, { isSilent: true });
  }

  function update(picture) {
    queue = picture.queues.find(each => each.name === name) ?? queue;
    if (!queue) return;
    setText(pause, queue.is_paused ? "Resume queue" : "Pause queue");
    tellFacts(facts, queue, app.now);
    timeline.update(app.history(name));
    backlog.update(app.history(name));
    if (looks % LOOK_EVERY === 0) lookForConsumers();
    looks += 1;
    if (picture.queue?.name !== name) return;
    keys.update(queue, picture.queue);
    throttled.hidden = !picture.queue.throttles.length;
    throttles.update(picture.queue.throttles, each => each.name);
    const busiest = [...keys.shown].sort((one, other) => other.shares[0] - one.shares[0]).slice(0, BARS);
    shares.update(busiest.map(key => ({ name: keyText(key.key), shares: key.shares })));
    if (!picture.streams) return;
    streaming.hidden = !picture.streams.length;
    const byName = picture.streams.sort((one, other) => (one.owner ?? "").localeCompare(other.owner ?? ""));
    streams.update(byName.map((each, at) => ({ ...each, at })), each => each.at);
  }

  app.live.watch(name);
  const links = el("p", { class: "actions" }, pause,
    el("a", { href: `#/dead/${encodeURIComponent(name)}` }, "Dead letters"), el("a", { href: `#/message/${encodeURIComponent(name)}` }, "Messages"),
    el("a", { href: `#/hooks/${encodeURIComponent(name)}` }, "Hooks"));
  const closer = el("section", { class: "panel" }, el("h2", {}, "Who is noisy, who waits, and why"), keys.node);
  return { title: `Queue ${name}`, nodes: [facts, links, closer, shares.node, timeline.node, backlog.node, streaming, throttled, registered], update };
}

// What is told of a lease is true to within a second or so.
const age = ms => ms < 1000 ? "under 1 s" : span(ms);

function tellFacts(list, queue, now) {
  const told = [
    ["waiting", number(queue.waiting)],
    ["in flight", number(queue.leased)],
    ["oldest", queue.oldest_ms ? span(Math.max(0, now - queue.oldest_ms)) : "–"],
    ["dead letters", number(queue.dead)],
    ["consumers", `${number(queue.consumers)} streams, ${number(queue.waiters)} asking`],
    ["state", queue.is_paused ? "paused" : queue.paused_keys ? `${queue.paused_keys} keys paused` : "running"],
  ];
  told.forEach(([title, value], at) => {
    const box = list.children[at] ?? list.appendChild(el("div", {}, el("dt", {}, title), el("dd")));
    setText(box.children[1], value);
  });
}
