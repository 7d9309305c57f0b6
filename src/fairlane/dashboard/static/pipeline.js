// What the data pipeline has made: how fresh its tables are, how far readers of the journal are, and its report.

import { get } from "./api.js";
import { Table, el, instant, number, setText, span } from "./dom.js";
import { Chart } from "./plots.js";

const LOOK_EVERY = 15;
const TOLD = {
  not_set: "No folder of the pipeline is named: start the server with --reports FOLDER, and let 'fairlane pipeline run --tables FOLDER/tables' and 'fairlane report --tables FOLDER/tables --out FOLDER/report' write there.",
  empty: "The folder of the pipeline is empty so far: 'fairlane pipeline run --tables FOLDER/tables' fills it.",
};

export function pipelinePage(app) {
  let looks = 0, shown = null, now = Date.now();
  const ago = ms => `${span(Math.max(0, now - ms))} ago`;
  const state = el("p", { id: "pipeline-state", role: "status" }, "Looking …");
  const tables = new Table("Tables of the pipeline", [
    { title: "table", class: "name", text: each => each.name },
    { title: "latest day", text: each => each.newest_day ?? "–" },
    { title: "written", class: "number", text: each => each.changed_ms ? ago(each.changed_ms) : "never" },
    { title: "files", class: "number minor", text: each => number(each.files) },
    { title: "size", class: "number", text: each => `${number(each.size_bytes / 1000)} kB` },
  ]);
  const readers = new Table("Readers of the journal", [
    { title: "reader", class: "name", text: each => each.name },
    { title: "behind", class: "number", hint: "Events of the journal that it has not read.", text: each => `${number(each.behind)} events` },
    { title: "position", class: "number minor", text: each => number(each.position) },
    { title: "last heard of", class: "number", text: each => ago(each.at_ms) },
    { title: "state", class: "why", fill: (cell, each) => {
      setText(cell, each.is_passed ? "some of what it has not read is gone" : each.behind ? "" : "up to date");
      cell.classList.toggle("held", each.is_passed);
    } },
  ]);
  setText(readers.empty, "None is registered. 'fairlane pipeline run' against this server registers one, so that the journal is kept for it.");
  const made = el("section", { class: "panel", hidden: true }, el("h2", {}, "Tables"), tables.node);
  const read = el("section", { class: "panel" }, el("h2", {}, "How far readers of the journal are"), readers.node);
  const report = el("div", { id: "report" });

  async function load() {
    await app.act(async () => {
      const found = await get("reports");
      now = found.at_ms;
      const pipeline = found.pipeline;
      setText(state, pipeline ? `Run ${number(pipeline.run)}: ${number(pipeline.events)} events up to ${instant(pipeline.horizon_ms)}${pipeline.gaps ? `, with ${number(pipeline.gaps)} gaps` : ""}${pipeline.is_whole ? "." : "; it was interrupted, run it again."}`
        : TOLD[found.state] ?? "There is a report, and no tables.");
      made.hidden = !pipeline;
      tables.update(pipeline?.tables ?? [], each => each.name);
      readers.update(found.readers, each => each.name);
      if (found.report && found.report_ms !== shown) {
        shown = found.report_ms;
        report.replaceChildren(...told(found.report, ago(found.report_ms)));
      }
    }, { isSilent: looks > 0 });
  }

  app.live.watch(app.watched);
  load();
  const update = () => { looks += 1; if (looks % LOOK_EVERY === 0) load(); };
  return { title: "Pipeline", nodes: [state, made, read, report], update };
}

function told(page, age) {
  const head = el("section", { class: "panel" }, el("h2", {}, `${page.title}, ${page.period}`), el("p", { class: "faint" }, `Written ${age}.`),
    el("ul", { class: "verdicts" }, ...page.findings.map(finding => el("li", { class: "calm" }, finding))));
  return [head, ...page.sections.map(section)];
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

// Plotly draws a heat map as an image with a style of its own, which the page's Content-Security-Policy does not let it.
function asBars(trace) {
  if (trace.type !== "heatmap") return [trace];
  return trace.z.map((row, at) => ({ type: "bar", name: trace.y[at], x: trace.x, y: row }));
}

// What Plotly reads of HTML, as text.
const plain = text => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
