/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the probes know of the kernel: only the fields that they read. The loader puts the offsets of the running kernel in
 * (`preserve_access_index`), so order and neighbours of these fields mean nothing.
 */
#ifndef BAYPLAN_KERNEL_H
#define BAYPLAN_KERNEL_H

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define inlined static inline __attribute__((always_inline))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay;
};

struct thread_info {
	u32 cpu;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	int pid;
	unsigned long nivcsw;
	u64 start_time;
	char comm[16];
	struct css_set *cgroups;
};

struct irqaction {
	const char *name;
};

struct bpf_iter__task {
	struct task_struct *task;
};

#pragma clang attribute pop

/* include/uapi/linux/bpf.h: struct bpf_perf_event_value. */
struct event_value {
	u64 counter;
	u64 enabled_ns;
	u64 running_ns;
};

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

/* include/uapi/linux/bpf.h: enum bpf_map_type, bpf_attr.map_flags, enum bpf_func_id. */
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERF_EVENT_ARRAY 4
#define MAP_PERCPU_HASH 5
#define MAP_PERCPU_ARRAY 6
#define MAP_TASK_STORAGE 29
#define F_NO_PREALLOC 1
#define F_STORAGE_CREATE 1
#define F_NOEXIST 1
#define F_CURRENT_CPU 0xffffffffULL

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static s64 (*bpf_perf_event_read)(void *map, u64 flags) = (void *)22;
static long (*bpf_perf_event_read_value)(void *map, u64 flags, struct event_value *to, u32 size) = (void *)55;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static void *(*bpf_task_storage_get)(void *map, struct task_struct *task, void *value, u64 flags) = (void *)156;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;

/* A map as the loader reads it from the type information. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

#endif
