/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side and the user side exchange. `crates/probes/src/records.rs` reads the same words in the same order, and has a test for that; both check the
 * sizes. Everything is in the byte order of the machine. Times are in nanoseconds, counts never go down.
 */
#ifndef BAYPLAN_RECORDS_H
#define BAYPLAN_RECORDS_H

/* How far a task was moved; an index into `counters.migrations`. */
enum distance { SAME_CORE, SAME_L3, SAME_NODE, SAME_PACKAGE, ACROSS_PACKAGES, DISTANCES };

/* What a task had to leave the CPU for; an index into `counters.preempted_by`. */
enum preempter {
	BY_ITSELF,    /* another task of the same container, or of the system */
	BY_CONTAINER, /* a task of another container */
	BY_SYSTEM,    /* a task of no container */
	BY_NOBODY,    /* the CPU stood still: the time that its cgroup may have was used up */
	PREEMPTERS,
};

/* Bucket 0: below 2^10 ns. Bucket i: from 2^(9+i) to below 2^(10+i) ns. The last one has no upper end. */
#define DELAY_BUCKETS 19
#define DELAY_BUCKET_FIRST_LOG2 10

/* The slot of the counters of all tasks that are in no container. */
#define SLOT_OUTSIDE 0

/* What happened to the tasks of one container on one CPU since it was first watched. */
struct counters {
	u64 exec_ns;     /* on a CPU, by the scheduler's own clock (`sum_exec_runtime`) */
	u64 runs;        /* times that a task left a CPU */
	u64 delay_ns;    /* runnable and not on a CPU (`sched_info.run_delay`) */
	u64 involuntary; /* times that a task left a CPU and could have gone on (`nivcsw`) */
	u64 preempted_by[PREEMPTERS];
	u64 migrations[DISTANCES];
	u64 delays[DELAY_BUCKETS]; /* runs by the delay before each */
};
_Static_assert(sizeof(struct counters) == 32 * 8, "records.rs knows 32 words");

/* What a CPU belongs to. Each is the lowest CPU of the object plus one; 0: it belongs to none. */
struct place {
	u32 core;
	u32 l3;
	u32 node;
	u32 package;
};
_Static_assert(sizeof(struct place) == 4 * 4, "records.rs knows 4 half words");

enum intruder_kind {
	KERNEL_THREAD = 1, /* `who` is 0 */
	CONTAINER,         /* `who` is the cgroup id under which it is watched */
	PROCESS,           /* `who` is the id of its cgroup */
	INTERRUPT,         /* `who` is the interrupt number */
	SOFTIRQ,           /* `who` is its number (include/linux/interrupt.h) */
	VECTOR,            /* `who` is one of `enum vector` */
	KINDS = VECTOR,
};

/* Interrupts that CPUs send to themselves and each other, which have no number. */
enum vector { LOCAL_TIMER, RESCHEDULE, CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK };

/* An intruder on a CPU that a container owns. */
struct intruder {
	u32 cpu;
	u32 kind;
	u64 who;
	char name[16]; /* of the task or of the interrupt's action; ends with 0 where shorter */
};
_Static_assert(sizeof(struct intruder) == 4 * 8, "records.rs knows 4 words");

/* How much. */
struct intrusion {
	u64 ns;
	u64 times;
};
_Static_assert(sizeof(struct intrusion) == 2 * 8, "records.rs knows 2 words");

/* Of one CPU, the intrusions for which there was no room to name the intruder; the first is of kind 1. */
struct unnamed {
	struct intrusion by_kind[KINDS];
};
_Static_assert(sizeof(struct unnamed) == 12 * 8, "records.rs knows 12 words");

/* Events that processors or the kernel count, at most so many; which they are only the user side knows. */
#define EVENTS_MAX 5

/* What was counted while tasks of one container were on one CPU, and how long the counters could have counted and did. */
struct event_counts {
	u64 enabled_ns;
	u64 running_ns;
	u64 unread_ns; /* of `enabled_ns`: the CPU changed hands too often to read them */
	u64 counts[EVENTS_MAX];
};
_Static_assert(sizeof(struct event_counts) == 8 * 8, "records.rs knows 8 words");

/* Word from either side to the other. */
struct settings {
	u64 since_ns;   /* CLOCK_MONOTONIC of the first look at all tasks; written by the kernel side */
	u64 generation; /* the user side counts up when it has changed `containers` */
};
_Static_assert(sizeof(struct settings) == 2 * 8, "records.rs knows 2 words");

#endif
