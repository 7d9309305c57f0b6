// Dead letters: grouped by error, inspected, retried and deleted: one, a selection, or all that match a filter.

import { call } from "./api.js";
import { Pager, Table, ago, el, field, fold, keyPath, keyText, number, once, setText } from "./dom.js";
import { payloadText } from "./message.js";
import { Selection, idColumn, keyColumn } from "./messages.js";
import { Redrive } from "./redrive.js";

const PAGE = 1000, PAGES_MAX = 5, ROWS = 25, DELETED_AT_ONCE = 1000, PREVIEW_BYTES_MAX = 1000000, PREVIEW_MAX = 60;

export function deadPage(app, name) {
  return name ? lettersPage(app, name) : choosingPage(app);
}

function choosingPage(app) {
  const table = new Table("Queues with dead letters", [
    { title: "queue", class: "name", fill: (cell, queue) =>
      setText(once(cell, () => el("a", { href: `#/dead/${encodeURIComponent(queue.name)}` })), queue.name) },
    { title: "dead letters", class: "number", text: queue => number(queue.dead) },
    { title: "new /s", class: "number", text: queue => queue.rates.dead.toFixed(1) },
  ], { empty: "No queue has dead letters. A message becomes one when its attempts are used up, and is kept here until you retry or delete it." });
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

const firstLine = text => text.split("\n", 1)[0].slice(0, 160);

// Where the dead letters are that a user means by a queue, and what selects them there; model/views.py has the same rule.
async function placeOf(name) {
  const view = await call("queue/stats", { queue: name });
  if (view.dead_letters) return { queue: name, wanted: {} };
  const own = name.endsWith(".dlq") ? name : `${name}.dlq`;
  return { queue: view.dead_letter_queue, wanted: view.dead_letter_queue === own ? {} : { origin: name } };
}

// A queue that others use for their dead letters may have messages of its own.
const isDead = (queue, message) => message.dead || queue.endsWith(".dlq");

async function all({ queue, wanted }, pages = PAGES_MAX) {
  const found = [];
  for (let page = 0, after = null; page < pages; page += 1) {
    const { messages } = await call("queue/peek", { queue, count: PAGE, wanted, ...(after && { after }) });
    found.push(...messages.filter(each => isDead(queue, each)));
    if (messages.length < PAGE) break;
    after = messages.at(-1).id;
  }
  return found;
}

function lettersPage(app, name) {
  let place = { queue: null, wanted: {} }, chosen = null, groups = [], found = [], listed = [], seen = null, inAll = 0;
  const count = el("p", { class: "large", id: "count" });
  const table = new Table("By error", [
    { title: "last error", class: "name", fill: (cell, group) => {
      const button = once(cell, () => el("button", { class: "link", onclick: event => choose(event.target.closest("tr").item) }));
      setText(button, firstLine(group.error) || "no error text");
      button.setAttribute("aria-pressed", String(chosen?.id === group.id));
    } },
    { title: "reason", text: group => group.reason },
    { title: "messages", class: "number", text: group => number(group.letters.length) },
    { title: "keys", text: group => [...group.keys].slice(0, 3).join(", ") + (group.keys.size > 3 ? ` and ${group.keys.size - 3} more` : "") },
  ], { empty: "No dead letter matches." });
  const retry = el("button", { id: "retry-selected", disabled: true, onclick: () => retryOnes([...selection.ids]) }, "Retry selected");
  const remove = el("button", { id: "delete-selected", class: "danger", disabled: true, onclick: () => deleteOnes([...selection.ids]) }, "Delete selected");
  const selection = new Selection(ids => { retry.disabled = remove.disabled = !ids.length; setText(chosenWords, ids.length ? `${number(ids.length)} selected` : ""); });
  const chosenWords = el("span", { class: "faint", role: "status" });
  const rows = new Table("Messages", [
    selection.column, idColumn(() => place.queue), keyColumn,
    { title: "died", fill: (cell, each) => ago(cell, each.dead?.at_ms, app.now) },
    { title: "attempts", class: "number minor", text: each => number(each.attempts) },
    { title: "error", class: "why", fill: (cell, each) => fold(cell, each.errors.at(-1)?.error ?? "") },
    { title: "payload", class: "preview minor", fill: (cell, each) => setText(cell, previews.get(each.id) ?? "") },
    { title: "controls", fill: (cell, each) => {
      const box = once(cell, () => el("div", { class: "actions" }, el("button", { class: "quiet", onclick: event => retryOnes([event.target.closest("tr").item.id]) }, "Retry"),
        el("button", { class: "quiet danger", onclick: event => deleteOnes([event.target.closest("tr").item.id]) }, "Delete")));
      box.children[0].setAttribute("aria-label", `Retry ${each.id}`);
      box.children[1].setAttribute("aria-label", `Delete ${each.id}`);
    } },
  ], { empty: "No dead letter matches." });
  const previews = new Map();
  const pager = new Pager(ROWS, () => list());
  const redrive = new Redrive(app, () => deleteMatching());
  const key = el("input", { id: "letter-key", autocomplete: "off", placeholder: "any", oninput: () => filter() });
  const error = el("input", { id: "letter-error", autocomplete: "off", placeholder: "any", oninput: () => filter() });

  function list() {
    const page = pager.page(listed, "dead letters");
    rows.update(page, each => each.id);
    selection.show(page);
    preview(page);
  }

  // Loads the payloads of the shown messages, unless they are large together.
  async function preview(page) {
    const missing = page.filter(each => !previews.has(each.id));
    if (!missing.length || missing.reduce((sum, each) => sum + each.size, 0) > PREVIEW_BYTES_MAX) return;
    for (const each of missing) previews.set(each.id, "");
    await app.act(async () => {
      const { messages } = await call("queue/peek", { queue: place.queue, count: missing.length, wanted: { ids: missing.map(each => each.id) }, with_body: true });
      for (const each of messages) previews.set(each.id, payloadText(each.payload ?? "").slice(0, PREVIEW_MAX));
      list();
    }, { isSilent: true });
  }

  function choose(group) {
    chosen = chosen?.id === group?.id ? null : group;
    listed = chosen ? chosen.letters : groups.flatMap(each => each.letters);
    pager.first = 0;
    list();
    table.update(groups, each => each.id);
    const name = key.value.trim();  // a key without dead letters must match none, not all
    redrive.choose(chosen, { ...place.wanted, ...(name && { fairness_key: groups[0]?.letters[0].fairness_key ?? name }), ...(error.value && { error: error.value }) });
  }

  // Filters by key and by a text in the errors.
  function filter() {
    const name = key.value.trim();
    groups = groupsOf(found.filter(letter => (!name || keyPath(letter.fairness_key) === name)
      && (!error.value || letter.errors.some(each => each.error.includes(error.value)))));
    const again = chosen && groups.find(group => group.id === chosen.id);
    chosen = null;
    choose(again ?? null);
  }

  async function retryOnes(ids) {
    const details = "They return to their queue, and their attempts start at 0.";
    if (!await app.confirm(ids.length === 1 ? "Retry this dead letter?" : `Retry ${number(ids.length)} dead letters?`, details, null, { word: "Retry" })) return;
    await app.act(async () => { await call("queues/redrive", { queue: place.queue, wanted: { ids } }); await redrive.list(); });
  }

  async function deleteOnes(ids) {
    const question = ids.length === 1 ? "Delete this dead letter?" : `Delete ${number(ids.length)} dead letters?`;
    if (await app.confirm(question, "They are deleted for good.", null, { word: "Delete", isDangerous: true })) await app.act(async () => { await removed(ids); await load(); });
  }

  const removed = ids => call("queue/cancel", { queue: place.queue, ids, reason: "deleted on the dashboard" });

  // Deletes all that match the filter, on the server, however many they are.
  async function deleteMatching() {
    if (!await app.confirm("Delete dead letters?", `${redrive.which.textContent} They are deleted for good.`, null, { word: "Delete", isDangerous: true })) return;
    await app.act(async () => {
      const ids = (await all({ queue: place.queue, wanted: redrive.wanted }, Infinity)).map(each => each.id);
      for (let deleted = 0; deleted < ids.length; deleted += DELETED_AT_ONCE) {
        setText(redrive.progress, `${number(deleted)} deleted`);
        await removed(ids.slice(deleted, deleted + DELETED_AT_ONCE));
      }
      setText(redrive.progress, `${number(ids.length)} deleted`);
      await load();
    });
  }

  async function load() {
    await app.act(async () => {
      place = await placeOf(name);
      if (redrive.dlq !== place.queue) { redrive.dlq = place.queue; redrive.list(); }
      found = await all(place);
      tell();
      filter();
    }, { isSilent: true });
  }

  // The snapshot counts all dead letters where those of the queue are, so only those in its own are counted by it.
  function tell() {
    if (!place.queue) return;
    const isShared = place.wanted.origin || place.queue === name, total = isShared ? found.length : inAll;
    const isPart = isShared ? inAll > PAGE * PAGES_MAX : total > PAGE * PAGES_MAX;
    const where = place.queue === name ? `in ${name}` : place.wanted.origin ? `of ${name}, in ${place.queue}` : `of ${name}`;
    setText(count, `${number(total)} dead letters ${where}${isPart ? `; the first ${number(PAGE * PAGES_MAX)} are listed, and redrives and deletions by filter act on all` : ""}`);
  }

  function update(snapshot) {
    const queue = snapshot.queues.find(each => each.name === name);
    if (!queue) return;
    inAll = queue.dead;
    tell();
    const now = place.queue === name ? queue.waiting : queue.dead;
    if (now !== seen) { seen = now; load(); }
    redrive.look();
  }

  app.live.watch(app.watched);
  return { title: `Dead letters of ${name}`, update, nodes: [count,
    el("section", { class: "panel" }, el("h2", {}, "Grouped by error"),
      el("div", { class: "choices" }, field("Fairness key", key), field("Text in the error", error)), table.node),
    redrive.node, el("section", { class: "panel" }, el("h2", {}, "Messages"),
      el("div", { class: "choices" }, retry, remove, chosenWords, pager.node), rows.node)] };
}
