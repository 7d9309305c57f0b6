// The messages of a queue: pages, filters by key and status, previews of payloads, and cancelling.

import { call } from "./api.js";
import { payloadText } from "./message.js";
import { Table, ago, el, field, keyText, number, once, setText } from "./dom.js";

const ROWS = 50, PREVIEW_MAX = 80, BODIES_BYTES_MAX = 1000000;
const STATUSES = ["waiting", "delayed", "leased"];

// A column of checkboxes that selects rows, kept by id.
export class Selection {
  constructor(onchange) {
    this.ids = new Set();
    this.onchange = onchange;
    this.all = el("input", { type: "checkbox", "aria-label": "Select all rows of this page", onchange: event => this.toggle(event.target.checked) });
    this.column = { title: "select", class: "check", head: this.all, fill: (cell, each) => {
      const box = once(cell, () => el("input", { type: "checkbox", onchange: event => {
        const { id } = event.target.closest("tr").item;
        if (event.target.checked) this.ids.add(id);
        else this.ids.delete(id);
        this.changed();
      } }));
      box.setAttribute("aria-label", `Select ${each.id}`);
      box.checked = this.ids.has(each.id);
    } };
    this.shown = [];
  }

  // Forgets what is no longer listed.
  show(items) {
    this.shown = items.map(each => each.id);
    this.ids = new Set(this.shown.filter(id => this.ids.has(id)));
    this.changed();
  }

  toggle(isOn) {
    this.ids = new Set(isOn ? this.shown : []);
    this.changed();
  }

  changed() {
    this.all.checked = this.shown.length > 0 && this.ids.size === this.shown.length;
    for (const box of document.querySelectorAll("tbody td.check input, tbody th.check input")) box.checked = this.ids.has(box.closest("tr").item.id);
    this.onchange([...this.ids]);
  }
}

// Columns that all lists of messages share. The queue is given by a function, for lists that learn it later.
export function idColumn(queueNow) {
  return { title: "id", class: "name id", fill: (cell, each) => {
    const link = once(cell, () => el("a", {}));
    link.href = `#/message/${encodeURIComponent(queueNow())}/${each.id}`;
    setText(link, each.id);
  } };
}
export const keyColumn = { title: "key", class: "why", text: each => keyText(each.fairness_key) };
export const previewColumn = { title: "payload", class: "preview minor", text: each => preview(each) };

function preview(message) {
  if (message.payload === undefined || message.payload === null) return message.size ? `${number(message.size)} bytes` : "";
  const text = payloadText(message.payload);
  return text.length > PREVIEW_MAX ? `${text.slice(0, PREVIEW_MAX)}…` : text;
}

// Returns messages with their payloads, unless these are large together.
export async function peek(queue, request) {
  const { messages } = await call("queue/peek", { queue, ...request });
  if (!messages.length || messages.reduce((sum, each) => sum + each.size, 0) > BODIES_BYTES_MAX) return messages;
  return (await call("queue/peek", { queue, ...request, with_body: true })).messages;
}

export async function cancelMessages(app, queue, ids) {
  const details = ids.length === 1 ? `Message ${ids[0]} is deleted for good. If it is in flight, its consumer is told.` : `${number(ids.length)} messages are deleted for good. Consumers of those in flight are told.`;
  if (!await app.confirm(ids.length === 1 ? "Cancel this message?" : `Cancel ${number(ids.length)} messages?`, details, null, { word: "Cancel messages", isDangerous: true })) return false;
  return app.act(() => call("queue/cancel", { queue, ids, reason: "cancelled on the dashboard" }));
}

export function messagesPage(app, queue) {
  let starts = [null], messages = [], typing = null;
  const cancel = el("button", { id: "cancel", class: "danger", disabled: true, onclick: async () => { if (await cancelMessages(app, queue, [...selection.ids])) await load(); } }, "Cancel selected");
  const selection = new Selection(ids => { cancel.disabled = !ids.length; setText(cancel, ids.length ? `Cancel ${number(ids.length)} selected` : "Cancel selected"); });
  const table = new Table(`Messages of ${queue}`, [
    selection.column, idColumn(() => queue), keyColumn,
    { title: "status", text: each => each.status },
    { title: "attempts", class: "number minor", text: each => number(each.attempts) },
    { title: "enqueued", fill: (cell, each) => ago(cell, each.enqueued_ms, app.now) },
    previewColumn,
  ], { empty: "No message matches." });
  const key = el("input", { id: "key-filter", type: "search", autocomplete: "off", placeholder: "any; a path has slashes", oninput: () => { clearTimeout(typing); typing = setTimeout(() => { starts = [null]; load(); }, 300); } });
  const status = el("select", { id: "status-filter", onchange: () => { starts = [null]; load(); } },
    el("option", { value: "" }, "any"), ...STATUSES.map(each => el("option", { value: each }, each)));
  const words = el("span", { class: "faint", role: "status" });
  const back = el("button", { class: "quiet", onclick: () => { starts.pop(); load(); } }, "Previous");
  const on = el("button", { class: "quiet", onclick: () => { starts.push(messages.at(-1).id); load(); } }, "Next");

  async function load() {
    await app.act(async () => {
      const name = key.value.trim(), path = name.includes("/") ? name.split("/") : name, after = starts.at(-1);
      messages = await peek(queue, { count: ROWS, ...(after && { after }), ...(name && { wanted: { fairness_key: path } }), ...(status.value && { status: status.value }) });
      table.update(messages, each => each.id);
      selection.show(messages);
      back.disabled = starts.length === 1;
      on.disabled = messages.length < ROWS;
      const first = (starts.length - 1) * ROWS;
      setText(words, messages.length ? `First messages of ${queue}: ${number(first + 1)} to ${number(first + messages.length)}, oldest first` : `First messages of ${queue}: none`);
    });
  }

  app.live.watch(app.watched);
  load();
  const bar = el("div", { class: "choices" }, field("Fairness key", key), field("Status", status), cancel, el("button", { class: "quiet", id: "reload", onclick: load }, "Reload"), el("div", { class: "pager" }, words, back, on));
  return { title: `Messages of ${queue}`, nodes: [el("p", { class: "actions" }, el("a", { href: `#/queue/${encodeURIComponent(queue)}` }, `Queue ${queue}`)), el("section", { class: "panel" }, bar, table.node)],
    update() { if (messages.length) table.update(messages, each => each.id); } };
}
