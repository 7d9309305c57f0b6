// The nodes of a cluster, what each of them owns, where queues shall go, and the partitions of those that are split.

import { call, get } from "./api.js";
import { Table, el, number, once, rate, setText, span } from "./dom.js";

export function clusterPage(app) {
  let names = [], isLoading = false;
  const state = el("p", { id: "cluster-state", role: "status" }, "Looking …");
  const nodes = new Table("Nodes", [
    { title: "node", class: "name", text: each => each.name },
    { title: "state", class: "why", fill: (cell, each) => {
      setText(cell, each.is_live ? each.is_draining ? "draining" : "live" : `silent for ${span(each.silent_ms)}`);
      cell.classList.toggle("held", !each.is_live);
    } },
    { title: "groups", class: "number", text: each => number(Object.keys(each.groups).length) },
    { title: "records /s", class: "number", hint: "What it writes to its journals.", text: each => rate(Object.values(each.groups).reduce((sum, load) => sum + load, 0)) },
    { title: "takeovers", class: "number", hint: "Groups that it took over from nodes that had died.", text: each => number(each.takeovers) },
    { title: "address", class: "minor", text: each => each.address },
    { title: "controls", fill: (cell, each) => setText(once(cell, () =>
      el("button", { class: "quiet", onclick: event => drain(event.target.closest("tr").item) })), each.is_draining ? `Use ${each.name} again` : `Drain ${each.name}`) },
  ]);
  const groups = new Table("Groups of queues", [
    { title: "group", class: "name", text: each => each.name },
    { title: "queues", text: each => each.queues.join(", ") },
    { title: "owner", class: "why", fill: where },
    { title: "moves", class: "number", text: each => number(each.moves) },
    { title: "stays", class: "minor", hint: "Moved by hand, so it is left there.", text: each => each.is_pinned ? "yes" : "" },
    { title: "controls", fill: (cell, each) => setText(once(cell, () =>
      el("button", { class: "quiet", onclick: event => move(event.target.closest("tr").item) })), `Move ${each.name}`) },
  ]);

  const partitions = new Table("Partitions of queues", [
    { title: "queue", class: "name", text: each => each.queue },
    { title: "partition", text: each => each.name },
    { title: "owner", class: "why", fill: where },
    { title: "new messages", class: "minor", hint: "Partitions that take none are emptied by and by.", text: each => each.isTaking ? "takes" : "takes none" },
  ]);
  const splits = el("section", { class: "panel", id: "splits", hidden: true }, el("h2", {}, "Split queues"), partitions.node);

  function where(cell, each) {
    setText(cell, each.owner ?? `on its way to ${each.home ?? "any node"}`);
    cell.classList.toggle("held", !each.owner);
  }

  async function drain(node) {
    const told = node.is_draining ? "It may own queues again." : "Its queues go to other nodes, one after the other; messages and leases go with them.";
    if (await app.confirm(node.is_draining ? `Use node ${node.name} again?` : `Drain node ${node.name}?`, told))
      await app.act(() => call("cluster/drain", { node: node.name, is_draining: !node.is_draining }));
  }

  async function move(group) {
    const choice = el("select", { "aria-label": "Node" }, ...names.filter(name => name !== group.owner).map(name => el("option", { value: name }, name)));
    if (await app.confirm(`Move ${group.name}?`, "To which node? It stays there while that node lives; messages and leases go with it.", choice))
      await app.act(() => call("cluster/move", { queue: group.named, node: choice.value }));
  }

  async function load() {
    if (isLoading) return;
    isLoading = true;
    await app.act(async () => {
      const found = await get("cluster");
      const live = found.nodes.filter(node => node.is_live);
      names = live.map(node => node.name);
      const moving = found.groups.filter(group => !group.owner).length;
      setText(state, `${number(live.length)} of ${number(found.nodes.length)} nodes live, as node ${found.node} sees it${moving ? `; ${number(moving)} groups are on their way` : ""}.`);
      nodes.update(found.nodes, each => each.name);
      // Of a queue that is split the plain name means all partitions, of which only the first is in its group.
      groups.update(found.groups.map(group => ({ ...group, named: found.splits[group.queues[0]] ? `${group.queues[0]}~0` : group.queues[0] })), each => each.name);
      partitions.update(partitionsOf(found), each => each.name);
      splits.hidden = !Object.keys(found.splits).length;
    }, { isSilent: true });
    isLoading = false;
  }

  app.live.watch(null);
  load();
  return {
    title: "Cluster",
    nodes: [state, el("section", { class: "panel" }, el("h2", {}, "Nodes"), nodes.node), el("section", { class: "panel" }, el("h2", {}, "Groups of queues"), groups.node), splits],
    update: load,
  };
}

function partitionsOf(found) {
  const groupOf = new Map(found.groups.flatMap(group => group.queues.map(queue => [queue, group])));
  return Object.entries(found.splits).flatMap(([queue, split]) => Array.from({ length: split.made }, (_, at) => {
    const { owner, home } = groupOf.get(at ? `${queue}~${at}` : queue) ?? {};
    return { queue, name: `${queue}~${at}`, owner, home, isTaking: at < split.partitions };
  }));
}
