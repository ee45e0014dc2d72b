/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The probes, one file each, as one object: they share maps. */
#include "interrupts.h"
#include "scheduler.h"

/* What it costs to be called at all. For measurements; nothing else attaches it. */
SEC("tp_btf/sched_switch")
int nothing(u64 *ctx)
{
	return 0;
}

/* The kernel lets only programs under its own licence read its memory. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
