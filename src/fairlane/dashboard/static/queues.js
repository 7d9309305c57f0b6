// All queues, those with problems first, and the keys of the most affected one.

import { sparkline } from "./charts.js";
import { Pager, Table, command, el, field, number, once, rate, setText, span } from "./dom.js";
import { Keys } from "./keys.js";

const BACKLOG_MIN = 10, SNAPSHOTS_MIN = 3, FACTOR_MIN = 1.1, ROWS = 25, SEARCH_MS = 300;
// Why the hooks of a queue are bypassed, in words.
export const BYPASSES = { time: "hooks over their share of the event loop", faults: "hooks failing" };
const isDlq = name => name.endsWith(".dlq");

// Returns the problems of a queue in words, and how severe they are together.
export function problems(queue, now) {
  const found = [], age = ageOf(queue, now) ?? 0;
  const isIdle = queue.waiting && !queue.consumers && !queue.waiters && !queue.rates.leased;
  const isBehind = queue.waiting > BACKLOG_MIN && queue.rates.enqueued > 1.1 * queue.rates.leased;
  if (queue.is_paused) found.push("paused");
  else if (isIdle) found.push("no consumers");
  else if (isBehind) found.push("backlog growing");
  if (queue.paused_keys) found.push(`${queue.paused_keys} keys paused`);
  if (queue.rates.failed > 0) found.push("attempts failing");
  if (queue.rates.refused > 0) found.push("refusing messages");
  if (queue.bypass) found.push(BYPASSES[queue.bypass]);
  if (queue.dead) found.push("dead letters");
  const factor = queue.is_paused || isIdle || isBehind ? 1.5 : 1;
  return { words: found, severity: factor * Math.log1p(queue.waiting) * Math.log1p(age / 1000) + found.length + Math.log1p(queue.dead) };
}

const ageOf = (queue, now) => queue.waiting && queue.oldest_ms ? Math.max(0, now - queue.oldest_ms) : null;

const ORDERS = {
  status: queue => queue.problems.severity, waiting: queue => queue.waiting, "in flight": queue => queue.leased, oldest: queue => queue.age ?? -1,
  "enqueued /s": queue => queue.rates.enqueued, "refused /s": queue => queue.rates.refused, "delivered /s": queue => queue.rates.leased,
  "failed /s": queue => queue.rates.failed, "dead letters": queue => queue.dead,
};
const FILTERS = { all: () => true, "with problems": queue => queue.problems.words.length > 0, paused: queue => queue.is_paused, "with dead letters": queue => queue.dead > 0 };

// The list of queues: search, filters, order and pages.
class QueueList {
  constructor(app) {
    Object.assign(this, { app, queues: [], order: "status", isUp: false, filter: "all", typing: null });
    this.search = el("input", { id: "queue-search", type: "search", autocomplete: "off", placeholder: "part of a name", oninput: () => this.find() });
    this.only = el("select", { id: "queue-filter", onchange: event => { this.filter = event.target.value; this.pager.first = 0; this.draw(); } },
      ...Object.keys(FILTERS).map(name => el("option", { value: name }, name)));
    this.pager = new Pager(ROWS, () => this.draw());
    this.table = new Table("Queues", this.columns(), { empty: "No queue matches." });
    this.left = el("p", { class: "faint", hidden: true });
    this.node = el("section", { class: "panel" }, el("div", { class: "choices" }, field("Search", this.search), field("Show", this.only),
      el("a", { class: "button", href: "#/create", id: "create" }, "Create queue"), this.pager.node), this.table.node, this.left);
  }

  columns() {
    const sorted = column => ({ ...column, head: el("button", { class: "sort", type: "button", onclick: () => this.sort(column.title) }, column.title) });
    const number_ = (title, value, more = "") => sorted({ title, class: `number ${more}`, text: value });
    return [
      sorted({ title: "queue", class: "name", fill: (cell, queue) => {
        const link = once(cell, () => el("a", { href: `#/queue/${encodeURIComponent(queue.name)}` }));
        setText(link, queue.name);
      } }),
      sorted({ title: "status", class: "why", fill: (cell, queue) => {
        setText(cell, queue.problems.words.join(", ") || "healthy");
        cell.classList.toggle("held", queue.problems.words.length > 0);
      } }),
      number_("waiting", queue => number(queue.waiting)),
      number_("in flight", queue => number(queue.leased), "minor"),
      number_("oldest", queue => span(queue.age)),
      number_("enqueued /s", queue => rate(queue.rates.enqueued), "minor"),
      number_("refused /s", queue => rate(queue.rates.refused), "minor"),
      number_("delivered /s", queue => rate(queue.rates.leased), "minor"),
      number_("failed /s", queue => rate(queue.rates.failed), "minor"),
      sorted({ title: "dead letters", class: "number", fill: (cell, queue) => {
        const link = once(cell, () => el("a", { href: `#/dead/${encodeURIComponent(queue.name)}` }));
        setText(link, number(queue.dead));
      } }),
      { title: "waiting, last minute", class: "minor", fill: (cell, queue) =>
        sparkline(cell, this.app.history(queue.name).slice(-60).map(each => each.waiting), `waiting now ${queue.waiting}`) },
    ];
  }

  sort(title) {
    this.isUp = this.order === title ? !this.isUp : title === "queue";
    this.order = title;
    this.pager.first = 0;
    this.draw();
  }

  // With more queues than the feed sends, the server searches.
  find() {
    this.pager.first = 0;
    this.draw();
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.app.live.find(this.search.value.trim()), SEARCH_MS);
  }

  update(queues, leftOff) {
    this.queues = queues;
    this.left.hidden = !leftOff;
    setText(this.left, `${number(leftOff)} more queues with fewer messages are not listed; search finds them.`);
    this.draw();
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase(), by = ORDERS[this.order], way = this.isUp ? 1 : -1;
    const found = this.queues.filter(queue => queue.name.toLowerCase().includes(wanted)).filter(FILTERS[this.filter]);
    const compare = by ? (one, other) => way * (by(one) - by(other)) || one.name.localeCompare(other.name) : (one, other) => way * one.name.localeCompare(other.name);
    this.table.update(this.pager.page(found.sort(compare), "queues"), queue => queue.name);
    this.table.table.querySelectorAll("thead th").forEach((cell, at) => {
      const isIt = this.table.columns[at].title === this.order;
      if (isIt) cell.setAttribute("aria-sort", this.isUp ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }
}

// What a server without queues shows: the commands that make the first one.
function firstSteps() {
  const server = location.origin;
  return el("section", { class: "panel welcome", hidden: true }, el("h2", {}, "No queues yet"),
    el("p", {}, "Create a queue and enqueue a message:"),
    command(`fairlane --server ${server} queue create orders\nfairlane --server ${server} enqueue orders 'hello' --key acme`),
    el("p", {}, "Or without the command line:"),
    command(`curl ${server}/v1/queues/create -d '{"queue": "orders"}'`),
    el("p", {}, el("a", { class: "button", href: "#/create" }, "Create queue"), " ", el("a", { href: "/docs" }, "API documentation")));
}

export function queuesPage(app) {
  const list = new QueueList(app), welcome = firstSteps(), keys = new Keys({ rows: 8 });
  const worst = el("a", {});
  const closer = el("section", { class: "panel", hidden: true }, el("h2", {}, "Fairness keys of ", worst), keys.node);
  let watched = null, latest = null, overtaken = 0;

  // Watches the most affected queue: switches only after several snapshots, and not while the user works in the panel.
  function follow(queues) {
    const first = queues[0], current = queues.find(queue => queue.name === watched);
    const isWorse = current && first.problems.severity > FACTOR_MIN * current.problems.severity && !closer.contains(document.activeElement);
    overtaken = isWorse ? overtaken + 1 : 0;
    if (current && overtaken < SNAPSHOTS_MIN) return;
    overtaken = 0;
    watched = first.name;
    app.live.watch(watched);
  }

  function update(snapshot) {
    const queues = snapshot.queues.filter(queue => !isDlq(queue.name));
    for (const queue of queues) Object.assign(queue, { problems: problems(queue, app.now), age: ageOf(queue, app.now) });
    queues.sort((one, other) => other.problems.severity - one.problems.severity || one.name.localeCompare(other.name));
    const isEmpty = !queues.length && !list.search.value;
    welcome.hidden = !isEmpty;
    list.node.hidden = isEmpty;
    list.update(queues, snapshot.queues_left_off ?? 0);
    if (queues.length && !list.search.value) follow(queues);
    const queue = queues.find(each => each.name === watched);
    latest = snapshot.queue ?? latest;
    closer.hidden = !queue || latest?.name !== watched;
    if (closer.hidden) return;
    setText(worst, watched);
    worst.href = `#/queue/${encodeURIComponent(watched)}`;
    keys.update(queue, latest);
  }

  app.live.find("");
  app.live.watch(app.watched);
  watched = app.watched;
  return { title: "Queues", nodes: [welcome, list.node, closer], update };
}
