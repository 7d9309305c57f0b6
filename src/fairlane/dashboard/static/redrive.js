// Redrives of one dead-letter queue: by filter, as a dry run or for real, with their progress.

import { call } from "./api.js";
import { Table, ago, el, field, keyText, number, once, setText } from "./dom.js";

export class Redrive {
  constructor(app, ondelete) {
    Object.assign(this, { app, dlq: null, redrives: [], wanted: {} });
    this.progress = el("span", { class: "faint", role: "status" });
    this.which = el("p", { id: "which" }, "All dead letters of the queue.");
    this.rate = el("input", { type: "number", min: "0", step: "any", placeholder: "no limit", id: "rate" });
    this.count = el("input", { type: "number", min: "1", placeholder: "all", id: "most" });
    this.table = new Table("Redrives", [
      { title: "started", class: "name", fill: (cell, each) => ago(cell, each.started_ms, app.now) },
      { title: "kind", text: each => each.is_dry_run ? "dry run" : "redrive" },
      { title: "status", text: each => each.error ? `${each.status}: ${each.error}` : each.status },
      { title: "scanned", class: "number", text: each => `${number(each.scanned)} of ${number(each.total)}` },
      { title: "matched", class: "number", text: each => number(each.matched) },
      { title: "moved", class: "number", text: each => number(each.moved) },
      { title: "controls", fill: (cell, each) => {
        const stop = once(cell, () => el("button", { class: "quiet", onclick: event => this.stop(event.target.closest("tr").item) }, "Stop"));
        stop.hidden = each.status !== "running";
      } },
    ], { empty: "No redrive has run lately." });
    this.node = el("section", { class: "panel" }, el("h2", {}, "Redrive or delete by filter"), this.which,
      el("div", { class: "choices" }, field("Messages per second", this.rate), field("Maximum count", this.count),
        el("button", { id: "dry", onclick: () => this.start(true) }, "Dry run"), el("button", { id: "redrive", onclick: () => this.start(false) }, "Redrive"),
        el("button", { id: "delete-matching", class: "danger", onclick: ondelete }, "Delete"), this.progress),
      this.table.node);
  }

  choose(group, filters) {
    this.wanted = { ...filters, ...(group && { reason: group.reason, ...(group.error && { error: group.error }) }) };
    const { fairness_key: key, reason, error } = this.wanted;
    const parts = [key && `with key ${keyText(key)}`, reason && `with reason ${reason}`, error && `with error: ${error}`].filter(Boolean);
    setText(this.which, parts.length ? `Dead letters ${parts.join(", ")}` : "All dead letters of the queue.");
  }

  async start(isDryRun) {
    const request = { queue: this.dlq, wanted: this.wanted, is_dry_run: isDryRun };
    if (this.rate.value) request.rate = Number(this.rate.value);
    if (this.count.value) request.count = Number(this.count.value);
    if (!isDryRun && !await this.app.confirm("Redrive dead letters?", `${this.which.textContent} They return to their queue, and their attempts start at 0.`)) return;
    await this.app.act(async () => { await call("queues/redrive", request); await this.list(); });
  }

  async stop(redrive) {
    await this.app.act(async () => { await call("queues/redrive/stop", { id: redrive.id }); await this.list(); });
  }

  async list() {
    await this.app.act(async () => {
      this.redrives = (await call("queues/redrive/list")).redrives.filter(each => each.queue === this.dlq).reverse();
      this.table.update(this.redrives, each => each.id);
    }, { isSilent: true });
  }

  look() {
    if (this.redrives.some(each => each.status === "running")) this.list();
  }
}
