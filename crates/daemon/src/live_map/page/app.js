// The page: what the daemon tells goes into one view, and everything is drawn from that. What is chosen stands in the address, so that a
// link shows the same.

import { ask, byId, clock, el, setText } from "./dom.js";
import { format } from "./cpus.js";
import { holders, runners } from "./palette.js";
import { OVERLAYS, overlayOf } from "./overlay.js";
import { MachineMap } from "./box.js";
import { ContainerTable } from "./table.js";
import { Detail } from "./detail.js";
import { Time } from "./time.js";

const view = { live: null, rates: null, outline: null, overlay: "holder", selected: null, query: "", sort: "name:down", pinned: null, past: null, pinnedMap: null, problem: null, missed: null };
const time = new Time(momentChanged);
const main = new MachineMap(byId("map"), select);
const other = new MachineMap(byId("other"), select);
const table = new ContainerTable(byId("table"), byId("count"), select, sortBy);
const detail = new Detail(byId("detail"), select);
const outlines = new Map();

// At most one drawing for each frame of the screen.
let isDue = false;
function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    render();
  });
}

// `beside`: a map that is shown beside it, of which the letters are no other holder's here; or null.
function shownOf(map, beside = null) {
  if (map.derived?.beside !== beside) map.derived = { beside, holders: holders(map, beside), runners: runners(map) };
  return map.derived;
}

function render() {
  const isPast = time.at !== null;
  const map = isPast ? view.past : view.live;
  if (!map || !view.outline) return;
  const began = performance.now();
  const pinned = view.pinned ? view.pinnedMap : null;
  const others = pinned && pinned !== map ? shownOf(pinned) : null;
  const derived = shownOf(map, others && pinned);
  const rates = isPast ? null : view.rates;
  const common = { map, rates, overlay: view.overlay, selected: view.selected, ...derived };
  const moved = pinned ? difference((others ?? derived).holders, derived.holders) : null;
  main.title(isPast ? `At ${clock(map.at)}` : pinned ? "Now" : "");
  main.show({ ...common, moved });
  byId("other").hidden = !pinned;
  byId("maps").classList.toggle("two", !!pinned);
  byId("whatif").hidden = !view.live?.what_if;
  byId("whatif").setAttribute("aria-pressed", `${view.pinned === WHAT_IF}`);
  if (pinned) {
    const kept = pinned.what_if && view.pinned === WHAT_IF ? `Under ${pinned.what_if}, worked out ${clock(pinned.at)}` : `Compared with ${clock(pinned.at)}`;
    other.title(`${kept}: ${moved.size ? `CPUs ${format(moved)} differ` : "no CPU differs"}`);
    other.show({ ...common, map: pinned, rates: null, ...(others ?? derived), moved });
  }
  table.show({ ...common, query: view.query, sort: view.sort });
  detail.show({ ...common, outline: view.outline, isPast, again: draw });
  legend(derived.holders, others?.holders.list ?? [], isPast);
  const mode = map.mode === "placing" ? "" : `, mode ${map.mode}`;
  const moment = isPast ? `the past${mode}` : `live${mode}, ${clock(map.at)}`;
  setText(byId("status"), view.problem ?? [moment, view.missed].filter(Boolean).join("; "));
  byId("pin").setAttribute("aria-pressed", `${!!view.pinned && view.pinned !== WHAT_IF}`);
  document.body.dataset.drawn = (performance.now() - began).toFixed(1);
}

// CPUs that another holder has.
function difference(before, after) {
  const moved = new Set();
  const key = (it) => (it ? `${it.kind} ${it.name}` : "");
  for (const cpu of new Set([...before.byCpu.keys(), ...after.byCpu.keys()])) {
    if (key(before.byCpu.get(cpu)) !== key(after.byCpu.get(cpu))) moved.add(cpu);
  }
  return moved;
}

// `others`: what holds CPUs in the map beside this one.
function legend({ list }, others, isPast) {
  const overlay = overlayOf(view.overlay);
  const row = (look, letter, text, holder) => {
    const swatch = el("span", { class: `swatch ${look}` }, letter);
    const label = holder?.kind === "exclusive" ? el("button", { type: "button", class: "link", onclick: () => select("container", holder.name) }, text) : text;
    return el("li", {}, swatch, label);
  };
  const key = (it) => `${it.kind} ${it.name}`;
  const known = new Set(list.map(key));
  const only = others.filter((it) => !known.has(key(it)));
  let rows = [...list.map((it) => row(it.look, it.letter, it.name, it)), ...only.map((it) => row(it.look, it.letter, `${it.name}, in the other map`))];
  if (overlay.value) {
    const limits = ["", ...overlay.steps.map(overlay.text)];
    rows = limits.map((limit, at) => row(`o${at}`, "", at === 0 ? `below ${limits[1]}` : `from ${limit}`));
    rows.push(row("unknown", "?", "not known"), el("li", {}, overlay.unit));
    rows.push(...whyUnknown(overlay, isPast).map((text) => el("li", { class: "absent" }, text)));
  } else if (overlay.id === "lent") {
    rows = [row("lent", "l", "exclusive, lent to BestEffort containers while idle"), row("closed", "c", "shared, closed to other exclusive containers"), row("idle", "-", "idle for a container that holds other threads of the core")];
  }
  const text = rows.map((it) => it.outerText ?? it.textContent).join("|") + rows.map((it) => it.firstChild?.className).join();
  if (legend.text === text) return;
  legend.text = text;
  byId("legend").replaceChildren(...rows);
}

function whyUnknown(overlay, isPast) {
  if (isPast) return ["the past has no measured values"];
  return view.rates ? (view.rates.absent_of?.[overlay.field] ?? []) : ["nothing has been measured yet"];
}

function select(kind, id) {
  const wasOpen = !!view.selected;
  view.selected = kind ? { kind, id: `${id}` } : null;
  remember();
  draw();
  if (kind && !wasOpen && window.innerWidth < 700) requestAnimationFrame(() => byId("detail").scrollIntoView({ block: "nearest" }));
}

function sortBy(id) {
  const [column, direction] = view.sort.split(":");
  view.sort = `${id}:${column === id && direction === "down" ? "up" : "down"}`;
  remember();
  draw();
}

async function outlineOf(map) {
  const key = map.fingerprint ?? "";
  if (!outlines.has(key)) outlines.set(key, await ask(map.entry ? `/api/v1/map/machine?at=${map.entry}` : "/api/v1/map/machine"));
  return outlines.get(key);
}

// Boxes are built again only where the machine is another one.
async function prepare(place, map) {
  const outline = await outlineOf(map).catch(() => view.outline);
  if (!outline || place.outline === outline) return;
  place.outline = outline;
  place.build(outline, "");
  if (place === main) {
    view.outline = outline;
    setText(byId("facts"), outline.facts.join(", "));
  }
}

async function momentChanged() {
  const at = time.at;
  remember();
  try {
    if (at !== null) {
      const map = await time.map(at);
      // The slider may have gone on meanwhile.
      if (at !== time.at) return;
      view.past = map;
      await prepare(main, map);
      await time.find();
    } else if (view.live) {
      await prepare(main, view.live);
    }
    view.missed = null;
  } catch (error) {
    if (at !== time.at) return;
    // The history does not have it any more, or cannot be asked.
    view.missed = error.message;
    time.at = null;
    time.render();
    remember();
    if (view.live) await prepare(main, view.live);
  }
  draw();
}

// Another configuration in place of another moment.
const WHAT_IF = "what-if";

async function pin(at) {
  if (view.pinned !== at) view.pinnedMap = null;
  view.pinned = at;
  remember();
  if (at) {
    try {
      const map = at === "now" ? view.live : at === WHAT_IF ? await ask("/api/v1/map/what-if") : await time.map(at);
      // Another moment may have been chosen meanwhile, or none.
      if (view.pinned !== at) return;
      view.pinnedMap = map;
      await prepare(other, map);
    } catch (error) {
      if (view.pinned !== at) return;
      [view.pinned, view.missed] = [null, error.message];
    }
  }
  draw();
}

function remember() {
  const parts = { by: view.overlay === "holder" ? "" : view.overlay, at: time.at ?? "", with: view.pinned && view.pinned !== "now" ? view.pinned : "",
    see: view.selected ? `${view.selected.kind}:${view.selected.id}` : "", find: view.query, sort: view.sort === "name:down" ? "" : view.sort };
  const text = new URLSearchParams(Object.entries(parts).filter(([, value]) => value)).toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname);
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  view.overlay = overlayOf(parts.get("by")).id;
  view.query = parts.get("find") ?? "";
  view.sort = parts.get("sort") ?? "name:down";
  const [kind, ...id] = (parts.get("see") ?? "").split(":");
  view.selected = id.length ? { kind, id: id.join(":") } : null;
  time.at = parts.get("at");
  byId("overlay").value = view.overlay;
  byId("search").value = view.query;
  return parts.get("with");
}

// The history is read from files, so changes that come together are asked for together.
let refreshing = null;
function refreshSoon() {
  refreshing ??= setTimeout(() => {
    refreshing = null;
    time.refresh();
  }, 1000);
}

// A stream ends after a while, and the browser opens another within seconds.
const LOST_MS = 10000;

function listen() {
  const events = new EventSource("/api/v1/map/events");
  let lost = null;
  const notConnected = () => {
    view.problem = "not connected; trying again";
    setText(byId("status"), view.problem);
  };
  events.addEventListener("open", () => {
    clearTimeout(lost);
    lost = null;
  });
  events.addEventListener("map", async (event) => {
    view.live = JSON.parse(event.data);
    view.problem = null;
    if (time.at === null) await prepare(main, view.live);
    // Another one may be kept now, or none.
    if (view.pinned === WHAT_IF && view.live.what_if_at !== view.pinnedMap?.at) pin(view.live.what_if ? WHAT_IF : null);
    draw();
    refreshSoon();
  });
  events.addEventListener("rates", (event) => {
    view.rates = JSON.parse(event.data);
    draw();
  });
  events.addEventListener("error", () => {
    if (events.readyState !== EventSource.CLOSED) {
      lost ??= setTimeout(notConnected, LOST_MS);
      return;
    }
    // As many pages are open as may be, or the daemon is being started.
    clearTimeout(lost);
    notConnected();
    setTimeout(() => {
      listen();
      // Unlike a stream, it says why it is refused.
      ask("/api/v1/map").catch(() => null);
    }, 5000);
  });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (event.target === byId("search")) event.target.blur();
    else select(null);
    return;
  }
  // Nothing is typed into the slider.
  if (event.target.matches("input:not([type=range]), select")) return;
  const actions = {
    "/": () => byId("search").focus(),
    o: () => overlayChanged(OVERLAYS[(OVERLAYS.findIndex((it) => it.id === view.overlay) + 1) % OVERLAYS.length].id),
    "[": () => time.step(-1),
    "]": () => time.step(1),
    l: () => time.go(time.events.length),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function overlayChanged(id) {
  view.overlay = id;
  byId("overlay").value = id;
  remember();
  draw();
}

async function start() {
  byId("overlay").replaceChildren(...OVERLAYS.map((it) => el("option", { value: it.id }, it.name)));
  const pinned = recall();
  byId("overlay").addEventListener("change", (event) => overlayChanged(event.target.value));
  byId("search").addEventListener("input", (event) => {
    view.query = event.target.value;
    remember();
    draw();
  });
  byId("whatif").addEventListener("click", () => pin(view.pinned === WHAT_IF ? null : WHAT_IF));
  byId("pin").addEventListener("click", () => pin(view.pinned ? null : time.at ?? "now"));
  document.addEventListener("keydown", keys);
  // As a link it would put its own name in place of what is chosen.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("containers").focus();
  });
  window.addEventListener("hashchange", () => {
    const again = recall();
    momentChanged();
    pin(again);
  });
  try {
    view.live = await ask("/api/v1/map");
    await prepare(main, view.live);
  } catch (error) {
    view.problem = error.message;
    setText(byId("status"), view.problem);
  }
  draw();
  await time.refresh();
  if (time.at !== null) await momentChanged();
  if (pinned) await pin(pinned);
  listen();
}

start();
