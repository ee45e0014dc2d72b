//! CPU time by weight. In: which tenant wants how much on which CPUs. Out: time of every tenant on every CPU.
//! Guarantees: no CPU gives more than it has, no tenant gets more than it wants, and the idle class gets only what all others leave.

/// What one container asks of the scheduler.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    /// CPUs by position, ascending.
    pub(super) cpus: &'a [usize],
    /// `cpu.weight`.
    pub(super) weight: f64,
    /// `cpu.idle`.
    pub(super) is_idle: bool,
    /// CPUs that it would keep busy; its limit is already in it.
    pub(super) want: f64,
}

/// Amounts by container and CPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    cpus: usize,
    amounts: Vec<f64>,
}

impl Table {
    pub(super) fn new(tenants: usize, cpus: usize) -> Table {
        Table { cpus, amounts: vec![0.0; tenants * cpus] }
    }

    pub(super) fn row(&self, tenant: usize) -> &[f64] {
        self.amounts.get(tenant * self.cpus..(tenant + 1) * self.cpus).unwrap_or_default()
    }

    pub(super) fn row_mut(&mut self, tenant: usize) -> &mut [f64] {
        self.amounts.get_mut(tenant * self.cpus..(tenant + 1) * self.cpus).unwrap_or_default()
    }

    /// Of all containers together, by CPU.
    pub(super) fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.cpus];
        for row in self.amounts.chunks(self.cpus.max(1)) {
            loads.iter_mut().zip(row).for_each(|(load, amount)| *load += amount);
        }
        loads
    }
}

/// Time by container and CPU. `spread` says how each container's threads lie on its CPUs, rows that sum to 1; what finds no room there goes where room is left, as the
/// kernel's load balancing does.
pub(super) fn share(asks: &[Ask<'_>], spread: &Table, cpus: usize) -> Table {
    let mut given = Table::new(asks.len(), cpus);
    let mut room = vec![1.0; cpus];
    for is_idle in [false, true] {
        let of_class = |tenant: &usize| asks[*tenant].is_idle == is_idle;
        let mut class: Vec<usize> = (0..asks.len()).filter(of_class).collect();
        for round in 0..3 {
            class.retain(|tenant| unmet(&asks[*tenant], given.row(*tenant)) > 1e-9);
            if class.is_empty() {
                break;
            }
            let mut wanted = Table::new(class.len(), cpus);
            for (row, tenant) in class.iter().enumerate() {
                let lies = (round == 0).then(|| spread.row(*tenant));
                want(&asks[*tenant], given.row(*tenant), lies, &room, wanted.row_mut(row));
            }
            for (cpu, room) in room.iter_mut().enumerate() {
                fill(asks, &class, cpu, &wanted, &mut given, room);
            }
        }
    }
    given
}

fn unmet(ask: &Ask<'_>, given: &[f64]) -> f64 {
    ask.want - given.iter().sum::<f64>()
}

/// What `ask` has not got yet, put on its CPUs: as its threads lie, or by room.
fn want(ask: &Ask<'_>, given: &[f64], lies: Option<&[f64]>, room: &[f64], wanted: &mut [f64]) {
    let unmet = unmet(ask, given);
    let by = lies.unwrap_or(room);
    let total: f64 = ask.cpus.iter().map(|cpu| by[*cpu]).sum();
    if total <= 1e-9 {
        return;
    }
    for cpu in ask.cpus {
        wanted[*cpu] = (unmet * by[*cpu] / total).min(1.0 - given[*cpu]);
    }
}

/// Shares the room of one CPU by weight; a tenant that wants less than its share leaves the rest to the others.
fn fill(
    asks: &[Ask<'_>],
    class: &[usize],
    cpu: usize,
    wanted: &Table,
    given: &mut Table,
    room: &mut f64,
) {
    let mut open: Vec<(usize, f64, f64)> = class
        .iter()
        .enumerate()
        .map(|(row, tenant)| (*tenant, wanted.row(row)[cpu], asks[*tenant].weight))
        .filter(|(_, wanted, _)| *wanted > 0.0)
        .collect();
    while !open.is_empty() && *room > 1e-9 {
        let weights: f64 = open.iter().map(|(_, _, weight)| weight).sum();
        let per_weight = *room / weights;
        let modest = |(_, wanted, weight): &(usize, f64, f64)| *wanted <= per_weight * weight;
        let none_is_modest = !open.iter().any(modest);
        let mut rest = Vec::new();
        for (tenant, wanted, weight) in open {
            if none_is_modest || modest(&(tenant, wanted, weight)) {
                let amount = wanted.min(per_weight * weight);
                given.row_mut(tenant)[cpu] += amount;
                *room -= amount;
            } else {
                rest.push((tenant, wanted, weight));
            }
        }
        open = rest;
    }
    *room = room.max(0.0);
}
