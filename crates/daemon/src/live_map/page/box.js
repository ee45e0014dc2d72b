// The machine as boxes in boxes, built once; each CPU is a button that changes its look when the map does.

import { el, setAttribute, setText } from "./dom.js";
import { overlayOf, step } from "./overlay.js";
import { parse } from "./cpus.js";

// From this many CPUs on, cells are small.
const DENSE_FROM = 200;

export class MachineMap {
  // `select` is told what is clicked: a kind and an id.
  constructor(place, select) {
    this.place = place;
    this.select = select;
    this.cells = new Map();
    this.memories = new Map();
    this.offline = new Set();
    place.addEventListener("keydown", (event) => this.key(event));
    place.addEventListener("click", (event) => {
      const target = event.target.closest("[data-kind]");
      if (target) this.select(target.dataset.kind, target.dataset.id);
    });
  }

  build(outline, title) {
    this.cells.clear();
    this.memories.clear();
    this.caption = el("h2", {}, title);
    const boxes = this.box(outline.machine);
    this.order = [...this.cells.keys()];
    boxes.classList.toggle("dense", this.order.length >= DENSE_FROM);
    const rows = [this.caption, boxes];
    if (outline.offline) rows.push(el("p", { class: "offline" }, `offline: CPUs ${outline.offline}`));
    this.place.replaceChildren(...rows);
    this.marks = new Map();
    for (const mark of outline.marks) {
      for (const cpu of parse(mark.cpus)) this.marks.set(cpu, [...(this.marks.get(cpu) ?? []), mark.name]);
    }
    const first = this.cells.get(this.order[0]);
    if (first) first.button.tabIndex = 0;
  }

  box(it) {
    const name = [it.name, ...it.facts].join(", ");
    const memories = it.memories.map((memory) => {
      const button = el("button", { type: "button", class: `memory ${memory.kind}`, "data-kind": "node", "data-id": memory.node, title: memory.details },
        el("b", {}, `Node ${memory.node}`), ` ${memory.text}`);
      this.memories.set(memory.node, button);
      return button;
    });
    const devices = it.devices.map((device) => el("li", { title: device.details }, [device.name, ...device.facts].join(", ")));
    return el("section", { class: `box ${it.level}`, "aria-label": `${name}, CPUs ${it.cpus}` },
      it.level === "machine" ? null : el("h3", {}, name),
      memories.length ? el("div", { class: "memories" }, memories) : null,
      it.cores.length ? el("div", { class: "cores" }, it.cores.map((core) => this.core(core))) : null,
      it.boxes.length ? el("div", { class: "boxes" }, it.boxes.map((inner) => this.box(inner))) : null,
      devices.length ? el("ul", { class: "devices", "aria-label": "Devices" }, devices) : null);
  }

  core(core) {
    return el("div", { class: `core ${core.kind ?? ""}` }, core.cpus.map((cpu) => {
      // Number and letter are drawn by the style sheet: as text they would have to be part of the button's label, which says more.
      const letter = el("span", { class: "letter" });
      const button = el("button", { type: "button", class: "cpu", tabindex: -1, "data-kind": "cpu", "data-id": cpu },
        el("span", { class: "number", "data-text": cpu }), letter);
      this.cells.set(cpu, { button, letter });
      return button;
    }));
  }

  // `moved`: CPUs to point out, or null.
  show({ map, holders, runners, rates, overlay, selected, moved }) {
    const by = overlayOf(overlay);
    const closed = parse(map.closed);
    const lent = parse(map.lent);
    const chosen = selected?.kind === "container" ? map.containers.find((it) => it.name === selected.id) : null;
    const runsOn = parse(chosen?.cpus);
    const mems = parse(chosen?.mems);
    for (const [cpu, cell] of this.cells) {
      const holder = holders.byCpu.get(cpu);
      let look = holder?.look ?? "free";
      let text = holder?.letter ?? "";
      let value;
      if (by.value) {
        value = rates ? by.value(rates, cpu, runners.get(cpu) ?? []) : undefined;
        look = value === undefined ? "unknown" : `o${step(by, value)}`;
        text = value === undefined ? "?" : by.text(value);
      } else if (by.id === "lent") {
        look = lent.has(cpu) ? "lent" : closed.has(cpu) ? "closed" : holder?.kind === "idle" ? "idle" : "free";
        text = { lent: "l", closed: "c", idle: "-" }[look] ?? "";
      }
      const marks = this.marks.get(cpu) ?? [];
      const classes = ["cpu", look];
      if (marks.includes("isolated")) classes.push("marked");
      if (runsOn.has(cpu)) classes.push("chosen");
      if (selected?.kind === "cpu" && Number(selected.id) === cpu) classes.push("chosen");
      if (moved?.has(cpu)) classes.push("moved");
      setAttribute(cell.button, "class", classes.join(" "));
      cell.letter.dataset.text = text;
      const said = [`CPU ${cpu}`, holder?.name ?? "free", ...marks];
      if (by.value) said.push(value === undefined ? `${by.name} not known` : `${by.name} ${text} ${by.unit}`);
      else if (look === "lent") said.push("lent");
      else if (look === "closed") said.push("closed to other exclusive containers");
      if (moved?.has(cpu)) said.push("differs");
      setAttribute(cell.button, "aria-label", said.join(", "));
      setAttribute(cell.button, "title", said.join(", "));
    }
    for (const [node, button] of this.memories) button.classList.toggle("chosen", mems.has(node) || (selected?.kind === "node" && Number(selected.id) === node));
  }

  title(text) {
    setText(this.caption, text);
  }

  // Arrow keys move between CPUs: left and right in their order, up and down to what lies there.
  key(event) {
    const button = event.target.closest(".cpu");
    if (!button || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const at = this.order.indexOf(Number(button.dataset.id));
    let next;
    if (event.key === "ArrowLeft") next = this.order[at - 1];
    if (event.key === "ArrowRight") next = this.order[at + 1];
    if (event.key === "ArrowUp" || event.key === "ArrowDown") next = this.above(button, event.key === "ArrowDown");
    const cell = this.cells.get(next);
    if (!cell) return;
    for (const other of this.cells.values()) other.button.tabIndex = -1;
    cell.button.tabIndex = 0;
    cell.button.focus();
  }

  above(button, isBelow) {
    const own = button.getBoundingClientRect();
    let best;
    let least = Infinity;
    for (const [cpu, cell] of this.cells) {
      const its = cell.button.getBoundingClientRect();
      const down = isBelow ? its.top - own.top : own.top - its.top;
      if (down < own.height / 2) continue;
      const distance = down + Math.abs(its.left - own.left) * 3;
      if (distance < least) [best, least] = [cpu, distance];
    }
    return best;
  }
}
