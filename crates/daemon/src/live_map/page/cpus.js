// Lists of CPUs or NUMA nodes as the kernel writes them: `0-3,8`, also with groups: `0-6:1/2`.

export function parse(list) {
  const found = new Set();
  if (!/^[0-9,:/ -]*$/.test(list ?? "")) return found;
  for (const part of (list ?? "").split(",").filter(Boolean)) {
    const [range, group] = part.split(":");
    const [first, last] = range.split("-").map(Number);
    const [used, size] = group ? group.split("/").map(Number) : [1, 1];
    for (let cpu = first; cpu <= (last ?? first); cpu += 1) {
      if ((cpu - first) % size < used) found.add(cpu);
    }
  }
  return found;
}

export function format(cpus) {
  const sorted = [...cpus].sort((a, b) => a - b);
  const parts = [];
  for (let at = 0; at < sorted.length; ) {
    let end = at;
    while (sorted[end + 1] === sorted[end] + 1) end += 1;
    parts.push(end > at ? `${sorted[at]}-${sorted[end]}` : `${sorted[at]}`);
    at = end + 1;
  }
  return parts.join(",");
}
