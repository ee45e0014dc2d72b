// The table of containers: searched, sorted, one row kept per container so that a click is never lost to a change.

import { el, setAttribute, setText } from "./dom.js";
import { parse } from "./cpus.js";

const number = (digits, scale = 1) => (value) => (value === undefined ? "" : (value * scale).toFixed(digits));

// `value` is compared, `text` is shown. Numbers sort the largest first.
const COLUMNS = [
  { id: "holder", title: "", label: "Letter", value: (row) => row.letter },
  { id: "name", title: "Container", value: (row) => row.it.name },
  { id: "class", title: "Class", value: (row) => row.it.class },
  { id: "cpus", title: "CPUs", value: (row) => row.it.cpus, wide: true },
  { id: "mems", title: "Nodes", value: (row) => row.it.mems },
  { id: "pool", title: "Pool", value: (row) => row.it.pool },
  { id: "cpu", title: "Use", label: "CPUs used", value: (row) => row.rates.cpu, text: number(2), isNumber: true },
  { id: "delay", title: "Delay ms", label: "Run-queue delay, 99th percentile", value: (row) => row.rates.delay_ms, text: number(2), isNumber: true },
  { id: "taken", title: "Taken %", label: "Share of its exclusive CPUs' time taken by others", value: (row) => row.rates.taken, text: number(2, 100), isNumber: true },
  { id: "throttled", title: "Throttled %", value: (row) => row.rates.throttled, text: number(1, 100), isNumber: true },
  { id: "migrations", title: "Moves/s", value: (row) => row.rates.migrations, text: number(0), isNumber: true },
  { id: "far", title: "Far %", label: "Share of its memory on other nodes", value: (row) => row.rates.far, text: number(1, 100), isNumber: true },
];

export class ContainerTable {
  constructor(table, count, onSelect, onSort) {
    this.body = table.tBodies[0];
    this.count = count;
    this.rows = new Map();
    this.onSelect = onSelect;
    this.headers = COLUMNS.map((column) => {
      const button = el("button", { type: "button", onclick: () => onSort(column.id), "aria-label": column.label ?? column.title }, column.title || "•");
      return el("th", { scope: "col", class: column.isNumber ? "number" : null }, button);
    });
    table.tHead.replaceChildren(el("tr", {}, this.headers));
  }

  row(name) {
    let row = this.rows.get(name);
    if (!row) {
      const cells = COLUMNS.map((column) => el("td", { class: column.isNumber ? "number" : column.wide ? "wide" : null }));
      const button = el("button", { type: "button", class: "name", onclick: () => this.onSelect("container", name) });
      cells[1].append(button);
      const swatch = el("span", { class: "swatch" });
      cells[0].append(swatch);
      row = { tr: el("tr", {}, cells), cells, button, swatch };
      this.rows.set(name, row);
    }
    return row;
  }

  show({ map, holders, rates, selected, query, sort }) {
    const poolLetter = new Map(holders.list.filter((it) => it.pool).map((it) => [it.pool, it]));
    const all = map.containers.map((it) => {
      const holder = holders.byName.get(it.name) ?? poolLetter.get(it.pool) ?? holders.list.find((other) => other.kind === it.class);
      return { it, holder, letter: holder?.letter ?? "", rates: rates?.containers[it.name] ?? {} };
    });
    const shown = all.filter((row) => matches(row, query));
    const [id, direction] = sort.split(":");
    const column = COLUMNS.find((it) => it.id === id) ?? COLUMNS[1];
    const sign = direction === "up" ? -1 : 1;
    shown.sort((a, b) => unknownLast(column, a, b) || compare(column, a, b) * sign || a.it.name.localeCompare(b.it.name));
    const hasValue = COLUMNS.map((it) => !it.isNumber || all.some((row) => it.value(row) !== undefined));
    this.headers.forEach((header, at) => {
      setAttribute(header, "aria-sort", COLUMNS[at] === column ? ((direction === "up") !== !!column.isNumber ? "descending" : "ascending") : null);
      header.hidden = !hasValue[at];
    });
    const names = new Set(all.map((row) => row.it.name));
    for (const name of this.rows.keys()) if (!names.has(name)) this.rows.delete(name);
    const trs = shown.map((row) => this.fill(row, selected, hasValue));
    if (trs.length !== this.body.rows.length || trs.some((tr, at) => this.body.rows[at] !== tr)) this.body.replaceChildren(...trs);
    const total = all.length === 1 ? "1 container" : `${all.length} containers`;
    setText(this.count, shown.length === all.length ? total : `${shown.length} of ${total}`);
  }

  fill({ it, holder, letter, rates }, selected, hasValue) {
    const row = this.row(it.name);
    setText(row.button, it.name);
    setText(row.swatch, letter);
    setAttribute(row.swatch, "class", `swatch ${holder?.look ?? "free"}`);
    COLUMNS.forEach((column, at) => {
      row.cells[at].hidden = !hasValue[at];
      if (at < 2) return;
      const value = column.value({ it, rates });
      setText(row.cells[at], column.text ? column.text(value) : value ?? "");
    });
    const isChosen = selected?.kind === "container" && selected.id === it.name;
    setAttribute(row.tr, "class", [isChosen ? "chosen" : "", it.problems ? "problem" : ""].join(" ").trim() || null);
    setAttribute(row.button, "aria-current", isChosen ? "true" : null);
    return row.tr;
  }
}

// Words that all have to be found; `cpu:7` and `node:1` are what it may run on.
function matches({ it }, query) {
  const text = `${it.name} ${it.class} ${it.qos} ${it.pool} ${it.problems ? "problem" : ""}`.toLowerCase();
  return query.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const [kind, id] = word.split(":");
    if (kind === "cpu" && id) return parse(it.cpus).has(Number(id));
    if (kind === "node" && id) return parse(it.mems).has(Number(id));
    return text.includes(word);
  });
}

const unknownLast = (column, a, b) => (column.value(a) === undefined) - (column.value(b) === undefined);

function compare(column, a, b) {
  const [left, right] = [column.value(a), column.value(b)];
  if (left === undefined) return 0;
  return column.isNumber ? right - left : `${left}`.localeCompare(`${right}`, undefined, { numeric: true });
}
