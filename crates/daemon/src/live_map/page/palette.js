// Which container or pool holds each CPU, with a letter and a colour. Letters tell holders apart without colours.

import { parse } from "./cpus.js";

// Colours of exclusive containers in style.css: k0 to k11. Neighbours in the list differ in brightness, too.
const COLOURS = 12;

// A to Z, then AA, AB.
function letters(number, first) {
  let text = "";
  for (let rest = number + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) {
    text = String.fromCharCode(first.charCodeAt(0) + ((rest - 1) % 26)) + text;
  }
  return text;
}

// A name keeps its colour from moment to moment, whatever comes and goes around it.
function colourOf(name) {
  let hash = 7;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return hash % COLOURS;
}

// A letter stays with its container from moment to moment, too, as long as no other has it.
const numbers = new Map();
const NUMBERS_MAX = 2000;

// `others`: names that another map shows beside this one, with letters of their own.
function numbersOf(names, others) {
  if (numbers.size > NUMBERS_MAX) numbers.clear();
  const used = new Set(names.map((name) => numbers.get(name)));
  const given = new Map();
  const taken = new Set(others.map((name) => numbers.get(name)));
  let next = 0;
  for (const name of names) {
    let number = numbers.get(name);
    if (number === undefined || taken.has(number)) {
      while (used.has(next) || taken.has(next)) next += 1;
      number = next;
      numbers.set(name, number);
    }
    taken.add(number);
    given.set(name, number);
  }
  return given;
}

// By their lowest CPU.
function ownersOf(map) {
  const owners = map.containers.filter((it) => it.own);
  const lowest = new Map(owners.map((it) => [it, Math.min(...parse(it.own))]));
  return owners.sort((a, b) => lowest.get(a) - lowest.get(b));
}

const groupsOf = (map) => (map.groups ?? []).filter((it) => parse(it.shared).size);
const groupName = (it) => `group ${it.name}`;

// What has a capital letter: the first container of each CPU set, and groups.
function lettered(map) {
  const first = new Map(ownersOf(map).toReversed().map((it) => [it.own, it.name]));
  return [...[...first.values()].reverse(), ...groupsOf(map).map(groupName)];
}

// The holders of a map: by CPU, by container, and a list for the legend. `beside`: a map that is shown beside it and has its letters, or null.
export function holders(map, beside) {
  const byCpu = new Map();
  const byName = new Map();
  const list = [];
  const add = (holder, cpus) => {
    holder.cpus = cpus;
    list.push(holder);
    for (const cpu of cpus) if (!byCpu.has(cpu)) byCpu.set(cpu, holder);
    return holder;
  };
  const owners = ownersOf(map);
  const names = lettered(map);
  const others = beside ? lettered(beside).filter((name) => !names.includes(name)) : [];
  const bySet = new Map();
  const number = numbersOf(names, others);
  let last = null;
  for (const it of owners) {
    // Containers of one pod may hold their CPUs together.
    let holder = bySet.get(it.own);
    if (!holder) {
      let colour = colourOf(it.name);
      if (colour === last) colour = (colour + 1) % COLOURS;
      last = colour;
      holder = add({ kind: "exclusive", name: it.name, letter: letters(number.get(it.name) ?? bySet.size, "A"), look: `k${colour}` }, parse(it.own));
      bySet.set(it.own, holder);
    }
    byName.set(it.name, holder);
  }
  for (const it of groupsOf(map)) {
    const name = groupName(it);
    add({ kind: "group", name, letter: letters(number.get(name), "A"), look: `k${colourOf(it.name)}` }, parse(it.shared));
  }
  const reserved = parse(map.reserved);
  if (reserved.size) add({ kind: "reserved", name: "reserved", letter: "r", look: "reserved" }, reserved);
  const idle = parse(map.idle);
  if (idle.size) add({ kind: "idle", name: "idle for other threads of the core", letter: "-", look: "idle" }, idle);
  const isolated = parse(map.isolated);
  if (isolated.size) add({ kind: "isolated", name: "isolated, free", letter: "i", look: "isolated" }, isolated);
  const pools = map.pools.map((it) => ({ ...it, set: parse(it.shared) }));
  pools.sort((a, b) => a.set.size - b.set.size);
  // Shared parts get whole NUMA nodes, which have another name where they are dies or packages; else there is one pool.
  const kinds = ["numa ", "die ", "package "].map((kind) => pools.filter((it) => it.name.startsWith(kind)));
  const shown = kinds.find((it) => it.some((pool) => pool.set.size)) ?? pools.slice(-1);
  // A letter stays with its pool, whatever others have to share.
  shown.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  shown.forEach((pool, at) => {
    if (pool.set.size) add({ kind: "shared", name: `shared, ${pool.name}`, pool: pool.name, letter: letters(at, "a"), look: `s${at % 2}` }, pool.set);
  });
  return { byCpu, byName, list };
}

// The containers that may run on each CPU.
export function runners(map) {
  const byCpu = new Map();
  for (const it of map.containers) {
    for (const cpu of parse(it.cpus)) {
      if (!byCpu.has(cpu)) byCpu.set(cpu, []);
      byCpu.get(cpu).push(it);
    }
  }
  return byCpu;
}
