// The data pipeline: its alarms, the freshness of its tables, the progress of journal readers, and its report.

import { get } from "./api.js";
import { Table, command, el, instant, number, setText, span } from "./dom.js";
import { Chart } from "./plots.js";

const LOAD_EVERY = 15;
const SETUP = "mkdir made\nfairlane serve --reports made\nfairlane pipeline run --tables made/tables --once\nfairlane report --tables made/tables --out made/report";
const STATES = {
  not_set: "No pipeline folder is configured. Start the server with --reports FOLDER, then run 'fairlane pipeline run --tables FOLDER/tables' and 'fairlane report --tables FOLDER/tables --out FOLDER/report'.",
  empty: "The pipeline folder is empty. Run 'fairlane pipeline run --tables FOLDER/tables' to fill it.",
};

export function pipelinePage(app, chosen = "") {
  let updates = 0, shown = null, now = Date.now();
  const ago = ms => `${span(Math.max(0, now - ms))} ago`;
  const state = el("p", { id: "pipeline-state", role: "status" }, "Loading …");
  const tables = new Table("Tables", [
    { title: "table", class: "name", text: each => each.name },
    { title: "latest day", text: each => each.newest_day ?? "–" },
    { title: "written", class: "number", text: each => each.changed_ms ? ago(each.changed_ms) : "never" },
    { title: "files", class: "number minor", text: each => number(each.files) },
    { title: "size", class: "number", text: each => `${number(each.size_bytes / 1000)} kB` },
  ]);
  const alarms = new Table("Alarms", [
    { title: "alarm", class: "name", text: each => each.text },
    { title: "queue", text: each => each.queue },
    { title: "since", class: "number", text: each => ago(each.since_ms) },
  ]);
  alarms.emptyText = "No tenant is served too much, no waits have risen, and no error is new.";
  const readers = new Table("Journal readers", [
    { title: "reader", class: "name", text: each => each.name },
    { title: "behind", class: "number", hint: "Journal events that it has not read yet.", text: each => `${number(each.behind)} events` },
    { title: "position", class: "number minor", text: each => number(each.position) },
    { title: "last update", class: "number", text: each => ago(each.at_ms) },
    { title: "state", class: "why", fill: (cell, each) => {
      setText(cell, each.is_passed ? "unread events were trimmed" : each.behind ? "" : "up to date");
      cell.classList.toggle("held", each.is_passed);
    } },
  ]);
  readers.emptyText = "No readers are registered. 'fairlane pipeline run' against this server registers one, and the journal keeps events for it.";
  const made = el("section", { class: "panel", hidden: true }, el("h2", {}, "Tables"), tables.node);
  const wrong = el("section", { class: "panel", hidden: true }, el("h2", {}, "Alarms"), alarms.node);
  const read = el("section", { class: "panel" }, el("h2", {}, "Journal readers"), readers.node);
  const report = el("div", { id: "report" }), sections = el("nav", { class: "tabs", "aria-label": "Sections", hidden: true });
  const overview = el("div", { hidden: chosen !== "" }, wrong, made, read);
  const setup = el("div", { class: "welcome", hidden: true });

  async function load() {
    await app.act(async () => {
      const found = await get("reports");
      now = found.at_ms;
      const pipeline = found.pipeline;
      setup.hidden = Boolean(pipeline) || found.state === "there";
      if (!setup.hidden && !setup.firstChild) setup.append(command(SETUP));
      setText(state, pipeline ? `Run ${number(pipeline.run)}: ${number(pipeline.events)} events up to ${instant(pipeline.horizon_ms)}${pipeline.gaps ? `, with ${number(pipeline.gaps)} gaps` : ""}${pipeline.is_whole ? "." : "; the last run was interrupted, run it again."}`
        : STATES[found.state] ?? "There is a report but no tables.");
      made.hidden = wrong.hidden = !pipeline;
      alarms.update(found.alarms ?? [], each => `${each.kind}:${each.queue}:${each.subject}`);
      tables.update(pipeline?.tables ?? [], each => each.name);
      readers.update(found.readers, each => each.name);
      if (found.report && found.report_ms !== shown) {
        shown = found.report_ms;
        showReport(found.report, ago(found.report_ms));
      }
    }, { isSilent: updates > 0 });
  }

  // One section of the report at a time, each with an address of its own.
  function showReport(page, age) {
    const titles = ["Overview", ...page.sections.map(each => each.title)];
    sections.hidden = false;
    sections.replaceChildren(...titles.map((title, at) => el("a", { href: at ? `#/pipeline/${at}` : "#/pipeline", "aria-current": String(at) === (chosen || "0") ? "page" : null }, title)));
    const own = page.sections[Number(chosen) - 1];
    report.replaceChildren(...(own ? [section(own)] : [findings(page, age)]));
  }

  app.live.watch(app.watched);
  load();
  const update = () => { updates += 1; if (updates % LOAD_EVERY === 0) load(); };
  return { title: "Pipeline", nodes: [state, setup, sections, overview, report], update };
}

function findings(page, age) {
  return el("section", { class: "panel" }, el("h2", {}, `${page.title}, ${page.period}`), el("p", { class: "faint" }, `Written ${age}.`),
    el("ul", { class: "verdicts" }, ...page.findings.map(finding => el("li", { class: "calm" }, finding))));
}

function section(made) {
  const table = new Table(made.title, made.columns.map(([title, unit], at) => ({ title, class: columnOf(at, unit), text: row => row[at] })));
  table.update(made.rows, row => made.rows.indexOf(row));
  return el("section", { class: "panel short" }, el("h2", {}, made.title), el("p", { class: "faint" }, made.meaning), ...made.figures.map(drawn), table.node,
    made.rows_left_off ? el("p", { class: "faint" }, `${number(made.rows_left_off)} more rows are in the CSV and JSON files.`) : null);
}

function columnOf(at, unit) {
  if (at === 0) return "name";
  return unit === "text" || unit === "instant" ? "" : "number";
}

function drawn(figure) {
  const { title, ...layout } = figure.layout;
  const chart = new Chart(plain(title.text), { tall: 340 });
  chart.node.className = "";
  const isMap = figure.data.some(trace => trace.type === "heatmap");
  chart.draw(figure.data.flatMap(asBars), isMap ? { barmode: "group", xaxis: layout.xaxis, yaxis: { title: figure.data[0].colorbar?.title } } : layout);
  return chart.node;
}

// Plotly draws a heat map as an image with an inline style, which the page's Content-Security-Policy forbids.
function asBars(trace) {
  if (trace.type !== "heatmap") return [trace];
  return trace.z.map((row, at) => ({ type: "bar", name: trace.y[at], x: trace.x, y: row }));
}

// Undoes the escaping of text for Plotly, which interprets some HTML.
const plain = text => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
