// The past: events of the history, and the map after each. The last place of the slider is now.

import { ask, byId, clock, setText } from "./dom.js";

const STEP = 200;
// The most that the daemon tells at a time.
const STEP_MAX = 1000;

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

  // Below zero for a moment that is not among the events that are loaded.
  get index() {
    return this.at === null ? this.events.length : this.events.findIndex((it) => it.id === this.at);
  }

  // New events, as they come.
  async refresh() {
    const last = this.events.at(-1);
    const answer = await ask(`/api/v1/history?count=${STEP}${last ? `&after=${last.id}` : ""}`).catch(() => null);
    // Others may have come by another question.
    if (answer && this.events.at(-1) === last) {
      // What lies between is loaded as older ones are.
      if (!last || answer.has_more) [this.events, this.hasMore] = [answer.entries, answer.has_more];
      else this.events.push(...answer.entries);
    }
    this.render();
  }

  // Gives whether there were some.
  async older(count = STEP) {
    const first = this.events[0];
    if (!first) return false;
    const answer = await ask(`/api/v1/history?count=${count}&before=${first.id}`).catch(() => null);
    if (!answer || this.events[0] !== first) return false;
    this.events = [...answer.entries, ...this.events];
    this.hasMore = answer.has_more;
    this.render();
    return answer.entries.length > 0;
  }

  // A link may name a moment that lies before those that are loaded at first.
  async find() {
    const at = this.at;
    while (at === this.at && this.index < 0 && this.hasMore && (await this.older(STEP_MAX)));
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
    slider.value = Math.max(index, 0);
    const event = events[index];
    const isPast = this.at !== null;
    const unlisted = "A moment that is not among the events that are loaded.";
    slider.setAttribute("aria-valuetext", event ? `${clock(event.at)}, ${sentence(event)}` : isPast ? unlisted : "now");
    byId("live").setAttribute("aria-pressed", `${!isPast}`);
    byId("back").disabled = index <= 0;
    byId("forward").disabled = index === events.length;
    byId("older").hidden = !this.hasMore;
    const last = events[events.length - 1];
    setText(byId("event"), event ? `After ${clock(event.at)}, event ${index + 1} of ${events.length}: ${sentence(event)}`
      : isPast ? unlisted : last ? `Now. The last event, ${clock(last.at)}: ${sentence(last)}` : "Now. Nothing has happened yet.");
  }
}

function sentence({ kind, name, why, before, after }) {
  const from = before?.own || before?.cpus;
  const to = after?.own || after?.cpus;
  const where = from && to && from !== to ? `CPUs ${from} → ${to}` : to ? `CPUs ${to}` : from ? `had CPUs ${from}` : "";
  return [[kind.replaceAll("_", " "), name, where].filter(Boolean).join(" "), why].filter(Boolean).join(": ");
}
