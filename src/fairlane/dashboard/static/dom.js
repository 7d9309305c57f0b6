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
export class Table {
  constructor(caption, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.body = el("tbody");
    this.empty = el("p", { class: "faint" }, "Nothing to show.");
    const head = el("tr", {}, ...columns.map(column =>
      el("th", { scope: "col", class: column.class, title: column.hint }, column.title)));
    this.table = el("table", {}, el("caption", {}, caption), el("thead", {}, head), this.body);
    this.node = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, this.table, this.empty);
  }

  update(items, keyOf) {
    this.empty.hidden = items.length > 0;
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
        el(at === 0 ? "th" : "td", at === 0 ? { scope: "row", class: column.class } : { class: column.class })));
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

export function field(label, input) {
  return el("label", { class: "field" }, el("span", {}, label), input);
}
