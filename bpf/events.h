/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The counter probe. Every CPU counts some events all the time, whatever runs. They are read when the CPU goes from one container to another, or to
 * none, and what has come since the last reading goes to the one before. Between tasks of one container nothing is read, which is most of the cost.
 *
 * A CPU that changes hands again and again is not read each time: a reading is for READING_NS of its time, unused time is saved up for
 * READINGS_SAVED, and when they are used up nothing is read before so many are saved again. What ran meanwhile has time in which it was not counted,
 * as where others have taken the counters, and the user side extends what was counted and tells the two apart. Readings in a row, rather than one now
 * and then, so that runs of all tasks are among them.
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

/* Where readings take 350 ns they take at most a seventieth of a CPU. */
#define READING_NS 25000
#define READINGS_SAVED 64

/* A CPU. */
struct cpu_events {
	struct event_counts last; /* what its counters were when they were read last */
	u64 paid_until_ns;        /* the readings so far are for its time until then */
	u32 slot;                 /* the container of the task that is there */
	u32 is_counting;          /* the task's time is charged with the next reading */
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
	struct event_counts *to = 0;

	/* What was counted before belongs to no container. */
	if (cpu->is_counting)
		to = bpf_map_lookup_elem(&events, &cpu->slot);
	charge_leader(&cpu->last, to);
	charge_member(&event_1, 1, &cpu->last, to);
	charge_member(&event_2, 2, &cpu->last, to);
	charge_member(&event_3, 3, &cpu->last, to);
	charge_member(&event_4, 4, &cpu->last, to);
}

/* Whether enough readings are saved to begin. */
inlined int may_begin(struct cpu_events *cpu, u64 now)
{
	return cpu->paid_until_ns + READINGS_SAVED * READING_NS <= now;
}

/* Whether there is time for another reading after this one. */
inlined int pay_reading(struct cpu_events *cpu, u64 now)
{
	if (may_begin(cpu, now))
		cpu->paid_until_ns = now - READINGS_SAVED * READING_NS;
	cpu->paid_until_ns += READING_NS;
	return cpu->paid_until_ns <= now;
}

/* The scheduler's clock, as it was when this task came to its CPU or was charged last, which at a switch is now. */
inlined u64 scheduler_clock(struct task_struct *task)
{
	return task->se.exec_start;
}

/* From now on the CPU is with the tasks of `slot`; gives whether the time before was counted. */
inlined int hand_over_events(u32 slot, u64 now)
{
	u32 zero = 0;
	struct cpu_events *cpu = bpf_map_lookup_elem(&cpu_events, &zero);
	int was_counting;

	if (!cpu)
		return 0;
	was_counting = cpu->is_counting;
	if (was_counting ? cpu->slot != slot : may_begin(cpu, now)) {
		charge_events(cpu);
		cpu->is_counting = pay_reading(cpu, now);
	}
	cpu->slot = slot;
	return was_counting;
}

/* The same in the middle of a run. Called where no switch can come in between, so that nothing else runs this on this CPU at the same time. */
inlined int ask_events(u32 slot, u64 now)
{
	u32 zero = 0;
	struct cpu_events *cpu = bpf_map_lookup_elem(&cpu_events, &zero);
	int was_counting;

	if (!cpu)
		return 0;
	was_counting = cpu->is_counting;
	if (was_counting || may_begin(cpu, now)) {
		charge_events(cpu);
		cpu->is_counting = 1;
		cpu->slot = slot;
	}
	return was_counting;
}

/* Time of a run that was not counted. */
inlined void charge_uncounted(u32 slot, u64 ns)
{
	struct event_counts *to = bpf_map_lookup_elem(&events, &slot);

	/* Less than nothing would be a clock that was set back. */
	if (to && (s64)ns > 0) {
		to->enabled_ns += ns;
		to->unread_ns += ns;
	}
}

#endif
