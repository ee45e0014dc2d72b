/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The counter probe. Every CPU counts some events all the time, whoever runs. They are read when the CPU goes from one container to another, or to
 * nobody, and what has come since the last reading goes to the one before. Between tasks of one container nothing is read, which is most of the cost.
 */
#ifndef BAYPLAN_EVENTS_H
#define BAYPLAN_EVENTS_H

#include "maps.h"

/* How many are counted: the first of the maps below. The user side writes it before the programs are loaded, and what is not needed goes. */
const volatile u32 events_wanted = 0;

/* By CPU: one counter each. Without a length they get one of as many as there are CPUs. */
#define EVENT(name) \
	struct { \
		NUMBER(type, MAP_PERF_EVENT_ARRAY); \
		NUMBER(max_entries, 0); \
		TYPE(key, u32); \
		TYPE(value, u32); \
	} name SEC(".maps");

EVENT(event_0)
EVENT(event_1)
EVENT(event_2)
EVENT(event_3)
EVENT(event_4)

/* The slot of a CPU that stands still. */
#define SLOT_NOBODY 0xffffffff

/* A CPU. */
struct cpu_events {
	struct event_counts last; /* what its counters were when they were read last */
	u32 slot;                 /* whose tasks have run since then */
	u32 unused;
};

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct cpu_events);
} cpu_events SEC(".maps");

/* By slot, as long as `slots` where anything is counted. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct event_counts);
} events SEC(".maps");

/* What has come to a counter. One that is smaller than before has been opened anew, since its CPU was away. */
inlined u64 advance(u64 *last, u64 now)
{
	u64 added = now < *last ? now : now - *last;

	*last = now;
	return added;
}

/* The first of the group, with the time: all of a group count at the same time or not at all. Telling the time is what costs most. */
inlined void charge_leader(struct event_counts *last, struct event_counts *to)
{
	struct event_value value;
	u64 count, enabled_ns, running_ns;

	if (bpf_perf_event_read_value(&event_0, F_CURRENT_CPU, &value, sizeof(value)))
		return;
	count = advance(&last->counts[0], value.counter);
	enabled_ns = advance(&last->enabled_ns, value.enabled_ns);
	running_ns = advance(&last->running_ns, value.running_ns);
	if (!to)
		return;
	to->counts[0] += count;
	to->enabled_ns += enabled_ns;
	to->running_ns += running_ns;
}

/* Another of the group. No counter comes to where numbers are negative, so those are errors: this CPU has no such. */
inlined void charge_member(void *map, u32 which, struct event_counts *last, struct event_counts *to)
{
	s64 count;

	if (events_wanted <= which)
		return;
	count = bpf_perf_event_read(map, F_CURRENT_CPU);
	if (count < 0)
		return;
	count = advance(&last->counts[which], count);
	if (to)
		to->counts[which] += count;
}

/* Reads all counters of this CPU, and charges what has come. */
inlined void charge_events(struct cpu_events *cpu)
{
	struct event_counts *to = bpf_map_lookup_elem(&events, &cpu->slot);

	/* What was counted before the first reading is nobody's. */
	if (!cpu->last.enabled_ns)
		to = 0;
	charge_leader(&cpu->last, to);
	charge_member(&event_1, 1, &cpu->last, to);
	charge_member(&event_2, 2, &cpu->last, to);
	charge_member(&event_3, 3, &cpu->last, to);
	charge_member(&event_4, 4, &cpu->last, to);
}

/*
 * From now on the CPU is with the tasks of `slot`. `is_asked`: reads the counters in any case. Called where no switch can come in between, so that
 * nobody else is here on this CPU at the same time.
 */
inlined void hand_over_events(u32 slot, int is_asked)
{
	u32 zero = 0;
	struct cpu_events *cpu = bpf_map_lookup_elem(&cpu_events, &zero);

	if (!cpu || (cpu->slot == slot && !is_asked))
		return;
	charge_events(cpu);
	cpu->slot = slot;
}

#endif
