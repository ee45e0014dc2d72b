// The pane about one container, CPU or NUMA node: what is known of it now, and why.

import { ask, clock, el, facts } from "./dom.js";
import { format, parse } from "./cpus.js";

const percent = (value, digits = 1) => (value === undefined ? null : `${(value * 100).toFixed(digits)} %`);
const fixed = (value, unit, digits = 2) => (value === undefined ? null : `${value.toFixed(digits)} ${unit}`);

// What is measured changes this slowly.
const WHY_MS = 10000;

export class Detail {
  constructor(place, select) {
    this.place = place;
    this.select = select;
    this.asked = null;
    this.why = null;
  }

  show(view) {
    const { selected, isPast } = view;
    this.place.hidden = !selected;
    if (!selected) {
      this.asked = null;
      return;
    }
    if (selected.kind === "container" && !isPast) this.askWhy(selected.id, view);
    const close = el("button", { type: "button", class: "close", "aria-label": "Close", "data-focus": "close", onclick: () => this.select(null) }, "×");
    const content = { container: () => this.container(view), cpu: () => this.cpu(view), node: () => this.node(view) }[selected.kind]?.() ?? [];
    this.fill([close, ...content.filter(Boolean)]);
  }

  // Only where something has changed: what is marked stays marked, and what has the focus keeps it.
  fill(parts) {
    const shown = [...this.place.childNodes];
    if (parts.length === shown.length && parts.every((it, at) => it.isEqualNode(shown[at]))) return;
    const focus = this.place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    this.place.replaceChildren(...parts);
    if (focus) [...this.place.querySelectorAll("[data-focus]")].find((it) => it.dataset.focus === focus)?.focus();
  }

  // Once for each change of what is shown of it, and again when there are other readings.
  askWhy(name, view) {
    const it = view.map.containers.find((other) => other.name === name);
    const asked = JSON.stringify([name, it?.cpus, it?.mems, it?.phase, Math.floor(Date.now() / WHY_MS)]);
    if (asked === this.asked) return;
    if (this.why?.name !== name) this.why = null;
    this.asked = asked;
    const [one, query] = [(found) => found.find((other) => other.container === name) ?? null, `name=${encodeURIComponent(name)}`];
    Promise.all([ask(`/api/v1/map/about?${query}`), ask(`/api/v1/map/why?${query}`)])
      .then(([about, why]) => ({ name, found: one(about), slow: one(why) }))
      .catch((error) => ({ name, error: error.message }))
      .then((why) => {
        if (asked !== this.asked) return;
        this.why = why;
        view.again();
      });
  }

  link(kind, id, text) {
    return el("button", { type: "button", class: "link", "data-focus": `${kind}:${id}`, onclick: () => this.select(kind, id) }, text);
  }

  container({ map, rates, selected, isPast }) {
    const it = map.containers.find((other) => other.name === selected.id);
    if (!it) return [el("h2", {}, selected.id), el("p", {}, isPast ? "It was not there then." : "It is not there any more.")];
    const measured = rates?.containers[it.name] ?? {};
    const shares = it.own && it.own !== it.cpus;
    return [
      el("h2", {}, it.name),
      it.problems?.length ? el("ul", { class: "problems" }, it.problems.map((text) => el("li", {}, text))) : null,
      facts([["Class", it.class], ["QoS", it.qos], ["State", it.phase], ["Asked", it.asked], ["Own CPUs", it.own], [shares || !it.own ? "Runs on CPUs" : null, shares || !it.own ? it.cpus : null],
        ["Memory nodes", it.mems], ["Pool", it.pool], ["Group", it.group]].filter(([name]) => name)),
      isPast ? null : el("h3", {}, "Measured"),
      isPast ? null : facts([["CPUs used", fixed(measured.cpu, "")], ["Stopped by its limit", percent(measured.throttled)], ["Tasks waiting", fixed(measured.waiting, "")],
        ["Delay, 99th percentile", fixed(measured.delay_ms, "ms")], ["Moves", fixed(measured.migrations, "a second", 1)], ["Its CPUs' time taken by others", percent(measured.taken, 2)],
        ["Memory on other nodes", percent(measured.far)], ["Stalled for memory", percent(measured.memory_stall)], ["Last-level cache", fixed(measured.cache_mib, "MiB", 1)],
        ["Memory bandwidth", fixed(measured.traffic_mbps, "MB/s", 0)]]),
      isPast ? null : this.reasons(it),
    ];
  }

  reasons(it) {
    const why = this.why?.name === it.name ? this.why : null;
    if (!why) return el("p", {}, "…");
    if (why.error) return el("p", {}, why.error);
    const found = why.found;
    if (!found) return el("p", {}, "The daemon does not know why any more.");
    const pools = found.decision.pools ?? [];
    return el("div", { class: "why" },
      causes(why.slow),
      el("h3", {}, "Why it is there"),
      el("p", {}, `${clock(found.decision.at)}: ${found.decision.outcome}`),
      (found.decision.warnings ?? []).length ? el("ul", {}, found.decision.warnings.map((text) => el("li", {}, text))) : null,
      found.isolation ? el("p", {}, found.isolation) : null,
      pools.length ? el("table", {}, el("thead", {}, el("tr", {}, ["Pool", "CPUs", "", "Why"].map((text) => el("th", { scope: "col" }, text)))),
        el("tbody", {}, pools.map((row) => el("tr", { class: row.verdict }, [row.pool, row.cpus, row.verdict, row.why].map((text) => el("td", {}, text)))))) : null,
      (found.rebalance ?? []).length ? el("div", {}, el("h3", {}, "Rebalancer"), el("ul", {}, found.rebalance.map((it) => el("li", {}, `${clock(it.at)}: ${it.text ?? it.what ?? ""}`)))) : null,
      el("p", { class: "hint" }, "On the node: ", el("code", {}, `bayplan why ${it.name}`)));
  }

  cpu({ map, holders, runners, rates, selected, outline, isPast }) {
    const cpu = Number(selected.id);
    const holder = holders.byCpu.get(cpu);
    const around = path(outline.machine, cpu);
    const measured = rates?.cpus[cpu] ?? {};
    const running = runners.get(cpu) ?? [];
    return [
      el("h2", {}, `CPU ${cpu}`),
      facts([["Held by", holder ? (holder.kind === "exclusive" ? this.link("container", holder.name, holder.name) : holder.name) : "nothing"],
        ["In", around.boxes.join(", ")], ["Other threads of the core", around.siblings.join(", ")],
        ["Use", isPast ? null : percent(measured.busy)], ["Frequency", isPast ? null : fixed(measured.mhz, "MHz", 0)],
        ["Idle states", isPast ? null : (measured.idle ?? []).map(([name, share]) => `${name} ${percent(share, 0)}`).join(", ")], ["Time taken by others", isPast ? null : percent(measured.intruded, 2)]]),
      !isPast && measured.intruders?.length ? el("div", {}, el("h3", {}, "Also ran here in the last minute"), el("ul", {}, measured.intruders.map((text) => el("li", {}, text)))) : null,
      el("h3", {}, running.length === 1 ? "1 container may run here" : `${running.length} containers may run here`),
      el("ul", { class: "links" }, running.slice(0, 100).map((it) => el("li", {}, this.link("container", it.name, it.name)))),
      running.length > 100 ? el("p", {}, `and ${running.length - 100} more; search for cpu:${cpu}`) : null,
      map.closed && parse(map.closed).has(cpu) ? el("p", {}, "Closed to other exclusive containers.") : null,
    ];
  }

  node({ map, selected, outline }) {
    const node = Number(selected.id);
    const memory = memories(outline.machine).find((it) => it.node === node);
    const { nodes, rows } = outline.distances;
    const row = rows[nodes.indexOf(node)] ?? [];
    const users = map.containers.filter((it) => parse(it.mems).has(node));
    return [
      el("h2", {}, `NUMA node ${node}`),
      el("p", {}, memory?.details ?? ""),
      row.length > 1 ? el("div", {}, el("h3", {}, "Distances"), el("table", {}, el("tbody", {}, nodes.map((other, at) => el("tr", {}, el("th", { scope: "row" }, `node ${other}`), el("td", { class: "number" }, `${row[at] ?? "?"}`)))))) : null,
      el("h3", {}, users.length === 1 ? "1 container has memory here" : `${users.length} containers may have memory here`),
      el("ul", { class: "links" }, users.slice(0, 100).map((it) => el("li", {}, this.link("container", it.name, it.name)))),
    ];
  }
}

// What slows a container down, the most harmful first.
function causes(slow) {
  if (!slow) return null;
  const rows = slow.causes.map((it) => {
    const cost = [it.severity, typeof it.share === "number" ? `about ${percent(it.share, 0)} of its time` : ""].filter(Boolean).join(", ");
    return el("li", { class: it.severity }, el("strong", {}, it.what), ` (${cost})`, (it.details ?? []).map((text) => el("p", {}, text)),
      el("p", {}, `Help: ${it.help}`), it.command ? el("code", {}, it.command) : null);
  });
  return el("div", {}, el("h3", {}, "What slows it down"), rows.length ? el("ol", { class: "causes" }, rows) : el("p", {}, "Nothing that is measured slows it down much."));
}

// The names of the boxes around a CPU, and the other threads of its core.
function path(box, cpu) {
  if (!parse(box.cpus).has(cpu)) return null;
  for (const inner of box.boxes) {
    const found = path(inner, cpu);
    if (found) return { boxes: box.level === "machine" ? found.boxes : [box.name, ...found.boxes], siblings: found.siblings };
  }
  const core = box.cores.find((it) => it.cpus.includes(cpu));
  const siblings = (core?.cpus ?? []).filter((it) => it !== cpu);
  return { boxes: box.level === "machine" ? [] : [box.name], siblings: siblings.length ? [format(siblings)] : [] };
}

const memories = (box) => [...box.memories, ...box.boxes.flatMap(memories)];
