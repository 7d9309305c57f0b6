// The nodes of a cluster, the groups they own, moves and drains, and the partitions of split queues.

import { call, get } from "./api.js";
import { Table, el, number, once, rate, setText, span } from "./dom.js";

export function clusterPage(app) {
  let names = [], isLoading = false;
  const state = el("p", { id: "cluster-state", role: "status" }, "Loading …");
  const nodes = new Table("Nodes", [
    { title: "node", class: "name", text: each => each.name },
    { title: "state", class: "why", fill: (cell, each) => {
      setText(cell, each.is_live ? each.is_draining ? "draining" : "alive" : `no heartbeat for ${span(each.silent_ms)}`);
      cell.classList.toggle("held", !each.is_live);
    } },
    { title: "groups", class: "number", text: each => number(Object.keys(each.groups).length) },
    { title: "records /s", class: "number", hint: "Journal records written per second.", text: each => rate(Object.values(each.groups).reduce((sum, load) => sum + load, 0)) },
    { title: "takeovers", class: "number", hint: "Groups taken over from nodes that died.", text: each => number(each.takeovers) },
    { title: "address", class: "minor", text: each => each.address },
    { title: "controls", fill: (cell, each) => setText(once(cell, () =>
      el("button", { class: "quiet", onclick: event => drain(event.target.closest("tr").item) })), each.is_draining ? `Stop draining ${each.name}` : `Drain ${each.name}`) },
  ]);
  const groups = new Table("Groups", [
    { title: "group", class: "name", text: each => each.name },
    { title: "queues", text: each => each.queues.join(", ") },
    { title: "owner", class: "why", fill: where },
    { title: "moves", class: "number", text: each => number(each.moves) },
    { title: "pinned", class: "minor", hint: "Moved manually, so the cluster leaves it there.", text: each => each.is_pinned ? "yes" : "" },
    { title: "controls", fill: (cell, each) => setText(once(cell, () =>
      el("button", { class: "quiet", onclick: event => move(event.target.closest("tr").item) })), `Move ${each.name}`) },
  ]);

  const partitions = new Table("Partitions", [
    { title: "queue", class: "name", text: each => each.queue },
    { title: "partition", text: each => each.name },
    { title: "owner", class: "why", fill: where },
    { title: "new messages", class: "minor", hint: "Partitions that accept no new messages are being emptied.", text: each => each.isAccepting ? "accepted" : "not accepted" },
  ]);
  const splits = el("section", { class: "panel", id: "splits", hidden: true }, el("h2", {}, "Split queues"), partitions.node);

  function where(cell, each) {
    setText(cell, each.owner ?? `moving to ${each.home ?? "any node"}`);
    cell.classList.toggle("held", !each.owner);
  }

  async function drain(node) {
    const details = node.is_draining ? "The node may own queues again." : "Its queues move to other nodes one by one, with their messages and leases.";
    if (await app.confirm(node.is_draining ? `Stop draining node ${node.name}?` : `Drain node ${node.name}?`, details))
      await app.act(() => call("cluster/drain", { node: node.name, is_draining: !node.is_draining }));
  }

  async function move(group) {
    const choice = el("select", { "aria-label": "Node" }, ...names.filter(name => name !== group.owner).map(name => el("option", { value: name }, name)));
    if (await app.confirm(`Move ${group.name}?`, "Choose the node. The group stays there while that node is alive. Messages and leases move with it.", choice))
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
      setText(state, `${number(live.length)} of ${number(found.nodes.length)} nodes alive, as seen by node ${found.node}${moving ? `; ${number(moving)} groups are moving` : ""}.`);
      nodes.update(found.nodes, each => each.name);
      // The plain name of a split queue means all partitions, but only the first of them is in this group.
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
    return { queue, name: `${queue}~${at}`, owner, home, isAccepting: at < split.partitions };
  }));
}
