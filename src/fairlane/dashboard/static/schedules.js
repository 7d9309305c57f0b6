// Schedules: what queues are sent again and again. List, create, edit, pause, run and delete them.

import { call } from "./api.js";
import { Pager, Table, ago, el, field, number, once, setText, span } from "./dom.js";
import { durationInput, durationText, milliseconds } from "./durations.js";
import { payloadText } from "./message.js";

const ROWS = 50, LOAD_EVERY = 10;
const when = spec => spec.cron ? `${spec.cron}${spec.timezone && spec.timezone !== "UTC" ? ` (${spec.timezone})` : " (UTC)"}` : `every ${span(spec.every_ms)}`;
const base64 = text => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

export function schedulesPage(app, queue) {
  let schedules = [], updates = 0, base = null;
  const pager = new Pager(ROWS, () => list());
  const table = new Table("Schedules", [
    { title: "schedule", class: "name", text: each => each.name },
    { title: "queue", text: each => each.queue },
    { title: "when", class: "why", text: each => when(each.spec) },
    { title: "next", fill: (cell, each) => { if (each.is_paused) cell.replaceChildren("paused"); else { if (!cell.querySelector("time")) cell.replaceChildren(); ago(cell, each.next_ms, app.now); } } },
    { title: "last", class: "minor", fill: (cell, each) => ago(cell, each.last_ms, app.now) },
    { title: "fired", class: "number minor", text: each => number(each.fired) },
    { title: "missed", class: "number minor", text: each => each.missed ? `${number(each.missed)} (${each.missed_reason})` : "0" },
    { title: "controls", fill: (cell, each) => {
      const box = once(cell, () => el("div", { class: "actions" }, ...[["", toggle], ["Run", run], ["Edit", edit], ["Delete", remove]].map(([word, does]) =>
        el("button", { class: word === "Delete" ? "quiet danger" : "quiet", onclick: event => does(event.target.closest("tr").item) }, word))));
      setText(box.children[0], each.is_paused ? "Resume" : "Pause");
      for (const button of box.children) button.setAttribute("aria-label", `${button.textContent} ${each.name} of ${each.queue}`);
    } },
  ], { empty: queue ? `No schedule enqueues into ${queue}.` : "No schedules. A schedule enqueues a message again and again, by a cron expression or at an interval." });
  const inputs = {
    queue: el("input", { id: "schedule-queue", required: true, autocomplete: "off", value: queue ?? "" }),
    name: el("input", { id: "schedule-name", required: true, autocomplete: "off" }),
    cron: el("input", { id: "schedule-cron", autocomplete: "off", placeholder: "0 7 * * mon-fri" }),
    timezone: el("input", { id: "schedule-timezone", autocomplete: "off", value: "UTC" }),
    every: durationInput({ id: "schedule-every", placeholder: "such as 5m" }),
    key: el("input", { id: "schedule-key", autocomplete: "off", placeholder: "default" }),
    payload: el("textarea", { id: "schedule-payload", class: "few", spellcheck: "false" }),
    overlap: el("select", { id: "schedule-overlap" }, el("option", { value: "allow" }, "enqueue anyway"), el("option", { value: "skip" }, "skip the tick")),
    catch_up: el("select", { id: "schedule-catch-up" }, el("option", { value: "last" }, "fire the latest"), el("option", { value: "skip" }, "skip them"), el("option", { value: "all" }, "fire all")),
  };
  const title = el("h2", {}, "Create a schedule");
  const form = el("form", { onsubmit: event => { event.preventDefault(); save(); } }, el("div", { class: "choices" }, field("Queue", inputs.queue), field("Name", inputs.name),
    field("Cron expression", inputs.cron), field("Time zone", inputs.timezone), field("or every", inputs.every), field("Fairness key", inputs.key),
    field("If the last message still waits", inputs.overlap), field("Missed ticks", inputs.catch_up)), field("Payload (text)", inputs.payload),
  el("p", { class: "actions" }, el("button", { id: "save-schedule", class: "strong" }, "Save schedule"), el("button", { type: "button", class: "quiet", onclick: () => clear() }, "Clear")));

  function clear() {
    base = null;
    form.reset();
    inputs.payload.value = "";
    setText(title, "Create a schedule");
  }

  function edit(each) {
    const { spec } = each;
    base = spec;
    setText(title, `Edit schedule ${each.name} of ${each.queue}`);
    const values = { queue: each.queue, name: each.name, cron: spec.cron, timezone: spec.timezone ?? "UTC", every: durationText(spec.every_ms), key: keyOf(spec),
      payload: payloadText(spec.message?.payload ?? ""), overlap: spec.overlap ?? "allow", catch_up: spec.catch_up ?? "last" };
    for (const [name, value] of Object.entries(values)) inputs[name].value = value ?? "";
    inputs.cron.focus();
  }

  const keyOf = spec => { const key = spec.message?.fairness_key; return Array.isArray(key) ? key.join("/") : key; };

  async function save() {
    const value = name => inputs[name].value.trim(), key = value("key"), message = { ...(base?.message ?? {}) };
    delete message.payload;
    delete message.fairness_key;
    if (inputs.payload.value) message.payload = base64(inputs.payload.value);
    if (key) message.fairness_key = key.includes("/") ? key.split("/") : key;
    const spec = { ...(base ?? {}), cron: value("cron") || null, timezone: value("timezone") || "UTC", every_ms: value("every") ? milliseconds(value("every")) : null,
      message, overlap: value("overlap"), catch_up: value("catch_up") };
    await app.act(async () => { await call("schedules/set", { queue: value("queue"), name: value("name"), spec }); clear(); await load(); });
  }

  const does = (path, each) => app.act(async () => { await call(path, { queue: each.queue, name: each.name }); await load(); });
  const toggle = each => does(each.is_paused ? "schedules/resume" : "schedules/pause", each);

  async function run(each) {
    if (await app.confirm(`Run ${each.name} now?`, `Its message is enqueued into ${each.queue}. Its ticks are not affected.`, null, { word: "Run" })) await does("schedules/run", each);
  }

  async function remove(each) {
    if (await app.confirm(`Delete schedule ${each.name}?`, `It enqueues no more messages into ${each.queue}. Messages that it has enqueued stay.`, null, { word: "Delete schedule", isDangerous: true })) await does("schedules/delete", each);
  }

  const list = () => table.update(pager.page(schedules, "schedules"), each => `${each.queue} ${each.name}`);

  async function load(isSilent = false) {
    await app.act(async () => {
      schedules = (await call("schedules/list", queue ? { queue } : {})).schedules;
      list();
    }, { isSilent });
  }

  app.live.watch(app.watched);
  load();
  return { title: queue ? `Schedules of ${queue}` : "Schedules", nodes: [el("section", { class: "panel" }, pager.node, table.node), el("section", { class: "panel" }, title, form)],
    update() { updates += 1; if (updates % LOAD_EVERY === 0) load(true); else if (schedules.length) list(); } };
}
