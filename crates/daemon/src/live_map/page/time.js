// The past: events of the history, and the map after each. The last place of the slider is now.

import { ask, byId, clock, setText } from "./dom.js";

const STEP = 200;

export class Time {
  // `changed` is told when another moment is to be shown.
  constructor(changed) {
    this.changed = changed;
    this.events = [];
    this.at = null;
    this.hasMore = false;
    this.maps = new Map();
    byId("slider").addEventListener("input", (event) => this.go(Number(event.target.value)));
    byId("back").addEventListener("click", () => this.step(-1));
    byId("forward").addEventListener("click", () => this.step(1));
    byId("live").addEventListener("click", () => this.go(this.events.length));
    byId("older").addEventListener("click", () => this.older());
  }

  get index() {
    const found = this.events.findIndex((it) => it.id === this.at);
    return this.at === null || found < 0 ? this.events.length : found;
  }

  // New events, as they come.
  async refresh() {
    const answer = await ask(`/api/v1/history?count=${STEP}`).catch(() => null);
    if (!answer) return this.render();
    const known = new Set(this.events.map((it) => it.id));
    const fresh = answer.entries.filter((it) => !known.has(it.id));
    if (!this.events.length) this.hasMore = answer.has_more;
    this.events = fresh.length === answer.entries.length ? answer.entries : [...this.events, ...fresh];
    this.render();
  }

  async older() {
    const first = this.events[0];
    if (!first) return;
    const answer = await ask(`/api/v1/history?count=${STEP}&before=${first.id}`).catch(() => null);
    if (!answer) return;
    this.events = [...answer.entries, ...this.events];
    this.hasMore = answer.has_more;
    this.render();
  }

  step(by) {
    this.go(Math.min(Math.max(this.index + by, 0), this.events.length));
  }

  go(index) {
    this.at = this.events[index]?.id ?? null;
    this.render();
    this.changed();
  }

  // The map of a moment; an entry never changes, so it is asked for once.
  async map(id) {
    if (!this.maps.has(id)) {
      const map = await ask(`/api/v1/map?at=${id}`);
      if (this.maps.size > 50) this.maps.delete(this.maps.keys().next().value);
      this.maps.set(id, map);
    }
    return this.maps.get(id);
  }

  render() {
    const { events, index } = this;
    const slider = byId("slider");
    slider.max = events.length;
    slider.value = index;
    const event = events[index];
    slider.setAttribute("aria-valuetext", event ? `${clock(event.at)}, ${sentence(event)}` : "now");
    byId("live").setAttribute("aria-pressed", `${!event}`);
    byId("back").disabled = index === 0;
    byId("forward").disabled = index === events.length;
    byId("older").hidden = !this.hasMore;
    const last = events[events.length - 1];
    setText(byId("event"), event ? `After ${clock(event.at)}, event ${index + 1} of ${events.length}: ${sentence(event)}`
      : last ? `Now. The last event, ${clock(last.at)}: ${sentence(last)}` : "Now. Nothing has happened yet.");
  }
}

function sentence({ kind, name, why, before, after }) {
  const from = before?.own || before?.cpus;
  const to = after?.own || after?.cpus;
  const where = from && to && from !== to ? `CPUs ${from} → ${to}` : to ? `CPUs ${to}` : from ? `had CPUs ${from}` : "";
  return [[kind.replaceAll("_", " "), name, where].filter(Boolean).join(" "), why].filter(Boolean).join(": ");
}
