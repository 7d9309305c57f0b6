// The hooks of a queue: looked at, edited, tried on sample messages, and set.

import { call, queueOf } from "./api.js";
import { Table, el, field, number, setText } from "./dom.js";

const TAKEN = 10;
const EMPTY = {
  on_enqueue: "function on_enqueue(msg)\n  return { fairness_key = msg.headers[\"tenant\"] }\nend\n",
  on_failure: "function on_failure(msg)\n  return { action = msg.attempts < 5 and \"retry\" or \"dlq\" }\nend\n",
};
const SAMPLE = {
  on_enqueue: '{"headers": {"tenant": "acme"}, "payload_size": 100}',
  on_failure: '{"headers": {"tenant": "acme"}, "attempts": 1, "error": "no ink"}',
};

export function hooksPage(app, watched) {
  const name = queueOf(watched);  // all partitions have the hooks of their queue
  let policy = null;
  const which = el("select", { id: "hook", onchange: () => show() }, ...Object.keys(EMPTY).map(hook => el("option", { value: hook }, hook)));
  const script = el("textarea", { id: "script", spellcheck: "false", autocomplete: "off" });
  const samples = el("textarea", { id: "samples", class: "few", spellcheck: "false", autocomplete: "off" });
  const state = el("p", { class: "faint", id: "hook-state" });
  const counted = el("p", { class: "faint" });
  const trials = new Table("What the script said of each sample", [
    { title: "sample", class: "name", text: each => each.sample },
    { title: "answer", class: "why", text: each => each.answer },
    { title: "took", class: "number", text: each => each.elapsed },
  ]);
  const tried = el("section", { class: "panel", hidden: true }, el("h2", {}, "Dry run"), trials.node);

  function show() {
    const hook = which.value, set = policy?.[hook];
    script.value = set ?? EMPTY[hook];
    samples.value = SAMPLE[hook];
    setText(state, set ? `This is the ${hook} of ${name}.` : `${name} has no ${hook}. This is one to begin with; nothing is set until you set it.`);
    tried.hidden = true;
  }

  async function load() {
    await app.act(async () => {
      policy = (await call("queue/stats", { queue: name })).policy;
      show();
      const told = await call("queues/hook/statistics", { queue: name });
      const fault = told.last_fault ? ` Last fault: ${told.last_fault}` : "";
      setText(counted, `Since the server was started: ${number(told.calls)} calls, ${number(told.faults)} faults, ${number(told.bypassed)} bypassed while the breaker was open${told.is_open ? ", as it is now" : ""}.${fault}`);
    });
  }

  async function take() {
    await app.act(async () => {
      const { messages } = await call("queue/peek", { queue: name, count: TAKEN, with_body: true });
      const lines = messages.map(each => JSON.stringify(which.value === "on_enqueue"
        ? { headers: each.headers ?? {}, payload_size: each.size }
        : { headers: each.headers ?? {}, attempts: Math.max(1, each.attempts), error: each.errors.at(-1)?.[3] ?? "" }));
      if (lines.length) samples.value = lines.join("\n");
      else setText(state, `${name} has no messages to take as samples.`);
    });
  }

  async function dryRun() {
    const found = [];
    const isDone = await app.act(async () => {
      for (const [at, line] of samples.value.split("\n").filter(each => each.trim()).entries()) {
        const told = await call("queues/hook/try", { queue: name, hook: which.value, script: script.value, ...parsed(line) });
        found.push({ at, sample: line.trim(), answer: told.fault ? `fault: ${told.fault}` : answered(told.answer), elapsed: `${number(told.elapsed_us)} µs` });
      }
    });
    tried.hidden = !isDone;
    trials.update(found, each => each.at);
  }

  async function set(text) {
    const hook = which.value;
    const told = text ? "It is asked from now on. What waits already keeps the answers it was given." : "It is asked no more. What waits already keeps the answers it was given.";
    if (!await app.confirm(`${text ? "Set" : "Remove"} ${hook} of ${name}?`, told)) return;
    await app.act(async () => { await call("queues/update", { queue: name, policy: { [hook]: text } }); await load(); });
  }

  app.live.watch(watched);
  load();
  const buttons = el("p", { class: "actions" }, el("button", { id: "dry-run", onclick: dryRun }, "Dry run"), el("button", { id: "take", class: "quiet", onclick: take }, "Samples from the queue"),
    el("button", { id: "set-hook", onclick: () => set(script.value) }, "Set hook"), el("button", { id: "remove-hook", class: "quiet", onclick: () => set(null) }, "Remove hook"));
  return { title: `Hooks of ${name}`, update() {}, nodes: [
    el("section", { class: "panel" }, el("div", { class: "choices" }, field("Hook", which)), state, full("Script, in Lua", script), full("Sample messages, a line of JSON each", samples), buttons, counted), tried] };
}

function full(title, input) {
  const labelled = field(title, input);
  labelled.classList.add("full");
  return labelled;
}

function parsed(line) {
  let sample = null;
  try {
    sample = JSON.parse(line);
  } catch {
    sample = null;
  }
  if (typeof sample !== "object" || sample === null || Array.isArray(sample)) {
    throw Object.assign(new Error(line), { cause: `A sample is no JSON object: ${line.slice(0, 80)}`, remedy: "Write each on a line of its own." });
  }
  return sample;
}

function answered(answer) {
  if (!answer) return "nothing: the message's own terms hold";
  const said = Object.entries(answer).filter(([name, value]) => name !== "type" && value !== null);
  return said.map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ") || "nothing: the queue's rules hold";
}
