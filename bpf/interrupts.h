/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The isolation audit's other half: interrupts on exclusive CPUs. On other CPUs these programs end after one look. The time of a softirq is without
 * the interrupts that came in between.
 */
#include "maps.h"

struct interrupted {
	u64 hard_since_ns; /* 0: no interrupt is being handled */
	u64 soft_since_ns; /* 0: no softirq is being handled */
	u64 inside_ns;     /* of the softirq's time that of interrupts */
};

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct interrupted);
} interrupts SEC(".maps");

/* The state of this CPU; null where it has no owner. */
inlined struct interrupted *on_owned_cpu(void)
{
	u32 zero = 0;
	return owner_of(bpf_get_smp_processor_id()) ? bpf_map_lookup_elem(&interrupts, &zero) : 0;
}

inlined int enter_hard(void)
{
	struct interrupted *state = on_owned_cpu();
	if (state)
		state->hard_since_ns = bpf_ktime_get_ns();
	return 0;
}

inlined int leave_hard(u32 kind, u64 who, struct irqaction *action)
{
	struct interrupted *state = on_owned_cpu();
	struct intruder intruder = { .kind = kind, .who = who };
	u64 ns;

	if (!state || !state->hard_since_ns)
		return 0;
	ns = bpf_ktime_get_ns() - state->hard_since_ns;
	state->hard_since_ns = 0;
	if (state->soft_since_ns)
		state->inside_ns += ns;
	intruder.cpu = bpf_get_smp_processor_id();
	if (action)
		bpf_probe_read_kernel_str(intruder.name, sizeof(intruder.name), action->name);
	charge_intruder(&intruder, ns, 1);
	return 0;
}

/* irq_handler_entry(int irq, struct irqaction *action) */
SEC("tp_btf/irq_handler_entry")
int irq_entered(u64 *ctx)
{
	return enter_hard();
}

/* irq_handler_exit(int irq, struct irqaction *action, int ret) */
SEC("tp_btf/irq_handler_exit")
int irq_left(u64 *ctx)
{
	return leave_hard(INTERRUPT, (u32)ctx[0], (void *)ctx[1]);
}

/* softirq_entry(unsigned int vec_nr) */
SEC("tp_btf/softirq_entry")
int softirq_entered(u64 *ctx)
{
	struct interrupted *state = on_owned_cpu();
	if (state) {
		state->soft_since_ns = bpf_ktime_get_ns();
		state->inside_ns = 0;
	}
	return 0;
}

/* softirq_exit(unsigned int vec_nr) */
SEC("tp_btf/softirq_exit")
int softirq_left(u64 *ctx)
{
	struct interrupted *state = on_owned_cpu();
	struct intruder intruder = { .kind = SOFTIRQ, .who = (u32)ctx[0] };
	u64 ns;

	if (!state || !state->soft_since_ns)
		return 0;
	ns = bpf_ktime_get_ns() - state->soft_since_ns - state->inside_ns;
	state->soft_since_ns = 0;
	intruder.cpu = bpf_get_smp_processor_id();
	charge_intruder(&intruder, ns, 1);
	return 0;
}

/* NAME_entry(int vector), NAME_exit(int vector): arch/x86/include/asm/trace/irq_vectors.h. Other architectures have none of them. */
#define WATCH_VECTOR(name, which) \
	SEC("tp_btf/" #name "_entry") int name##_entered(u64 *ctx) { return enter_hard(); } \
	SEC("tp_btf/" #name "_exit") int name##_left(u64 *ctx) { return leave_hard(VECTOR, which, 0); }

WATCH_VECTOR(local_timer, LOCAL_TIMER)
WATCH_VECTOR(reschedule, RESCHEDULE)
WATCH_VECTOR(call_function, CALL_FUNCTION)
WATCH_VECTOR(call_function_single, CALL_FUNCTION_SINGLE)
WATCH_VECTOR(irq_work, IRQ_WORK)
