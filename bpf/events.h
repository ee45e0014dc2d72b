/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The counter probe. Every CPU counts some events all the time, whoever runs; at each switch they are read, and what has come since the last
 * reading on this CPU goes to the container of the task that leaves, or to nobody where the CPU stood still.
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

/* What this CPU's counters were when they were read last. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct event_counts);
} last_events SEC(".maps");

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

inlined void charge_event(void *map, u32 which, struct event_counts *last, struct event_counts *to)
{
	struct event_value value;
	u64 added;

	if (events_wanted <= which || bpf_perf_event_read_value(map, F_CURRENT_CPU, &value, sizeof(value)))
		return;
	added = advance(&last->counts[which], value.counter);
	if (to)
		to->counts[which] += added;
	if (which)
		return;
	/* All are one group: they count at the same time or not at all. */
	added = advance(&last->enabled_ns, value.enabled_ns);
	if (to)
		to->enabled_ns += added;
	added = advance(&last->running_ns, value.running_ns);
	if (to)
		to->running_ns += added;
}

/* Reads all counters of this CPU. Without interrupts, which `look_at_events` comes in: nobody else does so here at the same time. */
inlined void charge_events(struct event_counts *to)
{
	struct event_counts *last;
	u32 zero = 0;

	if (!events_wanted)
		return;
	last = bpf_map_lookup_elem(&last_events, &zero);
	if (!last)
		return;
	/* What was counted before the first reading is nobody's. */
	if (!last->enabled_ns)
		to = 0;
	charge_event(&event_0, 0, last, to);
	charge_event(&event_1, 1, last, to);
	charge_event(&event_2, 2, last, to);
	charge_event(&event_3, 3, last, to);
	charge_event(&event_4, 4, last, to);
}

inlined void charge_events_of(struct task_state *state)
{
	if (events_wanted)
		charge_events(bpf_map_lookup_elem(&events, &state->slot));
}

#endif
