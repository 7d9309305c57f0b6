// Dead letters: grouped by error, inspected and redriven.

import { call } from "./api.js";
import { Table, el, field, instant, keyPath, keyText, number, once, setText } from "./dom.js";

const PAGE = 1000, PAGES_MAX = 5, SHOWN = 100;

export function deadPage(app, name) {
  return name ? lettersPage(app, name) : choosingPage(app);
}

function choosingPage(app) {
  const table = new Table("Queues with dead letters", [
    { title: "queue", class: "name", fill: (cell, queue) =>
      setText(once(cell, () => el("a", { href: `#/dead/${encodeURIComponent(queue.name)}` })), queue.name) },
    { title: "dead letters", class: "number", text: queue => number(queue.dead) },
    { title: "new /s", class: "number", text: queue => queue.rates.dead.toFixed(1) },
  ]);
  app.live.watch(app.watched);
  const update = snapshot => table.update(snapshot.queues.filter(queue => queue.dead)
    .sort((one, other) => other.dead - one.dead), queue => queue.name);
  return { title: "Dead letters", nodes: [el("section", { class: "panel" }, table.node)], update };
}

function groupsOf(letters) {
  const groups = new Map();
  for (const letter of letters) {
    const error = letter.errors.at(-1)?.error ?? "", reason = letter.dead?.reason ?? "";
    const id = JSON.stringify([reason, error]);
    const group = groups.get(id) ?? { id, reason, error, letters: [], keys: new Set() };
    group.letters.push(letter);
    group.keys.add(keyText(letter.fairness_key));
    groups.set(id, group);
  }
  return [...groups.values()].sort((one, other) => other.letters.length - one.letters.length);
}

function lettersPage(app, name) {
  const dlq = `${name}.dlq`;
  let chosen = null, groups = [], found = [], seen = null;
  const count = el("p", { class: "large", id: "count" });
  const table = new Table("By error", [
    { title: "last error", class: "name", fill: (cell, group) =>
      setText(once(cell, () => el("button", { class: "link", onclick: event => choose(event.target.closest("tr").item) })), group.error || "no error text") },
    { title: "reason", text: group => group.reason },
    { title: "messages", class: "number", text: group => number(group.letters.length) },
    { title: "keys", text: group => [...group.keys].slice(0, 3).join(", ") + (group.keys.size > 3 ? ` and ${group.keys.size - 3} more` : "") },
  ]);
  const letters = new Table("Messages", [
    { title: "id", class: "name", fill: (cell, each) => setText(once(cell, () => el("a", { href: `#/message/${encodeURIComponent(dlq)}/${each.id}` })), each.id) },
    { title: "key", text: each => keyText(each.fairness_key) },
    { title: "dead since", text: each => each.dead ? instant(each.dead.at_ms) : "–" },
    { title: "attempts", class: "number", text: each => number(each.attempts) },
    { title: "error", class: "why", text: each => each.errors.at(-1)?.error ?? "" },
  ]);
  const redrive = new Redrive(app, dlq);
  const key = el("input", { id: "letter-key", autocomplete: "off", placeholder: "any", oninput: () => filter() });
  const error = el("input", { id: "letter-error", autocomplete: "off", placeholder: "any", oninput: () => filter() });

  function choose(group) {
    chosen = chosen?.id === group?.id ? null : group;
    const all = chosen ? chosen.letters : groups.flatMap(each => each.letters);
    letters.update(all.slice(0, SHOWN), each => each.id);
    const name = key.value.trim();  // a key without dead letters must match none, not all
    redrive.choose(chosen, { ...(name && { fairness_key: groups[0]?.letters[0].fairness_key ?? name }), ...(error.value && { error: error.value }) });
  }

  // Filters by key and by a text in the errors.
  function filter() {
    const name = key.value.trim();
    groups = groupsOf(found.filter(letter => (!name || keyPath(letter.fairness_key) === name)
      && (!error.value || letter.errors.some(each => each.error.includes(error.value)))));
    table.update(groups, group => group.id);
    const again = chosen && groups.find(group => group.id === chosen.id);
    chosen = null;
    choose(again ?? null);
  }

  async function load() {
    await app.act(async () => {
      found = await all(dlq);
      filter();
    }, { isSilent: true });
  }

  function update(snapshot) {
    const queue = snapshot.queues.find(each => each.name === name);
    if (!queue) return;
    setText(count, `${number(queue.dead)} dead letters of ${name}`);
    if (queue.dead !== seen) { seen = queue.dead; load(); }
    redrive.look();
  }

  app.live.watch(app.watched);
  redrive.list();
  return { title: `Dead letters of ${name}`, update, nodes: [count,
    el("section", { class: "panel" }, el("h2", {}, "Grouped by error"),
      el("div", { class: "choices" }, field("Fairness key", key), field("Text in the error", error)), table.node),
    redrive.node, el("section", { class: "panel" }, el("h2", {}, "Messages"), letters.node)] };
}

async function all(dlq) {
  const found = [];
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const after = found.at(-1)?.id;
    const { messages } = await call("queue/peek", { queue: dlq, count: PAGE, ...(after && { after }) });
    found.push(...messages);
    if (messages.length < PAGE) break;
  }
  return found;
}

class Redrive {
  constructor(app, dlq) {
    Object.assign(this, { app, dlq, redrives: [], wanted: {} });
    this.which = el("p", { id: "which" }, "All dead letters of the queue.");
    this.rate = el("input", { type: "number", min: "0", step: "any", placeholder: "no limit", id: "rate" });
    this.count = el("input", { type: "number", min: "1", placeholder: "all", id: "most" });
    this.table = new Table("Redrives", [
      { title: "started", class: "name", text: each => instant(each.started_ms) },
      { title: "kind", text: each => each.is_dry_run ? "dry run" : "redrive" },
      { title: "status", text: each => each.error ? `${each.status}: ${each.error}` : each.status },
      { title: "scanned", class: "number", text: each => `${number(each.scanned)} of ${number(each.total)}` },
      { title: "matched", class: "number", text: each => number(each.matched) },
      { title: "moved", class: "number", text: each => number(each.moved) },
      { title: "controls", fill: (cell, each) => {
        const stop = once(cell, () => el("button", { class: "quiet", onclick: event => this.stop(event.target.closest("tr").item) }, "Stop"));
        stop.hidden = each.status !== "running";
      } },
    ]);
    this.node = el("section", { class: "panel" }, el("h2", {}, "Redrive"), this.which,
      el("div", { class: "choices" }, field("Messages per second", this.rate), field("Maximum count", this.count),
        el("button", { id: "dry", onclick: () => this.start(true) }, "Dry run"), el("button", { id: "redrive", onclick: () => this.start(false) }, "Redrive")),
      this.table.node);
  }

  choose(group, filters) {
    this.wanted = { ...filters, ...(group && { reason: group.reason, ...(group.error && { error: group.error }) }) };
    const { fairness_key: key, reason, error } = this.wanted;
    const parts = [key && `with key ${keyText(key)}`, reason && `with reason ${reason}`, error && `with error: ${error}`].filter(Boolean);
    setText(this.which, parts.length ? `Dead letters ${parts.join(", ")}` : "All dead letters of the queue.");
  }

  async start(isDryRun) {
    const request = { queue: this.dlq, wanted: this.wanted, is_dry_run: isDryRun };
    if (this.rate.value) request.rate = Number(this.rate.value);
    if (this.count.value) request.count = Number(this.count.value);
    if (!isDryRun && !await this.app.confirm("Redrive dead letters?", `${this.which.textContent} They return to their queue, and their attempts start at 0.`)) return;
    await this.app.act(async () => { await call("queues/redrive", request); await this.list(); });
  }

  async stop(redrive) {
    await this.app.act(async () => { await call("queues/redrive/stop", { id: redrive.id }); await this.list(); });
  }

  async list() {
    await this.app.act(async () => {
      this.redrives = (await call("queues/redrive/list")).redrives.filter(each => each.queue === this.dlq).reverse();
      this.table.update(this.redrives, each => each.id);
    }, { isSilent: true });
  }

  look() {
    if (this.redrives.some(each => each.status === "running")) this.list();
  }
}
