// What CPUs can be coloured by: what holds them, or a value. A value of a container counts for the CPUs that it runs on, and of several
// the highest.

// More digits for less, so that the least that has a colour of its own is not zero.
const percent = (value) => (value * 100).toFixed(value <= 0 || value >= 0.1 ? 0 : value >= 0.001 ? 1 : 2);
const short = (value) => (value >= 100 ? `${Math.round(value)}` : value >= 10 ? value.toFixed(0) : value.toFixed(1));
const ofCpu = (field) => ({ field, value: (rates, cpu) => rates.cpus[cpu]?.[field] });
const ofContainers = (field) => ({
  field,
  value: (rates, cpu, running) => {
    const values = running.map((it) => rates.containers[it.name]?.[field]).filter((it) => it !== undefined);
    return values.length ? Math.max(...values) : undefined;
  },
});

// `steps` are the values from which the next darker colour holds; `field` is what the daemon calls the value.
export const OVERLAYS = [
  { id: "holder", name: "what holds them" },
  { id: "use", name: "use", unit: "% of time", ...ofCpu("busy"), text: percent, steps: [0.05, 0.2, 0.4, 0.6, 0.8] },
  { id: "intrusions", name: "intrusions", unit: "% of time taken by others", ...ofCpu("intruded"), text: percent, steps: [0.0001, 0.001, 0.01, 0.03, 0.1] },
  { id: "delay", name: "run-queue delay", unit: "ms, 99th percentile", ...ofContainers("delay_ms"), text: short, steps: [0.1, 1, 4, 10, 40] },
  { id: "migrations", name: "migrations", unit: "moves a second", ...ofContainers("migrations"), text: short, steps: [1, 10, 100, 500, 2000] },
  { id: "throttled", name: "throttling", unit: "% of time", ...ofContainers("throttled"), text: percent, steps: [0.01, 0.05, 0.1, 0.3, 0.6] },
  { id: "far", name: "far memory", unit: "% of memory", ...ofContainers("far"), text: percent, steps: [0.01, 0.05, 0.1, 0.3, 0.6] },
  { id: "cache", name: "cache", unit: "MiB of last-level cache", ...ofContainers("cache_mib"), text: short, steps: [1, 4, 8, 16, 32] },
  { id: "traffic", name: "memory bandwidth", unit: "MB/s", ...ofContainers("traffic_mbps"), text: short, steps: [100, 500, 2000, 5000, 20000] },
  { id: "frequency", name: "frequency", unit: "GHz", ...ofCpu("mhz"), text: (mhz) => (mhz / 1000).toFixed(1), steps: [1000, 1800, 2400, 3000, 3600] },
  { id: "idle", name: "C-states", unit: "% of time in idle states with 20 µs and more to wake up", ...ofCpu("deep"), text: percent, steps: [0.01, 0.1, 0.3, 0.6, 0.9] },
  { id: "lent", name: "lent, idle and closed CPUs" },
];

export const overlayOf = (id) => OVERLAYS.find((it) => it.id === id) ?? OVERLAYS[0];

// 0 to 5, darker for more.
export const step = (overlay, value) => overlay.steps.filter((it) => value >= it).length;
