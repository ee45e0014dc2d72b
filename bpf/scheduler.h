/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The scheduler probe. A task that leaves a CPU is charged what the scheduler itself has counted for it since it was charged last
 * (`sum_exec_runtime`, `run_delay`, `nivcsw`), so sums are right whatever happened in between, no clock is read and no wakeup is
 * watched. What is charged goes to the container that the task is in at that moment.
 */
#include "events.h"
#include "maps.h"

/* A container may have made cgroups of its own inside its. */
#define CGROUP_DEPTH_MAX 8

/* Finds the cgroup above `cgroup`, itself included, that is watched. */
inlined void find_container(struct cgroup *cgroup, struct task_state *state)
{
#pragma unroll
	for (int i = 0; i < CGROUP_DEPTH_MAX; i++) {
		struct cgroup_subsys_state *parent;
		u64 id = cgroup->kn->id;
		u32 *slot = bpf_map_lookup_elem(&containers, &id);

		if (slot) {
			state->container = id;
			state->slot = *slot;
			return;
		}
		parent = cgroup->self.parent;
		if (!parent)
			break;
		cgroup = parent->cgroup;
	}
	state->container = 0;
	state->slot = SLOT_OUTSIDE;
}

/* Brings `container` and `slot` up to date. */
inlined void find_container_of_task(struct task_struct *task, struct task_state *state, struct settings *set)
{
	struct cgroup *cgroup = task->cgroups->dfl_cgrp;
	u64 id = cgroup->kn->id;

	if (state->cgroup != id || state->generation != set->generation) {
		/* First, so that a change meanwhile is noticed at the next time. */
		state->generation = set->generation;
		find_container(cgroup, state);
		state->cgroup = id;
	}
}

/* What is known of a task. Of one that is older than the probe only what comes from now on counts. */
inlined struct task_state *remember(struct task_struct *task, struct settings *set)
{
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, F_STORAGE_CREATE);

	if (state && !state->is_known) {
		if (task->start_time < set->since_ns) {
			state->exec_ns = task->se.sum_exec_runtime;
			state->settled_ns = task->se.sum_exec_runtime;
			state->delay_ns = task->sched_info.run_delay;
			state->involuntary = task->nivcsw;
		}
		state->is_known = 1;
	}
	return state;
}

inlined u32 delay_bucket(u64 ns)
{
	u64 rest = ns >> (DELAY_BUCKET_FIRST_LOG2 - 1);
	u32 bucket = 0;

	if (rest >> 32)
		return DELAY_BUCKETS - 1;
	if (rest >> 16)
		bucket += 16, rest >>= 16;
	if (rest >> 8)
		bucket += 8, rest >>= 8;
	if (rest >> 4)
		bucket += 4, rest >>= 4;
	if (rest >> 2)
		bucket += 2, rest >>= 2;
	if (rest >> 1)
		bucket += 1;
	return bucket < DELAY_BUCKETS ? bucket : DELAY_BUCKETS - 1;
}

/* Charges a task to the audit where it ran on a CPU of another container. */
inlined void audit_task(struct task_struct *task, u32 cpu, u64 container, u64 cgroup, u64 ns, u64 times)
{
	u64 owner = owner_of(cpu);
	struct intruder intruder = { .cpu = cpu };

	if (!owner || owner == container)
		return;
	if (task->flags & PF_KTHREAD) {
		intruder.kind = KERNEL_THREAD;
	} else if (container) {
		intruder.kind = CONTAINER;
		intruder.who = container;
	} else {
		intruder.kind = PROCESS;
		intruder.who = cgroup;
	}
	bpf_probe_read_kernel(intruder.name, sizeof(intruder.name), &task->comm);
	charge_intruder(&intruder, ns, times);
}

inlined u32 preempter(u64 container, struct task_struct *next, struct settings *set)
{
	struct task_state *state;
	u64 other;

	if (next->pid == 0)
		return BY_NOBODY;
	state = remember(next, set);
	if (!state)
		return BY_SYSTEM;
	find_container_of_task(next, state, set);
	other = state->container;
	if (other == container)
		return BY_ITSELF;
	return other ? BY_CONTAINER : BY_SYSTEM;
}

/* The slot that pays for what CPUs count while a task runs. */
inlined u32 slot_of(struct task_struct *task, struct settings *set)
{
	struct task_state *state = task->pid ? remember(task, set) : 0;

	if (!state)
		return SLOT_NOBODY;
	find_container_of_task(task, state, set);
	return state->slot;
}

/* The time of a task since this was called for it last: events were counted in it, or it is charged as time in which they were not. */
inlined void settle_events(struct task_struct *task, struct task_state *state, int is_counted)
{
	u64 now = task->se.sum_exec_runtime;

	if (!is_counted)
		charge_uncounted(state->slot, now - state->settled_ns);
	state->settled_ns = now;
}

/* sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, ..) */
SEC("tp_btf/sched_switch")
int switched(u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	struct settings *set = read_settings();
	u32 cpu = bpf_get_smp_processor_id();
	struct task_state *state;
	struct counters *counters;
	u64 container, now, exec_ns, delay_ns, involuntary;
	u32 bucket, by;
	int is_counted = 1;

	if (!set)
		return 0;
	if (events_wanted)
		is_counted = hand_over_events(slot_of(next, set), scheduler_clock(prev->pid ? prev : next));
	if (prev->pid == 0)
		return 0;
	state = remember(prev, set);
	if (!state)
		return 0;
	find_container_of_task(prev, state, set);
	container = state->container;
	counters = bpf_map_lookup_elem(&slots, &state->slot);
	if (!counters)
		return 0;

	/* `look_at_tasks` may be charging the same task on another CPU: the later of both finds less or less than nothing. */
	now = prev->se.sum_exec_runtime;
	exec_ns = now - __sync_lock_test_and_set(&state->exec_ns, now);
	now = prev->sched_info.run_delay;
	delay_ns = now - state->delay_ns;
	state->delay_ns = now;
	now = prev->nivcsw;
	involuntary = now - state->involuntary;
	state->involuntary = now;

	if (events_wanted)
		settle_events(prev, state, is_counted);
	counters->exec_ns += exec_ns;
	counters->runs += 1;
	counters->delay_ns += delay_ns;
	bucket = delay_bucket(delay_ns);
	if (bucket < DELAY_BUCKETS)
		counters->delays[bucket] += 1;
	if (involuntary) {
		counters->involuntary += involuntary;
		by = preempter(container, next, set);
		if (by < PREEMPTERS)
			counters->preempted_by[by] += 1;
	}
	audit_task(prev, cpu, container, state->cgroup, exec_ns, 1);
	return 0;
}

inlined u32 distance(u32 from, u32 to)
{
	struct place *a = bpf_map_lookup_elem(&places, &from);
	struct place *b = bpf_map_lookup_elem(&places, &to);

	if (!a || !b)
		return ACROSS_PACKAGES;
	if (a->core && a->core == b->core)
		return SAME_CORE;
	if (a->l3 && a->l3 == b->l3)
		return SAME_L3;
	if (a->node && a->node == b->node)
		return SAME_NODE;
	if (a->package && a->package == b->package)
		return SAME_PACKAGE;
	return ACROSS_PACKAGES;
}

/* sched_migrate_task(struct task_struct *p, int dest_cpu) */
SEC("tp_btf/sched_migrate_task")
int migrated(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 to = ctx[1];
	struct settings *set = read_settings();
	struct task_state *state;
	struct counters *counters;
	u32 far;

	if (!set)
		return 0;
	state = remember(task, set);
	if (!state)
		return 0;
	find_container_of_task(task, state, set);
	counters = bpf_map_lookup_elem(&slots, &state->slot);
	far = distance(task->thread_info.cpu, to);
	if (counters && far < DISTANCES)
		counters->migrations[far] += 1;
	return 0;
}

/*
 * Charges every task for what it has run so far: a task that is never interrupted would not be seen otherwise, nor the last run of one that rests
 * after a switch that this side was not told of. Such a task may have been woken for another CPU than the one it ran on, so it is charged to no
 * owner. The first look also remembers where each task stood.
 */
SEC("iter/task")
int look_at_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct settings *set = read_settings();
	struct task_state *state;
	struct counters *counters;
	u64 container, now, exec_ns;

	if (!task || !set)
		return 0;
	if (!set->since_ns)
		set->since_ns = bpf_ktime_get_ns();
	if (task->pid == 0)
		return 0;
	state = remember(task, set);
	now = task->se.sum_exec_runtime;
	if (!state || state->exec_ns == now)
		return 0;
	find_container_of_task(task, state, set);
	container = state->container;
	counters = bpf_map_lookup_elem(&slots, &state->slot);
	if (!counters)
		return 0;
	exec_ns = now - __sync_lock_test_and_set(&state->exec_ns, now);
	/* A task that switches on this CPU may add to the same counters in the middle of this program. */
	__sync_fetch_and_add(&counters->exec_ns, exec_ns);
	if (task->on_cpu)
		audit_task(task, task->thread_info.cpu, container, state->cgroup, exec_ns, 0);
	return 0;
}

/*
 * The same for events, which can be read only on the CPU that counts them. Attached to nothing: the user side has it run on every CPU, where it
 * interrupts the task that it charges.
 */
SEC("raw_tp/sched_switch")
int look_at_events(u64 *ctx)
{
	struct settings *set = read_settings();
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state;
	int was_counting;

	if (!set)
		return 0;
	was_counting = ask_events(slot_of(task, set), scheduler_clock(task));
	state = task->pid ? remember(task, set) : 0;
	if (state)
		settle_events(task, state, was_counting);
	return 0;
}
