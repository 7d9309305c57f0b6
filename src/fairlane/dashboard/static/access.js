// API keys: list, create and revoke them.

import { call, hasKey } from "./api.js";
import { Table, ago, command, el, field, once } from "./dom.js";

const RIGHTS = { produce: "Enqueue messages", consume: "Lease and settle messages", observe: "Watch: metrics and read-only views", admin: "Everything" };
const EXPIRIES = { never: null, "in 1 day": 86400000, "in 30 days": 2592000000, "in 90 days": 7776000000, "in 1 year": 31536000000 };

const grantText = grant => `${grant.right} on ${grant.queues === "*" ? "all queues" : grant.queues ?? "all queues"}${grant.keys ? `, keys ${grant.keys.join(", ")}` : ""}${grant.throttles ? `, throttles ${grant.throttles.join(", ")}` : ""}${grant.sinks ? `, sinks ${grant.sinks.join(", ")}` : ""}`;

export function accessPage(app) {
  const table = new Table("API keys", [
    { title: "name", class: "name", text: each => each.name },
    { title: "rights", class: "why", text: each => each.grants.map(grantText).join("; ") },
    { title: "created", fill: (cell, each) => ago(cell, each.created_ms, app.now) },
    { title: "expires", fill: (cell, each) => { if (each.expires_ms) ago(cell, each.expires_ms, app.now); else cell.replaceChildren("never"); } },
    { title: "id", class: "minor id", text: each => each.id },
    { title: "controls", fill: (cell, each) => {
      const button = once(cell, () => el("button", { class: "quiet danger", onclick: event => revoke(event.target.closest("tr").item) }, "Revoke"));
      button.setAttribute("aria-label", `Revoke ${each.name}`);
    } },
  ], { empty: "No API keys." });
  const name = el("input", { id: "key-name", required: true, autocomplete: "off", placeholder: "who uses it" });
  const right = el("select", { id: "key-right" }, ...Object.entries(RIGHTS).map(([each, words]) => el("option", { value: each }, `${each}: ${words}`)));
  const queues = el("input", { id: "key-queues", value: "*", required: true, autocomplete: "off", title: "A name, a prefix followed by a star, or a star for all queues" });
  const tenants = el("input", { id: "key-tenants", autocomplete: "off", placeholder: "any" });
  const expires = el("select", { id: "key-expires" }, ...Object.keys(EXPIRIES).map(each => el("option", { value: each }, each)));
  const form = el("form", { class: "choices", onsubmit: event => { event.preventDefault(); create(); } }, field("Name", name), field("Right", right), field("Queues", queues),
    field("Only these tenants (produce), with commas", tenants), field("Expires", expires), el("button", { id: "create-key" }, "Create API key"));
  const made = el("div", { role: "status" });

  async function create() {
    const only = tenants.value.split(",").map(each => each.trim()).filter(Boolean), after = EXPIRIES[expires.value];
    const grant = { right: right.value, queues: queues.value.trim(), ...(only.length && right.value === "produce" && { keys: only }) };
    await app.act(async () => {
      const { key } = await call("keys/create", { name: name.value.trim(), grants: [grant], ...(after && { expires_ms: app.now + after }) });
      made.replaceChildren(el("section", { class: "panel made" }, el("h2", {}, `API key of ${name.value.trim()}`), el("p", {}, "Copy the API key now. It is shown only once."), command(key)));
      form.reset();
      await load();
    });
  }

  async function revoke(each) {
    const details = "Requests with it are refused from now on, and its streams end.";
    if (await app.confirm(`Revoke the API key of ${each.name}?`, details, null, { word: "Revoke", isDangerous: true })) await app.act(async () => { await call("keys/revoke", { id: each.id }); await load(); });
  }

  async function load() {
    await app.act(async () => table.update((await call("keys/list")).keys, each => each.id));
  }

  app.live.watch(app.watched);
  load();
  const note = hasKey() ? null : el("p", { class: "faint" }, "Authentication is disabled on this server, so no API key is needed. Start it with --auth true to require one.");
  return { title: "API keys", update() {}, nodes: [note, made, el("section", { class: "panel" }, el("h2", {}, "Create an API key"), form), el("section", { class: "panel" }, el("h2", {}, "API keys"), table.node)].filter(Boolean) };
}
