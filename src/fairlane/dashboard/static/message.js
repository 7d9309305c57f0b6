// One message: its life from the journal, and why it waits.

import { call, journal, journals, wholeOf } from "./api.js";
import { Table, el, field, instant, keyText, number, span } from "./dom.js";

const SLICE = 50000, SLICES_MAX = 40, PAYLOAD_MAX = 4096, PEEKED = 50, FOUND_MAX = 100;
const ID = /^[0-9a-f]{1,16}$/i;

export function messagePage(app, queue, id) {
  const name = el("input", { id: "queue", value: queue ?? "", autocomplete: "off", placeholder: "any" });
  const wanted = el("input", { id: "id", value: id ?? "", required: true, autocomplete: "off", placeholder: "either of them" });
  const form = el("form", { class: "choices panel", onsubmit: event => {
    event.preventDefault();
    location.hash = `#/message/${encodeURIComponent(name.value.trim() || "-")}/${encodeURIComponent(wanted.value.trim())}`;
  } }, field("Queue", name), field("Message id or correlation id", wanted), el("button", {}, "Look up"));
  const found = el("div", { id: "found" });
  app.live.watch(app.watched);
  if (id) look(app, found, queue === "-" ? null : queue, id);
  else if (queue) listMessages(app, found, queue);
  return { title: "Message", nodes: [form, found], update() {} };
}

async function listMessages(app, place, queue) {
  await app.act(async () => {
    const { messages } = await call("queue/peek", { queue, count: PEEKED });
    const table = new Table(`The first messages of ${queue}`, [
      { title: "id", class: "name", fill: (cell, each) => cell.replaceChildren(el("a", { href: `#/message/${encodeURIComponent(queue)}/${each.id}` }, each.id)) },
      { title: "key", text: each => keyText(each.fairness_key) },
      { title: "status", text: each => each.status },
      { title: "attempts", class: "number", text: each => number(each.attempts) },
      { title: "enqueued", text: each => instant(each.enqueued_ms) },
    ]);
    table.update(messages, each => each.id);
    place.replaceChildren(el("section", { class: "panel" }, table.node));
  });
}

// A text that can be an id is taken for one; what no message has for its id may still be a correlation id.
async function look(app, place, queue, text) {
  place.replaceChildren(el("p", { class: "faint", role: "status" }, "Looking it up …"));
  if (ID.test(text) && await show(place, queue, text.toLowerCase().padStart(16, "0"))) return;
  const found = await correlated(text);
  const messages = found.events.filter(event => !queue || event.queue === queue);
  if (messages.length === 1) {
    await show(place, messages[0].queue, messages[0].message_id);
    return;
  }
  if (!messages.length) {
    if (ID.test(text)) return;
    const words = found.refusal ? `${found.refusal.cause} ${found.refusal.remedy}` : "The journal knows no message with this correlation id.";
    place.replaceChildren(el("section", { class: "panel" }, el("p", { id: "explain", class: "large" }, words)));
    return;
  }
  const table = new Table(`Messages with the correlation id ${text}`, [
    { title: "id", class: "name", fill: (cell, each) => cell.replaceChildren(el("a", { href: `#/message/${encodeURIComponent(each.queue)}/${each.message_id}` }, each.message_id)) },
    { title: "queue", text: each => each.queue },
    { title: "key", text: each => keyText(each.fairness_key ?? []) },
    { title: "enqueued", text: each => instant(each.at_ms) },
  ]);
  table.update(messages.slice(0, FOUND_MAX), each => each.message_id);
  place.replaceChildren(el("section", { class: "panel" }, el("h2", {}, `${number(messages.length)} messages have this correlation id`), table.node));
}

// Looks through the journal from its end: what is asked for is mostly of late.
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

// Shows one message, and tells whether there is or was one.
async function show(place, queue, id) {
  const [life, told] = await Promise.all([lifeOf(id, queue), queue ? lookedAt(queue, id) : null]);
  const at = queue ?? life.events.findLast(event => event.target ?? event.queue)?.queue;
  const dead = life.events.findLast(event => event.target)?.target;
  let view = told;
  if (!view?.message && at) view = await lookedAt(at, id);
  if (!view?.message && dead) view = (await lookedAt(dead, id)) ?? view;
  const state = view?.message?.state_etag ? await stateOf(view.message) : [];
  place.replaceChildren(...explained(view, life), ...(view?.message ? content(view.message) : []), ...state, timeline(life));
  return Boolean(view?.message || life.events.length);
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
    const [message, why] = await Promise.all([call("queue/get", { queue, id }), call("queue/explain", { queue, id }).catch(() => null)]);
    return { message, why };
  } catch (error) {
    return { refusal: error };
  }
}

// Its life is in the journal of its queue; where several could be meant, in the first that knows it.
async function lifeOf(id, queue) {
  let life = { events: [], isWhole: true };
  try {
    const whole = queue && wholeOf(queue);
    for (const each of await journals(whole)) {
      const found = await lifeIn(each, id);
      if (found.events.some(event => !whole || each === null || wholeOf(event.queue ?? "") === whole)) return found;
      if (found.refusal && found.refusal.code !== "invalid_argument") life = found;  // it may be there
    }
  } catch (error) {
    return { events: [], isWhole: false, refusal: error };
  }
  return life;
}

// A message's number is the sequence of its enqueue, so its life begins there.
async function lifeIn(queue, id) {
  const events = [];
  let after = Number.parseInt(id, 16) - 1;
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

function explained(view, life) {
  const last = life.events.at(-1);
  if (view?.message) {
    const dead = view.message.dead, found = view.why?.words ?? `It is ${view.message.status}.`;
    const words = dead ? `It is a dead letter of ${dead.origin} since ${instant(dead.at_ms)}: ${dead.reason}. ${found}` : found;
    return [el("section", { class: "panel" }, el("h2", {}, "Why it is where it is"), el("p", { id: "explain", class: "large" }, words))];
  }
  const words = last ? `It is in no queue any more: ${ENDINGS[last.kind] ?? `the last that happened was ${last.kind}`}.`
    : view?.refusal ? `${view.refusal.cause} ${view.refusal.remedy}` : "The journal knows no such message.";
  return [el("section", { class: "panel" }, el("p", { id: "explain", class: "large" }, words))];
}

const ENDINGS = { acked: "it was acked", removed: "it was removed", dead: "it went to the dead letters" };

function content(message) {
  const facts = [
    ["queue", message.queue], ["key", keyText(message.fairness_key)], ["status", message.status], ["weight", message.weight], ["cost", message.cost],
    ["priority", message.priority], ["throttles", message.throttles.join(", ") || "none"], ["attempts", `${message.attempts}, ${message.failures} failed`],
    ["owner", message.owner ?? "–"], ["correlation id", message.correlation_id ?? "–"], ["size", `${number(message.size)} bytes`],
  ];
  const list = el("dl", { class: "facts" }, ...facts.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, String(value)))));
  const headers = Object.entries(message.headers ?? {});
  const errors = message.errors.map(([atMs, attempt, reason, error]) => el("li", {}, `${instant(atMs)}, attempt ${attempt}, ${reason}: `, el("code", {}, error || "no word")));
  return [el("section", { class: "panel" }, list,
    headers.length ? el("dl", { class: "headers" }, ...headers.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])) : null,
    errors.length ? el("ul", { class: "errors" }, ...errors) : null,
    el("details", {}, el("summary", {}, "Payload"), el("pre", { id: "payload", tabindex: "0" }, payloadText(message.payload ?? "")))) ];
}

function payloadText(base64) {
  const bytes = Uint8Array.from(atob(base64), sign => sign.charCodeAt(0));
  const cut = bytes.length > PAYLOAD_MAX ? `\n… ${bytes.length - PAYLOAD_MAX} bytes more` : "";
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, PAYLOAD_MAX), { stream: true }) + cut;
  } catch {
    return Array.from(bytes.subarray(0, PAYLOAD_MAX), byte => byte.toString(16).padStart(2, "0")).join(" ") + cut;
  }
}

const SAID = [
  ["queue", "queue"], ["target", "to"], ["reason", "reason"], ["error", "error"], ["owner", "owner"], ["by", "by"],
  ["throttled_ms", "held by throttles ms"], ["capped_ms", "held by caps ms"], ["cost", "cost"], ["cause_id", "caused by"],
];

function timeline(life) {
  const first = life.events[0]?.at_ms;
  const items = life.events.map((event, at) => el("li", { class: event.kind },
    el("time", { datetime: new Date(event.at_ms).toISOString() }, instant(event.at_ms)),
    el("b", {}, event.kind), el("span", {}, at ? `+${span(event.at_ms - first)}` : ""),
    el("span", { class: "faint" }, SAID.filter(([name]) => event[name] !== undefined).map(([name, title]) => `${title} ${event[name]}`).join(" · "))));
  const note = life.refusal ? `Its life is not shown: ${life.refusal.cause} ${life.refusal.remedy}`
    : life.isWhole ? null : "The journal goes on; only its first part was looked through.";
  return el("section", { class: "panel" }, el("h2", {}, "Its life"), el("ol", { class: "life", id: "life" }, ...items),
    note && el("p", { class: "faint" }, note), !note && !items.length && el("p", { class: "faint" }, "The journal has nothing of it."));
}
