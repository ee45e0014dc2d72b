/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where counters are kept, and which cgroup and CPU belongs to which container. The user side makes arrays by CPU as long as the machine needs. */
#ifndef BAYPLAN_MAPS_H
#define BAYPLAN_MAPS_H

#include "kernel.h"
#include "records.h"

#define SLOTS 1024
#define INTRUDERS_MAX 4096

/* Cgroup id to the slot of its counters. The user side puts cgroups in and takes them out; the kernel side only looks up. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(map_flags, F_NO_PREALLOC);
	NUMBER(max_entries, SLOTS);
	TYPE(key, u64);
	TYPE(value, u32);
} containers SEC(".maps");

/* By slot. A lookup here is a few instructions, where one in a hash of the same would take a third of the whole program's time. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, SLOTS);
	TYPE(key, u32);
	TYPE(value, struct counters);
} slots SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct settings);
} settings SEC(".maps");

/* By CPU. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct place);
} places SEC(".maps");

/* By CPU: the cgroup id of the container that owns it; 0 is none. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} owners SEC(".maps");

/* Allocated in advance: entries are made while the scheduler holds its locks. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, INTRUDERS_MAX);
	TYPE(key, struct intruder);
	TYPE(value, struct intrusion);
} intrusions SEC(".maps");

/* By the CPU that is owned: intrusions for which the map above had no room. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct unnamed);
} unnamed SEC(".maps");

/* What was charged of a task so far, and to which cgroup. The kernel frees it with the task. */
struct task_state {
	u64 exec_ns;
	u64 delay_ns;
	u64 involuntary;
	u64 cgroup;     /* the id of its cgroup when `container` was found */
	u64 container;  /* the id of the cgroup that is watched; 0: none */
	u64 generation; /* of the settings when `container` was found */
	u64 settled_ns; /* the CPU time of which it is settled whether events were counted in it */
	u32 slot;       /* of `container` */
	u32 is_known;
};

struct {
	NUMBER(type, MAP_TASK_STORAGE);
	NUMBER(map_flags, F_NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct task_state);
} tasks SEC(".maps");

inlined struct settings *read_settings(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&settings, &zero);
}

inlined u64 owner_of(u32 cpu)
{
	u64 *owner = bpf_map_lookup_elem(&owners, &cpu);
	return owner ? *owner : 0;
}

inlined struct intrusion *unnamed_of(u32 cpu, u32 kind)
{
	struct unnamed *of_cpu;
	u32 at = kind - 1;

	/* Before the lookup, so that what the verifier wants first of all is that there is something. */
	if (at >= KINDS)
		return 0;
	of_cpu = bpf_map_lookup_elem(&unnamed, &cpu);
	return of_cpu ? &of_cpu->by_kind[at] : 0;
}

/* Charges an intruder; from any CPU, hence atomically. */
inlined void charge_intruder(struct intruder *intruder, u64 ns, u64 times)
{
	struct intrusion *charged = bpf_map_lookup_elem(&intrusions, intruder);

	if (!charged) {
		struct intrusion none = {};
		bpf_map_update_elem(&intrusions, intruder, &none, F_NOEXIST);
		charged = bpf_map_lookup_elem(&intrusions, intruder);
	}
	if (!charged)
		charged = unnamed_of(intruder->cpu, intruder->kind);
	if (!charged)
		return;
	__sync_fetch_and_add(&charged->ns, ns);
	__sync_fetch_and_add(&charged->times, times);
}

#endif
