// The frame around the pages: routing, the live feed, login, and confirmation dialogs.

import { Live, hasKey, setKey } from "./api.js";
import { clusterPage } from "./cluster.js";
import { controlsPage } from "./controls.js";
import { deadPage } from "./dead.js";
import { agoText, clock, el, field, setText } from "./dom.js";
import { hooksPage } from "./hooks.js";
import { accessPage } from "./access.js";
import { messagePage } from "./message.js";
import { messagesPage } from "./messages.js";
import { pipelinePage } from "./pipeline.js";
import { clear } from "./plots.js";
import { policyPage } from "./policy.js";
import { queuePage } from "./queue.js";
import { queuesPage } from "./queues.js";
import { schedulesPage } from "./schedules.js";

const HISTORY_MAX = 300, NOTICE_MS = 8000, STALE_MS = 4000;
const stale = document.getElementById("stale");
const main = document.getElementById("main"), dialog = document.getElementById("dialog");
const state = document.getElementById("state"), notice = document.getElementById("notice"), leave = document.getElementById("leave");
const clusterTab = document.querySelector("nav a[data-page=cluster]");
const histories = new Map();
let page = null, fading = null;

const app = {
  live: new Live(),
  watched: null,
  state: null,
  now: Date.now(),
  history: name => histories.get(name) ?? [],
  confirm,
  act,
};

const PAGES = { "": queuesPage, queue: queuePage, message: messagePage, dead: deadPage, pipeline: pipelinePage, cluster: clusterPage, controls: controlsPage, hooks: hooksPage,
  messages: messagesPage, create: app => policyPage(app, null), policy: policyPage, schedules: schedulesPage, access: accessPage };
const TABS = { "": "queues", queue: "queues", create: "queues", policy: "queues", messages: "message", hooks: "controls" };

function route() {
  if (!location.hash.startsWith("#/") && location.hash) return;
  const [name = "", ...rest] = location.hash.slice(2).split("/").map(decoded);
  const build = PAGES[name] ?? missingPage;
  clear(main);
  page = build(app, ...rest);
  document.title = `${page.title} · Fairlane`;
  main.replaceChildren(el("h1", {}, page.title), ...page.nodes);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === (TABS[name] ?? name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showState();
  if (app.live.snapshot) page.update(app.live.snapshot);
}

function missingPage() {
  app.live.watch(app.watched);
  return { title: "No such page", update() {}, nodes: [el("section", { class: "panel" }, el("p", {}, "The address names no page of the dashboard."), el("p", {}, el("a", { href: "#/" }, "All queues")))] };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function take(snapshot) {
  app.now = snapshot.at_ms;
  clusterTab.hidden = !snapshot.node;
  if (snapshot.queue) app.watched = snapshot.queue.name;
  for (const queue of snapshot.queues) {
    const history = histories.get(queue.name) ?? [];
    if (snapshot.isFirst) queue.rates = history.at(-1) ?? queue.rates;  // the first snapshot has no rates yet; keep the last known ones
    else history.push({ ...queue.rates, waiting: queue.waiting, in_flight: queue.leased, at_ms: snapshot.at_ms });
    if (history.length > HISTORY_MAX) history.shift();
    histories.set(queue.name, history);
  }
  page?.update(snapshot);
}

// Numbers without a connection are old: they are grey, and their age is above them. A feed that falls silent counts as lost.
function showState() {
  const { snapshot, heard_ms: heard } = app.live, age = heard === null ? null : Date.now() - heard;
  const isLost = app.state === "lost" || (age !== null && age > STALE_MS);
  if (app.state === null) return;
  state.className = isLost ? "lost" : "live";
  setText(state, isLost ? "reconnecting …" : "live");
  document.body.classList.toggle("stale", isLost);
  stale.hidden = !isLost;
  if (isLost) setText(stale, snapshot ? `No connection to the server. All numbers are from ${agoText(heard, Date.now())} (${clock(snapshot.at_ms).slice(0, 8)} UTC). The page reconnects by itself.` : "No connection to the server. The page reconnects by itself.");
}

function showError(error) {
  notice.replaceChildren(el("b", {}, error.cause ?? String(error)), " ", error.remedy ?? "");
  notice.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { notice.hidden = true; }, NOTICE_MS);
}

// Runs an action and shows the error if it fails.
async function act(work, { isSilent = false } = {}) {
  try {
    await work();
    return true;
  } catch (error) {
    if (error.status === 401) logIn(error);
    else if (!(isSilent && error.status === 0)) showError(error);
    return false;
  }
}

// Asks for confirmation in a dialog, optionally with an input. Escape cancels.
function confirm(question, details, input = null, { word = "Confirm", isDangerous = false } = {}) {
  return new Promise(resolve => {
    const form = el("form", { method: "dialog", onsubmit: () => { dialog.returnValue = "yes"; } },
      el("h2", { id: "dialog-title" }, question), el("p", {}, details), input && el("p", {}, input),
      el("p", { class: "actions" }, el("button", { value: "yes", class: isDangerous ? "strong danger" : "strong", id: "yes" }, word),
        el("button", { type: "button", id: "no", onclick: () => dialog.close("no") }, "Cancel")));
    dialog.replaceChildren(form);
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}

function logIn(error) {
  app.live.stop();
  if (document.getElementById("key")) return;
  setKey(null);
  leave.hidden = true;
  const input = el("input", { id: "key", type: "password", required: true, autocomplete: "off" });
  const form = el("form", { class: "panel login", onsubmit: event => {
    event.preventDefault();
    setKey(input.value.trim());
    begin();
  } }, el("h1", {}, "Log in"), el("p", {}, "This server requires an API key. The key stays in this tab and is forgotten when you close it."),
  error.code === "unauthenticated" && error.hadKey ? el("p", { role: "alert", class: "wrong" }, error.cause) : null, field("API key", input), el("button", {}, "Log in"));
  main.replaceChildren(form);
  page = null;
  app.state = null;
  stale.hidden = true;
  document.body.classList.remove("stale");
  setText(state, "not logged in");
  input.focus();
}

function refused(error) {
  if (error.status === 401) { error.hadKey = hasKey(); logIn(error); return; }
  if ([404, 409].includes(error.status) && !location.hash.startsWith("#/queue/")) {  // the watched queue was deleted or split; other queues remain
    app.watched = null;
    app.live.watch(null);
    return;
  }
  main.replaceChildren(el("section", { class: "panel", role: "alert" }, el("h1", {}, { 403: "Not allowed", 409: "Split into partitions" }[error.status] ?? "Not found"),
    el("p", {}, error.cause), el("p", { class: "faint" }, error.remedy)));
  page = null;
}

function begin() {
  leave.hidden = !hasKey();
  route();
}

app.live.addEventListener("snapshot", event => take(event.detail));
app.live.addEventListener("state", event => { app.state = event.detail; showState(); });
setInterval(showState, 1000);
app.live.addEventListener("refused", event => refused(event.detail));
leave.addEventListener("click", () => { setKey(null); location.hash = "#/"; location.reload(); });
document.getElementById("skip").addEventListener("click", event => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); });
begin();
