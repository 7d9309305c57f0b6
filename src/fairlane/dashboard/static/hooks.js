// The hooks of a queue: view, edit, dry run on sample messages, and set.

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
  const name = queueOf(watched);  // partitions have the hooks of their queue
  let policy = null;
  const which = el("select", { id: "hook", onchange: () => show() }, ...Object.keys(EMPTY).map(hook => el("option", { value: hook }, hook)));
  const script = el("textarea", { id: "script", spellcheck: "false", autocomplete: "off" });
  const samples = el("textarea", { id: "samples", class: "few", spellcheck: "false", autocomplete: "off" });
  const state = el("p", { class: "faint", id: "hook-state" });
  const counted = el("p", { class: "faint" });
  const trials = new Table("Result for each sample", [
    { title: "sample", class: "name", text: each => each.sample },
    { title: "result", class: "why", text: each => each.answer },
    { title: "time", class: "number", text: each => each.elapsed },
  ]);
  const tried = el("section", { class: "panel", hidden: true }, el("h2", {}, "Dry run"), trials.node);

  function show() {
    const hook = which.value, set = policy?.[hook];
    script.value = set ?? EMPTY[hook];
    samples.value = SAMPLE[hook];
    setText(state, set ? `Current ${hook} hook of ${name}.` : `${name} has no ${hook} hook. This is a template; nothing changes until you set it.`);
    tried.hidden = true;
  }

  async function load() {
    await app.act(async () => {
      policy = (await call("queue/stats", { queue: name })).policy;
      show();
      const counts = await call("queues/hook/statistics", { queue: name });
      const fault = counts.last_fault ? ` Last fault: ${counts.last_fault}` : "";
      setText(counted, `Since the server started: ${number(counts.calls)} calls, ${number(counts.faults)} faults, ${number(counts.bypassed)} bypassed while the circuit breaker was open${counts.is_open ? ` (open now, by ${counts.open_by})` : ""}, ${number(Math.round(counts.elapsed_us / 1000))} ms of script time.${fault}`);
    });
  }

  async function take() {
    await app.act(async () => {
      const { messages } = await call("queue/peek", { queue: name, count: TAKEN, with_body: true });
      const lines = messages.map(each => JSON.stringify(which.value === "on_enqueue"
        ? { headers: each.headers ?? {}, payload_size: each.size }
        : { headers: each.headers ?? {}, attempts: Math.max(1, each.attempts), error: each.errors.at(-1)?.error ?? "" }));
      if (lines.length) samples.value = lines.join("\n");
      else setText(state, `${name} has no messages to load as samples.`);
    });
  }

  async function dryRun() {
    const found = [];
    const isDone = await app.act(async () => {
      for (const [at, line] of samples.value.split("\n").filter(each => each.trim()).entries()) {
        const result = await call("queues/hook/try", { queue: name, hook: which.value, script: script.value, ...parsed(line) });
        found.push({ at, sample: line.trim(), answer: result.fault ? `fault: ${result.fault}` : resultText(result.answer), elapsed: `${number(result.elapsed_us)} µs` });
      }
    });
    tried.hidden = !isDone;
    trials.update(found, each => each.at);
  }

  async function set(text) {
    const hook = which.value;
    const details = text ? "The hook applies to new messages. Waiting messages keep their terms." : "The hook no longer runs. Waiting messages keep their terms.";
    if (!await app.confirm(`${text ? "Set" : "Remove"} ${hook} of ${name}?`, details)) return;
    await app.act(async () => { await call("queues/update", { queue: name, policy: { [hook]: text } }); await load(); });
  }

  app.live.watch(watched);
  load();
  const buttons = el("p", { class: "actions" }, el("button", { id: "dry-run", onclick: dryRun }, "Dry run"), el("button", { id: "take", class: "quiet", onclick: take }, "Load samples from the queue"),
    el("button", { id: "set-hook", onclick: () => set(script.value) }, "Set hook"), el("button", { id: "remove-hook", class: "quiet", onclick: () => set(null) }, "Remove hook"));
  return { title: `Hooks of ${name}`, update() {}, nodes: [
    el("section", { class: "panel" }, el("div", { class: "choices" }, field("Hook", which)), state, full("Lua script", script), full("Sample messages, one JSON object per line", samples), buttons, counted), tried] };
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
    throw Object.assign(new Error(line), { cause: `Sample is not a JSON object: ${line.slice(0, 80)}`, remedy: "Write one JSON object per line." });
  }
  return sample;
}

function resultText(answer) {
  if (!answer) return "no result: the message keeps its own terms";
  const parts = Object.entries(answer).filter(([name, value]) => name !== "type" && value !== null);
  return parts.map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ") || "no result: the queue's policy applies";
}
