// The fairness keys of one queue: which are noisy, which wait and why, as sentences and as a table.

import { shareBar } from "./charts.js";
import { Table, el, keyText, number, percent, setText, span } from "./dom.js";

export const WINDOWS = ["10 s", "1 min", "5 min"];
const SENTENCES = 3, LONG_MS = 1000, MANY = 20;

// The rate of a key is shown under its config key, rate:QUEUE:KEY.
const throttleText = name => name.startsWith("rate:") ? "its rate" : `throttle ${name}`;

export function why(queue, key, at, throttles = []) {
  if (key.messages <= (key.leased ?? 0)) return "";
  if (queue.is_paused) return "queue paused";
  if (key.is_paused) return "paused";
  if (key.throttle) {
    if (key.throttled_until_ms === undefined || key.throttled_until_ms === null) return `${throttleText(key.throttle)} passes nothing`;
    const rate = throttles.find(each => each.name === key.throttle)?.rate, waiting = key.messages - key.leased;
    return `${throttleText(key.throttle)}: ${rate ? `${rate}/s, ${number(waiting)} waiting, about ${span(waiting / rate * 1000)}` : "waiting for a token"}`;
  }
  if (key.held_by?.kind === "throttle") return `limited by ${throttleText(key.held_by.name)}`;
  if (key.held_by?.kind === "cap") return `at its cap of ${key.cap}`;
  if (!queue.consumers && !queue.waiters && !queue.rates.leased) return "no consumers";
  const [arrived, served] = key.windows[at];
  return arrived > served * 1.2 ? "enqueues more than its share" : "waiting for its turn";
}

// Returns sentences about the problems of a queue. A paused key is reported as paused, never as noisy or starved.
export function verdicts(queue, keys, at) {
  const found = [], window = keys.windows[at];
  if (queue.is_paused) found.push(["bad", "The queue is paused. No messages are delivered."]);
  else if (queue.waiting && !queue.consumers && !queue.waiters && !queue.rates.leased) found.push(["bad", "This queue has no consumers."]);
  for (const noisy of window.noisy.slice(0, SENTENCES)) {
    const part = cost => percent(cost / window.served), refused = noisy.refused ? `, of which limits refused ${percent(noisy.refused / noisy.wanted)}` : "";
    found.push(["loud", [el("b", {}, keyText(noisy.key)), ` is noisy: it sends ${percent(noisy.wanted / window.wanted)} of all work${refused}. `
      + `It receives ${part(noisy.served)} of the service and is entitled to ${part(noisy.entitled)}.`]]);
  }
  for (const victim of window.victims.slice(0, SENTENCES)) {
    const part = cost => percent(cost / window.served);
    found.push(["bad", [el("b", {}, keyText(victim.key)), ` receives ${part(victim.served)} of the service, less than the ${part(victim.entitled)} that it is entitled to, while another key receives more.`]]);
  }
  const named = new Set([...window.noisy, ...window.victims].map(each => keyText(each.key)));
  const held = keys.keys.filter(key => !named.has(keyText(key.key)))
    .filter(key => key.messages > key.leased && (key.held_by || key.wait_p99_ms >= LONG_MS || key.messages - key.leased > MANY))
    .sort((one, other) => weightOf(other) - weightOf(one));
  for (const key of held.slice(0, SENTENCES)) {
    const wait = key.wait_p99_ms === undefined ? "" : `, p99 ${span(key.wait_p99_ms)}`;
    const kind = key.held_by ? "held" : "calm";
    found.push([kind, [el("b", {}, keyText(key.key)), ` has ${number(key.messages - key.leased)} waiting${wait}: ${why(queue, key, at, keys.throttles)}.`]]);
  }
  if (!found.length) found.push(["good", queue.waiting ? "No key waits long." : "No backlog."]);
  return found;
}

const weightOf = key => (key.held_by ? 1e9 : 0) + (key.wait_p99_ms ?? key.messages);

const SORTS = {
  waiting: ["Largest backlog", (key, _at) => key.messages - key.leased],
  share: ["Largest share", (key, at) => key.windows[at][1]],
  wait: ["Longest wait", (key, _at) => key.wait_p99_ms ?? -1],
};

export class Keys {
  at = 1;
  sort = "waiting";
  search = "";
  shown = [];

  constructor({ rows, onsearch = null, actions = null }) {
    this.limit = rows;
    this.words = el("ul", { class: "verdicts", "aria-live": "off" });
    this.facts = el("p", { class: "faint", id: "facts" });
    this.table = new Table("Fairness keys", this.columns(actions));
    this.more = el("button", { class: "quiet", hidden: true, onclick: () => { this.limit = Infinity; this.draw(); } }, "Show more keys");
    this.node = el("section", {}, this.words, this.choices(onsearch), this.table.node, this.more);
  }

  columns(actions) {
    const shared = [
      { title: "key", class: "name", text: key => keyText(key.key) },
      { title: "waiting", class: "number", text: key => number(key.messages - key.leased) },
      { title: "share of service", class: "bar", hint: "The bar is the share the key received; the mark is its entitled share, by the weights of the keys that had work.",
        fill: (cell, key) => shareBar(cell, key.shares[0], key.shares[1], this.most) },
      { title: "wait reason", class: "why", fill: (cell, key) => {
        setText(cell, why(this.queue, key, this.at, this.keys.throttles));
        cell.classList.toggle("held", Boolean(key.messages > key.leased && (key.held_by || this.queue.is_paused)));
      } },
      { title: "wait p50", class: "number minor", text: key => span(key.wait_p50_ms) },
      { title: "wait p99", class: "number", text: key => span(key.wait_p99_ms) },
      { title: "in flight", class: "number minor", text: key => key.cap === undefined ? number(key.leased) : `${number(key.leased)} of ${number(key.cap)}` },
      { title: "weight", class: "number minor", text: key => number(key.weight) },
    ];
    return actions ? [...shared, { title: "controls", fill: (cell, key, row) => actions(cell, key, row) }] : shared;
  }

  choices(onsearch) {
    const window = el("select", { id: "window", onchange: event => { this.at = Number(event.target.value); this.draw(); } },
      ...WINDOWS.map((title, at) => el("option", { value: at, selected: at === this.at }, title)));
    const sort = el("select", { id: "sort", onchange: event => { this.sort = event.target.value; this.draw(); } },
      ...Object.entries(SORTS).map(([name, [title]]) => el("option", { value: name }, title)));
    const search = onsearch && el("input", { type: "search", id: "search", placeholder: "part of a key", oninput: event => {
      this.search = event.target.value; this.draw(); onsearch(this.search);
    } });
    const labelled = (label, input) => el("label", { class: "field" }, el("span", {}, label), input);
    return el("div", { class: "choices" }, labelled("Window", window), labelled("Order", sort), search && labelled("Search", search), this.facts);
  }

  update(queue, keys) {
    this.queue = queue;
    this.keys = keys;
    this.draw();
  }

  draw() {
    if (!this.keys) return;
    const window = this.keys.windows[this.at], total = window.served || 1;
    const wanted = this.search.toLowerCase(), by = SORTS[this.sort][1];
    const found = this.keys.keys.filter(key => keyText(key.key).toLowerCase().includes(wanted));
    const shown = found.sort((one, other) => by(other, this.at) - by(one, this.at)).slice(0, this.limit);
    this.more.hidden = shown.length === found.length;
    for (const key of shown) key.shares = [key.windows[this.at][1] / total, key.windows[this.at][2] / total];
    this.most = Math.max(0.01, ...shown.flatMap(key => key.shares));
    this.table.update(shown, key => JSON.stringify(key.key));
    this.shown = shown;
    this.summarize(window, shown.length);
  }

  summarize(window, shown) {
    const jain = window.jain === null ? "nothing served" : `Jain index ${window.jain.toFixed(3)}`;
    const covered = window.covered_ms < window.span_ms ? ` (observed so far: ${span(window.covered_ms)})` : "";
    setText(this.facts, `${jain} over ${WINDOWS[this.at]}${covered} · ${number(this.keys.active_keys)} active keys, ${number(shown)} shown`);
    const lines = verdicts(this.queue, this.keys, this.at);
    lines.forEach(([kind, words], at) => {
      const item = this.words.children[at] ?? this.words.appendChild(el("li"));
      item.className = kind;
      item.replaceChildren(...[words].flat());
    });
    while (this.words.children.length > lines.length) this.words.lastChild.remove();
  }
}

