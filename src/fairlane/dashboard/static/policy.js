// Create a queue, or edit the policy of one. What the fields mean comes from the API description.

import { call, queueOf } from "./api.js";
import { apiDescription, docsOf } from "./description.js";
import { el, field, setText } from "./dom.js";
import { durationInput, durationText, milliseconds } from "./durations.js";

// The fields that most queues need, in groups: [name, label, kind]. All others are in the JSON below them.
const GROUPS = [
  ["Delivery", [["visibility_timeout_ms", "Visibility timeout", "duration"], ["order", "Order", ["relaxed", "strict"]], ["deadline_ms", "Deadline", "duration"], ["deadline_action", "After the deadline", ["drop", "dlq"]]]],
  ["Retries", [["max_attempts", "Maximum attempts", "count"], ["backoff_ms", "Backoff", "duration"], ["backoff_max_ms", "Longest backoff", "duration"], ["dead_letter_queue", "Dead-letter queue", "text"]]],
  ["Fairness", [["fairness_key_from", "Fairness key from", "text"], ["key_cap", "Cap for each tenant", "count"], ["key_rate", "Rate for each tenant (per second)", "number"], ["in_flight_max", "In flight at once, in all", "count"]]],
  ["Limits", [["waiting_max", "Messages in the queue", "count"], ["key_waiting_max", "Messages of one key", "count"], ["backpressure", "When a limit is reached", ["reject", "wait", "drop_oldest", "drop_newest"]], ["result_ttl_ms", "Keep results for", "duration"]]],
];
const NAMED = new Set(GROUPS.flatMap(([, fields]) => fields.map(([name]) => name)));
const HOOKS = new Set(["on_enqueue", "on_failure"]);  // they have a page of their own

const READERS = {
  duration: text => milliseconds(text), count: text => Number.parseInt(text, 10), number: text => Number(text),
  text: text => text.startsWith("[") ? JSON.parse(text) : text,
};

function inputOf(name, kind, value) {
  const id = `policy-${name}`;
  if (Array.isArray(kind)) {
    const options = kind.includes(value) ? kind : [value, ...kind];
    return el("select", { id }, ...options.map(each => el("option", { value: each, selected: each === value }, each)));
  }
  if (kind === "duration") return durationInput({ id, value: durationText(value), placeholder: "none" });
  const text = value === null ? "" : Array.isArray(value) ? JSON.stringify(value) : String(value);
  return el("input", { id, value: text, autocomplete: "off", placeholder: "none", ...(kind === "text" ? {} : { type: "number", min: 0, step: kind === "count" ? 1 : "any" }) });
}

function full(label) {
  label.classList.add("full");
  return label;
}

export function policyPage(app, queue) {
  const name = queue === null ? null : queueOf(queue), isNew = name === null;
  const place = el("div", {}, el("p", { class: "faint" }, "Loading …"));
  app.live.watch(app.watched);
  load();

  async function load() {
    await app.act(async () => {
      const api = await apiDescription(), schema = api.components.schemas.QueuePolicy;
      const defaults = Object.fromEntries(Object.entries(schema.properties).map(([field_, part]) => [field_, part.default ?? null]));
      const policy = isNew ? defaults : (await call("queue/stats", { queue: name })).policy;
      place.replaceChildren(form(schema, policy, defaults));
    });
  }

  function form(schema, policy, defaults) {
    const docs = docsOf(schema), inputs = new Map(), title = el("input", { id: "queue-name", required: true, autocomplete: "off", value: name ?? "", disabled: !isNew });
    const groups = GROUPS.map(([heading, fields]) => el("fieldset", {}, el("legend", {}, heading), ...fields.filter(([each]) => each in schema.properties).map(([each, label, kind]) => {
      const kinds = Array.isArray(kind) ? schema.properties[each].enum ?? kind : kind, input = inputOf(each, kinds, policy[each]);
      inputs.set(each, [kinds, input]);
      input.setAttribute("aria-describedby", `hint-${each}`);
      return el("div", { class: "explained" }, field(label, input), el("p", { class: "faint", id: `hint-${each}` }, docs[each] ?? ""));
    })));
    const others = Object.fromEntries(Object.entries(policy).filter(([each, value]) => !NAMED.has(each) && !HOOKS.has(each) && JSON.stringify(value) !== JSON.stringify(defaults[each])));
    const more = el("textarea", { id: "policy-more", class: "few", spellcheck: "false", value: JSON.stringify(others, null, 2) });
    const wrong = el("p", { role: "alert", class: "wrong", hidden: true });

    function changes() {
      const found = {};
      for (const [each, [kind, input]] of inputs) {
        const value = input.value.trim() === "" ? null : Array.isArray(kind) ? input.value : READERS[kind](input.value.trim());
        if (JSON.stringify(value) !== JSON.stringify(policy[each])) found[each] = value ?? defaults[each];
      }
      const given = JSON.parse(more.value || "{}");
      for (const each of Object.keys(others)) if (!(each in given)) found[each] = defaults[each];
      for (const [each, value] of Object.entries(given)) if (JSON.stringify(value) !== JSON.stringify(policy[each])) found[each] = value;
      return found;
    }

    async function save(event) {
      event.preventDefault();
      wrong.hidden = true;
      try {
        const found = changes();
        await (isNew ? call("queues/create", { queue: title.value.trim(), policy: found }) : call("queues/update", { queue: name, policy: found }));
        location.hash = `#/queue/${encodeURIComponent(isNew ? title.value.trim() : name)}`;
      } catch (error) {
        if (error.status === 401) { await app.act(() => { throw error; }); return; }
        wrong.hidden = false;
        setText(wrong, error instanceof SyntaxError ? `The other fields are not valid JSON: ${error.message}` : `${error.cause} ${error.remedy ?? ""}`);
        wrong.scrollIntoView({ block: "nearest" });
      }
    }

    return el("form", { class: "panel", onsubmit: save }, field("Name", title), ...groups,
      el("fieldset", {}, el("legend", {}, "Other fields, as JSON"), full(field("Policy fields that are not the default", more)), el("p", { class: "faint" }, "Weights, caps, sources of terms and journal retention, for example {\"weights\": {\"acme\": 3}}. A field that you remove returns to its default.")),
      wrong, el("p", { class: "actions" }, el("button", { class: "strong", id: "save" }, isNew ? "Create queue" : "Save policy"), el("a", { href: isNew ? "#/" : `#/queue/${encodeURIComponent(name)}` }, "Cancel")));
  }

  return { title: isNew ? "Create queue" : `Policy of ${name}`, nodes: [place], update() {} };
}
