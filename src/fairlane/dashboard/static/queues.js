// All queues, those with problems first, and the keys of the most affected one.

import { sparkline } from "./charts.js";
import { Table, el, number, once, rate, setText, span } from "./dom.js";
import { Keys } from "./keys.js";

const BACKLOG_MIN = 10, SNAPSHOTS_MIN = 3, FACTOR_MIN = 1.1;
const isDlq = name => name.endsWith(".dlq");

// Returns the problems of a queue in words, and how severe they are together.
export function problems(queue, now) {
  const found = [], age = queue.waiting && queue.oldest_ms ? Math.max(0, now - queue.oldest_ms) : 0;
  const isIdle = queue.waiting && !queue.consumers && !queue.waiters && !queue.rates.leased;
  const isBehind = queue.waiting > BACKLOG_MIN && queue.rates.enqueued > 1.1 * queue.rates.leased;
  if (queue.is_paused) found.push("paused");
  else if (isIdle) found.push("no consumers");
  else if (isBehind) found.push("backlog growing");
  if (queue.paused_keys) found.push(`${queue.paused_keys} keys paused`);
  if (queue.rates.failed > 0) found.push("attempts failing");
  if (queue.rates.refused > 0) found.push("refusing messages");
  if (queue.dead) found.push("dead letters");
  const factor = queue.is_paused || isIdle || isBehind ? 1.5 : 1;
  return { words: found, severity: factor * Math.log1p(queue.waiting) * Math.log1p(age / 1000) + found.length + Math.log1p(queue.dead) };
}

export function queuesPage(app) {
  const table = new Table("Queues", [
    { title: "queue", class: "name", fill: (cell, queue) => {
      const link = once(cell, () => el("a", { href: `#/queue/${encodeURIComponent(queue.name)}` }));
      setText(link, queue.name);
    } },
    { title: "status", class: "why", fill: (cell, queue) => {
      setText(cell, queue.problems.words.join(", ") || "healthy");
      cell.classList.toggle("held", queue.problems.words.length > 0);
    } },
    { title: "waiting", class: "number", text: queue => number(queue.waiting) },
    { title: "in flight", class: "number minor", text: queue => number(queue.leased) },
    { title: "oldest", class: "number", text: queue => queue.oldest_ms ? span(Math.max(0, app.now - queue.oldest_ms)) : "–" },
    { title: "in /s", class: "number minor", text: queue => rate(queue.rates.enqueued) },
    { title: "refused /s", class: "number minor", text: queue => rate(queue.rates.refused) },
    { title: "out /s", class: "number minor", text: queue => rate(queue.rates.leased) },
    { title: "acked /s", class: "number minor", text: queue => rate(queue.rates.acked) },
    { title: "failed /s", class: "number minor", text: queue => rate(queue.rates.failed) },
    { title: "dead letters", class: "number", fill: (cell, queue) => {
      const link = once(cell, () => el("a", { href: `#/dead/${encodeURIComponent(queue.name)}` }));
      setText(link, number(queue.dead));
    } },
    { title: "waiting, last minute", class: "minor", fill: (cell, queue) =>
      sparkline(cell, app.history(queue.name).slice(-60).map(each => each.waiting), `waiting now ${queue.waiting}`) },
  ]);
  const keys = new Keys({ rows: 8 });
  const worst = el("a", {});
  const closer = el("section", { class: "panel", hidden: true }, el("h2", {}, "Fairness keys of ", worst), keys.node);
  let watched = null, latest = null, overtaken = 0;

  // Watches the most affected queue: switches only after several snapshots, and not while the user works in the panel.
  function follow(queues) {
    const first = queues[0], current = queues.find(queue => queue.name === watched);
    const isWorse = current && first.problems.severity > FACTOR_MIN * current.problems.severity && !closer.contains(document.activeElement);
    overtaken = isWorse ? overtaken + 1 : 0;
    if (current && overtaken < SNAPSHOTS_MIN) return;
    overtaken = 0;
    watched = first.name;
    app.live.watch(watched);
  }

  function update(snapshot) {
    const queues = snapshot.queues.filter(queue => !isDlq(queue.name));
    for (const queue of queues) queue.problems = problems(queue, app.now);
    queues.sort((one, other) => other.problems.severity - one.problems.severity || one.name.localeCompare(other.name));
    table.update(queues, queue => queue.name);
    if (queues.length) follow(queues);
    const queue = queues.find(each => each.name === watched);
    latest = snapshot.queue ?? latest;
    closer.hidden = !queue || latest?.name !== watched;
    if (closer.hidden) return;
    setText(worst, watched);
    worst.href = `#/queue/${encodeURIComponent(watched)}`;
    keys.update(queue, latest);
  }

  app.live.watch(app.watched);
  watched = app.watched;
  return { title: "Queues", nodes: [el("section", { class: "panel short" }, table.node), closer], update };
}
