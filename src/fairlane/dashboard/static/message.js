// One message: its status, its content, and its history from the journal.

import { call, journal, journals, wholeOf } from "./api.js";
import { cancelMessages } from "./messages.js";
import { Pager, Table, ago, agoText, el, field, fold, instant, keyText, number, once, setText, span } from "./dom.js";

const SLICE = 50000, SLICES_MAX = 40, PAYLOAD_MAX = 4096, FOUND_MAX = 100, CHANGE_MS = 20000;
// An id holds the number of its message; the journal writes the number alone.
const ID = /^([0-9a-f]{1,16}|[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})$/i;

export function messagePage(app, queue, id) {
  const name = el("input", { id: "queue", value: queue ?? "", autocomplete: "off", placeholder: "any" });
  const wanted = el("input", { id: "id", value: id ?? "", required: true, autocomplete: "off", placeholder: "message id or correlation id" });
  const form = el("form", { class: "choices panel", onsubmit: event => {
    event.preventDefault();
    location.hash = `#/message/${encodeURIComponent(name.value.trim() || "-")}/${encodeURIComponent(wanted.value.trim())}`;
  } }, field("Queue", name), field("Message id or correlation id", wanted), el("button", {}, "Look up"));
  const found = el("div", { id: "found" });
  const queues = new Table("Messages by queue", [
    { title: "queue", class: "name", fill: (cell, each) => setText(once(cell, () => el("a", { href: `#/messages/${encodeURIComponent(each.name)}` })), each.name) },
    { title: "waiting", class: "number", text: each => number(each.waiting) },
    { title: "in flight", class: "number", text: each => number(each.leased) },
  ], { empty: "No queue has messages." });
  const pager = new Pager(25, () => list());
  const list = () => queues.update(pager.page(app.live.snapshot.queues.filter(each => each.waiting + each.leased > 0), "queues with messages"), each => each.name);
  const browse = el("section", { class: "panel" }, el("h2", {}, "Browse a queue"), pager.node, queues.node);
  app.live.watch(app.watched);
  if (id) look(app, found, queue === "-" ? null : queue, id);
  return { title: id ? "Message" : "Messages", nodes: id ? [form, found] : [form, browse], update() { if (!id) list(); } };
}

// A text that looks like an id is tried as an id first, then as a correlation id.
async function look(app, place, queue, text) {
  place.replaceChildren(el("p", { class: "faint", role: "status" }, "Searching …"));
  if (ID.test(text) && await show(app, place, queue, text.toLowerCase().padStart(16, "0"))) return;
  const found = await correlated(text);
  const messages = found.events.filter(event => !queue || event.queue === queue);
  if (messages.length === 1) {
    await show(app, place, messages[0].queue, messages[0].id);
    return;
  }
  if (!messages.length) {
    if (ID.test(text)) return;
    const words = found.refusal ? `${found.refusal.cause} ${found.refusal.remedy}` : "No message in the journal has this correlation id.";
    place.replaceChildren(el("section", { class: "panel" }, el("p", { id: "explain", class: "large" }, words)));
    return;
  }
  const table = new Table(`Messages with correlation id ${text}`, [
    { title: "id", class: "name", fill: (cell, each) => cell.replaceChildren(el("a", { href: `#/message/${encodeURIComponent(each.queue)}/${each.id}` }, each.id)) },
    { title: "queue", text: each => each.queue },
    { title: "key", text: each => keyText(each.fairness_key ?? []) },
    { title: "enqueued", fill: (cell, each) => ago(cell, each.at_ms, app.now) },
  ]);
  table.update(messages.slice(0, FOUND_MAX), each => each.id);
  place.replaceChildren(el("section", { class: "panel" }, el("h2", {}, `${number(messages.length)} messages have this correlation id`), table.node));
}

// Searches the journal backwards, because most searches are for recent messages.
async function correlated(text) {
  const events = new Map();
  try {
    for (const queue of await journals()) await correlatedIn(queue, text, events);
    return { events: [...events.values()] };
  } catch (error) {
    return { events: [...events.values()], refusal: error };
  }
}

async function correlatedIn(queue, text, events) {
  let { end: until, beginning } = await journal({ queue, after: 0, count: 1 });
  for (let slice = 0; slice < SLICES_MAX && until > beginning; slice += 1) {
    const after = Math.max(beginning, until - SLICE);
    const page = await journal({ queue, after, count: SLICE, correlation_id: text });
    for (const event of page.events.reverse()) {
      const name = `${event.queue} ${event.message_id}`;
      if (event.message_id && !events.has(name)) events.set(name, event);
    }
    until = after;
  }
}

// Shows one message and returns whether it exists or existed.
async function show(app, place, queue, id) {
  const [history, direct] = await Promise.all([historyOf(id, queue), queue ? lookedAt(queue, id) : null]);
  const at = queue ?? history.events.findLast(event => event.target ?? event.queue)?.queue;
  const dead = history.events.findLast(event => event.target)?.target;
  let view = direct;
  if (!view?.message && at) view = await lookedAt(at, id);
  if (!view?.message && dead) view = (await lookedAt(dead, id)) ?? view;
  const state = view?.message?.state_etag ? await stateOf(view.message) : [];
  const progress = el("span", { id: "progress" }, progressText(view?.status));
  place.replaceChildren(...explained(app, view, history), ...(view?.message ? [controls(app, place, view.message), ...content(view, progress)] : []), ...state, timeline(history));
  if (view?.status?.status === "running") follow(app, place, progress, view.status);
  return Boolean(view?.message || history.events.length);
}

// Follows a running message without polling: its progress as it is reported, and everything else when it runs no more.
async function follow(app, place, shown, { queue, id, version, attempts }) {
  const status = await call("message/status", { queue, id, after: version, wait_ms: CHANGE_MS }).catch(() => null);
  if (!status || !shown.isConnected) return;
  if (status.status !== "running" || status.attempts !== attempts) {
    show(app, place, queue, id);
    return;
  }
  setText(shown, progressText(status));
  follow(app, place, shown, status);
}

function progressText(status) {
  const { fraction, note } = status?.progress ?? {};
  return [fraction === undefined || fraction === null ? null : `${Math.round(fraction * 100)} %`, note].filter(Boolean).join(" ") || "–";
}

async function stateOf(message) {
  const heading = el("h2", {}, "Workflow state");
  try {
    const { state, etag } = await call("queue/state/get", { queue: message.queue, id: message.id });
    return [el("section", { class: "panel" }, heading, el("p", { class: "faint" }, `Version ${etag ?? "–"}`), el("pre", { id: "workflow", tabindex: "0" }, payloadText(state ?? "")))];
  } catch (error) {
    return [el("section", { class: "panel" }, heading, el("p", {}, `${error.cause} ${error.remedy}`))];
  }
}

async function lookedAt(queue, id) {
  try {
    const [message, why, status] = await Promise.all([call("queue/get", { queue, id }),
      ...["queue/explain", "message/status"].map(verb => call(verb, { queue, id }).catch(() => null))]);
    return { message, why, status };
  } catch (error) {
    return { refusal: error };
  }
}

// The history of a message is in the journal of its queue. Without a queue, the first journal that has the id counts.
async function historyOf(id, queue) {
  let history = { events: [], isWhole: true };
  try {
    const whole = queue && wholeOf(queue);
    for (const each of await journals(whole)) {
      const found = await historyIn(each, id);
      if (found.events.some(event => !whole || each === null || wholeOf(event.queue ?? "") === whole)) return found;
      if (found.refusal && found.refusal.code !== "invalid_argument") history = found;  // the message may be there
    }
  } catch (error) {
    return { events: [], isWhole: false, refusal: error };
  }
  return history;
}

function numberOf(id) {
  return Number.parseInt(id.length > 16 ? id.slice(0, 8) + id.slice(9, 13) + id.slice(15, 18) : id, 16);
}

// A message's number is the sequence number of its enqueue, so its history begins there.
async function historyIn(queue, id) {
  const events = [];
  let after = numberOf(id) - 1;
  try {
    for (let slice = 0; slice < SLICES_MAX; slice += 1) {
      const page = await journal({ queue, after, count: SLICE, message_ids: id });
      events.push(...page.events);
      if (page.position >= page.end || page.position <= after) return { events, isWhole: true };
      after = page.position;
    }
    return { events, isWhole: false };
  } catch (error) {
    return { events, isWhole: false, refusal: error };
  }
}

// Retry a dead letter, or delete any message.
function controls(app, place, message) {
  const { queue, id, dead } = message;
  const retry = async () => {
    if (!await app.confirm("Retry this dead letter?", `It returns to ${dead.origin}, and its attempts start at 0.`, null, { word: "Retry" })) return;
    if (await app.act(() => call("queues/redrive", { queue, wanted: { ids: [id] } }))) show(app, place, dead.origin, id);
  };
  const cancel = async () => { if (await cancelMessages(app, queue, [id])) show(app, place, queue, id); };
  return el("p", { class: "actions" }, dead && el("button", { id: "retry", onclick: retry }, "Retry"),
    el("button", { id: "cancel", class: "danger", onclick: cancel }, dead ? "Delete" : "Cancel message"), el("a", { href: `#/messages/${encodeURIComponent(queue)}` }, `Messages of ${queue}`));
}

function explained(app, view, history) {
  const last = history.events.at(-1);
  if (view?.message) {
    const dead = view.message.dead, found = view.why?.words ?? `The message is ${view.message.status}.`;
    const words = dead ? `Dead letter of ${dead.origin} since ${agoText(dead.at_ms, app.now)} (${dead.reason}). It stays until it is retried or deleted.` : found;
    return [el("section", { class: "panel" }, el("h2", {}, "Status"), el("p", { id: "explain", class: "large" }, words))];
  }
  const words = last ? `No longer in a queue: ${ENDINGS[last.kind] ?? `its last event was ${last.kind}`}.`
    : view?.refusal ? `${view.refusal.cause} ${view.refusal.remedy}` : "The journal has no message with this id.";
  return [el("section", { class: "panel" }, el("p", { id: "explain", class: "large" }, words))];
}

const ENDINGS = { acked: "it was acknowledged", removed: "it was removed", dead: "it became a dead letter" };

function content({ message, status }, progress) {
  const facts = [
    ["queue", message.queue], ["key", keyText(message.fairness_key)], ["status", message.dead ? "dead letter" : message.status], ["weight", message.weight], ["cost", message.cost],
    ["priority", message.priority], ["throttles", message.throttles.join(", ") || "none"], ["attempts", `${message.attempts}, ${message.failures} failed`],
    ["owner", message.owner ?? "–"], ...(status?.status === "running" ? [["progress", progress]] : []), ["correlation id", message.correlation_id ?? "–"], ["size", `${number(message.size)} bytes`],
  ];
  const list = el("dl", { class: "facts" }, ...facts.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value instanceof Node ? value : String(value)))));
  const headers = Object.entries(message.headers ?? {});
  const errors = message.errors.map(({ at_ms, attempt, reason, error, detail }) => el("li", {},
    `${instant(at_ms)}, attempt ${attempt}, ${reason}${detail?.worker ? ` on ${detail.worker}` : ""}: `, folded(error || "no error text"),
    detail?.traceback ? el("details", {}, el("summary", {}, "Traceback"), el("pre", { tabindex: "0" }, detail.traceback)) : null));
  return [el("section", { class: "panel" }, list,
    ...(headers.length ? [el("h3", {}, "Headers"), el("dl", { class: "headers" }, ...headers.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))] : []),
    ...(errors.length ? [el("h3", {}, "Failed attempts"), el("ul", { class: "errors" }, ...errors)] : []),
    el("details", {}, el("summary", {}, "Payload"), el("pre", { id: "payload", tabindex: "0" }, payloadText(message.payload ?? "")))) ];
}

function folded(text) {
  const place = el("code", {});
  fold(place, text);
  return place;
}

export function payloadText(base64) {
  const bytes = Uint8Array.from(atob(base64), sign => sign.charCodeAt(0));
  const cut = bytes.length > PAYLOAD_MAX ? `\n… ${bytes.length - PAYLOAD_MAX} more bytes` : "";
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, PAYLOAD_MAX), { stream: true }) + cut;
  } catch {
    return Array.from(bytes.subarray(0, PAYLOAD_MAX), byte => byte.toString(16).padStart(2, "0")).join(" ") + cut;
  }
}

const FIELDS = [
  ["queue", "queue"], ["target", "to"], ["reason", "reason"], ["error", "error"], ["owner", "owner"], ["by", "by"],
  ["throttled_ms", "throttled ms"], ["capped_ms", "capped ms"], ["paused_ms", "paused ms"], ["cost", "cost"], ["cause_id", "caused by"],
];

function timeline(history) {
  const first = history.events[0]?.at_ms;
  const items = history.events.map((event, at) => el("li", { class: event.kind },
    el("time", { datetime: new Date(event.at_ms).toISOString() }, instant(event.at_ms)),
    el("b", {}, event.kind), el("span", {}, at ? `+${span(event.at_ms - first)}` : ""),
    el("span", { class: "faint" }, FIELDS.filter(([name]) => event[name] !== undefined).map(([name, title]) => `${title} ${event[name]}`).join(" · "))));
  const note = history.refusal ? `The history is not available: ${history.refusal.cause} ${history.refusal.remedy}`
    : history.isWhole ? null : "Only the first part of the journal was searched.";
  return el("section", { class: "panel" }, el("h2", {}, "History"), el("ol", { class: "history", id: "history" }, ...items),
    note && el("p", { class: "faint" }, note), !note && !items.length && el("p", { class: "faint" }, "The journal has no events of this message."));
}
