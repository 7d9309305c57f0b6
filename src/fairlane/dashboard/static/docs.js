// The documentation of the API, made from the description that the server derives from its verbs.

import { hasKey, send, setKey } from "./api.js";
import { apiDescription, MEANINGS, docsOf, meaningOf, resolved } from "./description.js";
import { Table, command, el, field, setText } from "./dom.js";

const ORDER = ["Messages", "Leases", "Subscriptions", "Status", "Dead letters", "Queues", "Schedules", "Config", "Uploads", "Batches", "Journal", "API keys", "Cluster", "Pages"];
const ABOUT = {
  Messages: "Enqueue, look at and cancel messages.", Leases: "Lease messages, and acknowledge or return them.", Subscriptions: "Streams of deliveries and events.",
  Status: "What became of a message, and its result.", "Dead letters": "Move dead letters back to their queues.", Queues: "Create, pause and inspect queues, and set their policies.",
  Schedules: "Enqueue a message again and again.", Config: "Throttles, weights and caps, while the broker runs.", Uploads: "Large payloads, in pieces.", Batches: "Registered consumers and sinks, for data pipelines.",
  Journal: "All that happened, in order.", "API keys": "Create and revoke the secrets that identify callers.", Cluster: "Nodes, moves and partitions.", Pages: "GET: views, metrics, health and history.",
};
const EXAMPLES = {
  queue: "orders", name: "nightly", messages: [{ payload: "aGVsbG8=", fairness_key: "acme" }], ids: ["00000000-0000-8001-8000-000000000000"], id: "00000000-0000-8001-8000-000000000000",
  receipts: [{ id: "00000000-0000-8001-8000-000000000000", token: 1 }], receipt: { id: "00000000-0000-8001-8000-000000000000", token: 1 }, values: { "throttle:smtp:rate": "5" },
  key: "throttle:smtp:rate", grants: [{ right: "produce", queues: "orders" }], spec: { cron: "0 7 * * mon-fri", message: { payload: "aGVsbG8=" } }, hook: "on_enqueue",
  script: "function on_enqueue(msg) return { fairness_key = msg.headers.tenant } end", consumer: "etl", sink: "lake", state: "aGVsbG8=", data: "aGVsbG8=",
};

function typeOf(api, schema, depth = 0) {
  if (!schema) return "any";
  if (schema.anyOf) return schema.anyOf.map(part => typeOf(api, part, depth)).join(" or ");
  if (schema.$ref) { const name = schema.$ref.split("/").pop(); return depth ? name : `${name} object`; }
  if (schema.enum) return schema.enum.map(each => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(api, schema.items ?? schema.prefixItems?.[0], depth + 1)}`;
  return schema.contentEncoding ? `${schema.contentEncoding} text` : schema.type ?? "any";
}

function example(api, schema, name, depth = 0) {
  if (name in EXAMPLES) return EXAMPLES[name];
  const own = resolved(api, schema);
  if (own.enum) return own.enum[0];
  if (own.properties && depth < 4) return Object.fromEntries((own.required ?? []).map(each => [each, example(api, own.properties[each], each, depth + 1)]));
  return { integer: own.minimum ?? 1, number: 1, boolean: false, array: [], object: {}, string: name || "text" }[own.type] ?? null;
}

function fields(api, schema, caption) {
  const own = resolved(api, schema), docs = docsOf(own), required = new Set(own.required ?? []);
  if (!own.properties || !Object.keys(own.properties).length) return null;
  const table = new Table(caption, [
    { title: "field", class: "name", text: each => each.name },
    { title: "type", text: each => typeOf(api, each.schema) },
    { title: "default", class: "why", text: each => required.has(each.name) ? "required" : JSON.stringify(each.schema.default ?? null) },
    { title: "meaning", class: "why", text: each => docs[each.name] ?? MEANINGS[each.name] ?? "" },
  ]);
  table.update(Object.entries(own.properties).map(([name, part]) => ({ name, schema: part })), each => each.name);
  return table.node;
}

// A form that sends the request to this server and shows the answer.
function trial(method, path, body) {
  const id = `try-${path.replaceAll(/\W/g, "-")}`, address = el("input", { id: `${id}-path`, value: path, autocomplete: "off" });
  const input = body === null ? null : el("textarea", { id, class: "few", spellcheck: "false", value: JSON.stringify(body, null, 2) });
  const state = el("p", { role: "status", class: "faint" }), answer = el("pre", { tabindex: "0", hidden: true });
  const run = async event => {
    event.preventDefault();
    setText(state, "Sending …");
    const begun = performance.now(), result = await send(method, address.value, input?.value);
    answer.hidden = false;
    setText(state, `${result.status} ${result.words} in ${Math.round(performance.now() - begun)} ms`);
    setText(answer, result.text);
  };
  return el("form", { onsubmit: run }, el("h3", {}, "Try it"), body === null ? field("Path", address) : full(field("Request", input)),
    el("p", { class: "actions" }, el("button", {}, `Send ${method} to this server`)), state, answer);
}

function full(label) {
  label.classList.add("full");
  return label;
}

function details(api, method, path, operation) {
  const asked = operation.requestBody?.content["application/json"]?.schema, answered = Object.values(operation.responses["200"]?.content ?? {})[0]?.schema;
  const body = asked ? example(api, asked, "") : null, key = hasKey() ? " -H 'Authorization: Bearer …'" : "";
  const curl = asked ? `curl ${location.origin}${path}${key} -d '${JSON.stringify(body)}'` : `curl ${location.origin}${path}${key}`;
  const words = asked ? meaningOf(resolved(api, asked)) : [operation.summary], answerFields = answered && fields(api, answered, `Answer of ${path}`);
  const isStream = !Object.keys(operation.responses["200"]?.content ?? {}).some(each => each === "application/json" || each === "text/plain");
  return [...words.slice(words.length > 1 ? 1 : 0).map(each => el("p", {}, each)), el("p", { class: "faint" }, operation.description ?? ""),
    operation.parameters?.length ? el("p", {}, `Parameters: ${operation.parameters.map(each => each.name).join(", ")}.`) : null,
    asked ? el("h3", {}, "Request") : null, asked ? fields(api, asked, `Request of ${path}`) ?? el("p", { class: "faint" }, "It has no fields.") : null,
    el("h3", {}, "Example"), command(curl), answerFields ? el("h3", {}, "Answer") : null, answerFields,
    isStream ? null : trial(method, path, body)].filter(Boolean);
}

function card(api, path, method, operation) {
  const node = el("details", { class: "operation", id: operation.operationId }, el("summary", {}, el("code", { class: method }, method.toUpperCase()), " ", el("code", {}, path), el("span", {}, operation.summary.replaceAll("`", ""))));
  node.addEventListener("toggle", () => { if (node.open && node.children.length === 1) node.append(...details(api, method.toUpperCase(), path, operation)); });
  node.words = `${path} ${operation.operationId} ${operation.summary}`.toLowerCase();
  return node;
}

function keyForm() {
  const input = el("input", { id: "api-key", type: "password", autocomplete: "off", placeholder: hasKey() ? "in use for this tab" : "not needed if authentication is disabled" });
  return el("form", { class: "choices", onsubmit: event => { event.preventDefault(); setKey(input.value.trim()); input.value = ""; input.placeholder = hasKey() ? "in use for this tab" : "none"; } },
    field("API key for this tab", input), el("button", {}, "Use"));
}

function show(api) {
  const groups = new Map(ORDER.map(name => [name, []]));
  for (const [path, methods] of Object.entries(api.paths)) for (const [method, operation] of Object.entries(methods)) {
    const name = operation.tags[0];
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(card(api, path, method, operation));
  }
  const search = el("input", { id: "filter", type: "search", autocomplete: "off", placeholder: "part of a path or text", oninput: () => {
    const wanted = search.value.trim().toLowerCase();
    for (const section of sections) {
      for (const node of section.querySelectorAll("details.operation")) node.hidden = !node.words.includes(wanted);
      section.hidden = !section.querySelector("details.operation:not([hidden])");
    }
  } });
  const idOf = name => `topic-${name.toLowerCase().replaceAll(" ", "-")}`;
  const sections = [...groups].filter(([, cards]) => cards.length).map(([name, cards]) => el("section", { class: "panel", "aria-labelledby": idOf(name) },
    el("h2", { id: idOf(name) }, name), el("p", { class: "faint" }, ABOUT[name] ?? ""), ...cards));
  const tabs = el("nav", { class: "tabs", "aria-label": "Topics" }, ...[...groups].filter(([, cards]) => cards.length).map(([name]) => el("a", { href: `#${idOf(name)}` }, name)));
  document.getElementById("main").replaceChildren(el("h1", {}, `Fairlane API ${api.info.version}`),
    el("p", {}, "Every verb is a POST of JSON to its path. Bytes are base64. Every error has a code, a cause and a remedy. Repeat an enqueue with a dedup id, so that it counts once."),
    el("div", { class: "choices" }, field("Search", search), keyForm()), tabs, ...sections);
  open();
}

function open() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (place?.matches("details")) place.open = true;
  place?.scrollIntoView();
}

window.addEventListener("hashchange", open);
document.getElementById("skip").addEventListener("click", event => { event.preventDefault(); document.getElementById("main").focus(); });
apiDescription().then(show, error => document.getElementById("main").replaceChildren(el("p", { role: "alert" }, error.cause ?? String(error))));
