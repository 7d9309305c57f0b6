// Helpers that build the page. Content of messages only ever becomes text: nothing here parses HTML.

export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "disabled" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A table that keeps the row of a key while it exists, so that focus and reading position stay.
// ``empty`` says what it means that there are no rows. Until the first update the table says that it loads.
export class Table {
  constructor(caption, columns, { empty = "Nothing to show." } = {}) {
    this.columns = columns;
    this.rows = new Map();
    this.body = el("tbody");
    this.empty = el("p", { class: "faint" }, "Loading …");
    this.emptyText = empty;
    const head = el("tr", {}, ...columns.map(column => el("th", { scope: "col", class: column.class, title: column.hint }, ...[column.head ?? column.title])));
    this.table = el("table", {}, el("caption", {}, caption), el("thead", {}, head), this.body);
    this.node = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, this.table, this.empty);
  }

  update(items, keyOf) {
    this.empty.hidden = items.length > 0;
    this.table.hidden = !items.length;
    if (!items.length) this.empty.replaceChildren(this.emptyText);
    const wanted = items.map(item => this.row(keyOf(item), item));
    const kept = new Set(wanted);
    for (const [key, row] of this.rows) if (!kept.has(row)) { row.remove(); this.rows.delete(key); }
    const focused = document.activeElement;
    wanted.forEach((row, at) => {
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
    });
    if (focused && focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  row(key, item) {
    let row = this.rows.get(key);
    if (!row) {
      row = el("tr", {}, ...this.columns.map((column, at) =>
        el(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: column.class, "data-title": column.title === "controls" ? null : column.title })));
      this.rows.set(key, row);
    }
    row.item = item;
    this.columns.forEach((column, at) => {
      const cell = row.children[at];
      if (column.text) setText(cell, column.text(item));
      else column.fill(cell, item, row);
    });
    return row;
  }
}

export function once(cell, make) {
  if (!cell.firstChild) cell.append(make());
  return cell.firstChild;
}

const whole = new Intl.NumberFormat("en");
export const number = value => whole.format(Math.round(value));
export const rate = value => value === 0 ? "0" : value < 10 ? value.toFixed(1) : number(value);
export const percent = value => `${(value * 100).toFixed(value < 0.0995 && value > 0 ? 1 : 0)} %`;
export const keyText = key => Array.isArray(key) ? key.join(" / ") : key;
export const keyPath = key => Array.isArray(key) ? key.join("/") : key;

export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
  if (ms < 86400000) return `${Math.floor(ms / 3600000)} h ${Math.floor(ms / 60000) % 60} min`;
  return `${Math.floor(ms / 86400000)} d ${Math.floor(ms / 3600000) % 24} h`;
}

export const clock = ms => new Date(ms).toISOString().slice(11, 23);
export const instant = ms => new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");

// Shows how long ago something was; the exact time is in the tooltip.
export function ago(cell, ms, now) {
  const time = once(cell, () => el("time", {}));
  if (ms === null || ms === undefined) { setText(time, "–"); return; }
  const title = instant(ms);
  if (time.title !== title) { time.title = title; time.dateTime = new Date(ms).toISOString(); }
  setText(time, agoText(ms, now));
}

export function agoText(ms, now) {
  const past = now - ms;
  return past <= -1000 ? `in ${about(-past)}` : past < 0 ? "now" : past < 1500 ? "just now" : `${about(past)} ago`;
}

// A time to the precision that people use when they speak.
function about(ms) {
  const [size, name] = ms < 60000 ? [1000, "s"] : ms < 3600000 ? [60000, "min"] : ms < 172800000 ? [3600000, "h"] : [86400000, "d"];
  return `${Math.floor(ms / size)} ${name}`;
}

const FOLDED_FROM = 120;

// Shows a text on one line; the whole is folded below it if it is longer.
export function fold(cell, text) {
  if (cell.folded === text) return;  // so that a text which is open stays open
  cell.folded = text;
  const first = text.split("\n", 1)[0].slice(0, FOLDED_FROM);
  cell.replaceChildren(first === text ? text : el("details", { class: "folded" }, el("summary", {}, `${first} …`), el("pre", { tabindex: "0" }, text)));
}

// A command to run, with a button that copies it.
export function command(text) {
  const copy = el("button", { class: "quiet", type: "button", onclick: async () => {
    await navigator.clipboard?.writeText(text);
    setText(copy, navigator.clipboard ? "Copied" : "Select and copy it");
  } }, "Copy");
  return el("div", { class: "command" }, el("pre", { tabindex: "0" }, el("code", {}, text)), copy);
}

// Buttons to page through a list. ``onmove`` gets the first row to show.
export class Pager {
  constructor(size, onmove) {
    Object.assign(this, { size, onmove, first: 0, total: 0 });
    this.words = el("span", { class: "faint", role: "status" });
    this.back = el("button", { class: "quiet", type: "button", onclick: () => this.move(-1) }, "Previous");
    this.on = el("button", { class: "quiet", type: "button", onclick: () => this.move(1) }, "Next");
    this.node = el("div", { class: "pager" }, this.words, this.back, this.on);
  }

  move(by) {
    this.first = Math.max(0, this.first + by * this.size);
    this.onmove(this.first);
  }

  // Returns the rows of the current page.
  page(items, what) {
    this.total = items.length;
    if (this.first >= this.total) this.first = Math.max(0, Math.ceil(this.total / this.size) - 1) * this.size;
    const until = Math.min(this.first + this.size, this.total);
    setText(this.words, this.total ? `${number(this.first + 1)} to ${number(until)} of ${number(this.total)} ${what}` : "");
    this.back.disabled = this.first === 0;
    this.on.disabled = until >= this.total;
    this.node.classList.toggle("single", this.total <= this.size);
    return items.slice(this.first, until);
  }
}

export function field(label, input) {
  return el("label", { class: "field" }, el("span", {}, label), input);
}
