// All queues, those that hurt first, and a closer look at the worst of them.

import { sparkline } from "./charts.js";
import { Table, el, number, once, rate, setText, span } from "./dom.js";
import { Keys } from "./keys.js";

const LITTLE = 10, PATIENCE = 3, CLEARLY = 1.1;
const isDlq = name => name.endsWith(".dlq");

// What hurts in a queue, in words, and how much.
export function pains(queue, now) {
  const found = [], age = queue.waiting && queue.oldest_ms ? Math.max(0, now - queue.oldest_ms) : 0;
  const isIdle = queue.waiting && !queue.consumers && !queue.waiters && !queue.rates.leased;
  const isBehind = queue.waiting > LITTLE && queue.rates.enqueued > 1.1 * queue.rates.leased;
  if (queue.is_paused) found.push("paused");
  else if (isIdle) found.push("nobody consumes");
  else if (isBehind) found.push("falling behind");
  if (queue.paused_keys) found.push(`${queue.paused_keys} keys paused`);
  if (queue.rates.failed > 0) found.push("failing");
  if (queue.dead) found.push("dead letters");
  const worse = queue.is_paused || isIdle || isBehind ? 1.5 : 1;
  return { words: found, hurt: worse * Math.log1p(queue.waiting) * Math.log1p(age / 1000) + found.length + Math.log1p(queue.dead) };
}

export function queuesPage(app) {
  const table = new Table("Queues", [
    { title: "queue", class: "name", fill: (cell, queue) => {
      const link = once(cell, () => el("a", { href: `#/queue/${encodeURIComponent(queue.name)}` }));
      setText(link, queue.name);
    } },
    { title: "what hurts", class: "why", fill: (cell, queue) => {
      setText(cell, queue.pains.words.join(", ") || "nothing");
      cell.classList.toggle("held", queue.pains.words.length > 0);
    } },
    { title: "waiting", class: "number", text: queue => number(queue.waiting) },
    { title: "in flight", class: "number minor", text: queue => number(queue.leased) },
    { title: "oldest", class: "number", text: queue => queue.oldest_ms ? span(Math.max(0, app.now - queue.oldest_ms)) : "–" },
    { title: "in /s", class: "number minor", text: queue => rate(queue.rates.enqueued) },
    { title: "out /s", class: "number minor", text: queue => rate(queue.rates.leased) },
    { title: "acked /s", class: "number minor", text: queue => rate(queue.rates.acked) },
    { title: "failed /s", class: "number minor", text: queue => rate(queue.rates.failed) },
    { title: "dead", class: "number", fill: (cell, queue) => {
      const link = once(cell, () => el("a", { href: `#/dead/${encodeURIComponent(queue.name)}` }));
      setText(link, number(queue.dead));
    } },
    { title: "waiting, last minute", class: "minor", fill: (cell, queue) =>
      sparkline(cell, app.history(queue.name).slice(-60).map(each => each.waiting), `waiting now ${queue.waiting}`) },
  ]);
  const keys = new Keys({ rows: 8 });
  const worst = el("a", {});
  const closer = el("section", { class: "panel", hidden: true }, el("h2", {}, "Who is noisy, who waits, and why, in ", worst), keys.node);
  let watched = null, latest = null, overtaken = 0;

  // Looks more closely at the queue that hurts most, once it has for a while, and unless somebody is at work there.
  function follow(queues) {
    const first = queues[0], current = queues.find(queue => queue.name === watched);
    const isWorse = current && first.pains.hurt > CLEARLY * current.pains.hurt && !closer.contains(document.activeElement);
    overtaken = isWorse ? overtaken + 1 : 0;
    if (current && overtaken < PATIENCE) return;
    overtaken = 0;
    watched = first.name;
    app.live.watch(watched);
  }

  function update(picture) {
    const queues = picture.queues.filter(queue => !isDlq(queue.name));
    for (const queue of queues) queue.pains = pains(queue, app.now);
    queues.sort((one, other) => other.pains.hurt - one.pains.hurt || one.name.localeCompare(other.name));
    table.update(queues, queue => queue.name);
    if (queues.length) follow(queues);
    const queue = queues.find(each => each.name === watched);
    latest = picture.queue ?? latest;
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
