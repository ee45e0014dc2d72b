//! A model of the topology-aware policy of nri-plugins with its default configuration, on two packages with a NUMA node each, and of the NodeResourceTopology that it publishes.
//!
//! Pools are both packages and, above them, a root. A Guaranteed pod with whole CPUs gets them from the package that has most left of those that hold it, else from the root, which takes
//! them wherever they are. Burstable pods share a pool, chosen in the same way. CPUs of a pool that its sharing pods need are not taken: a package gives at most as many whole CPUs as it
//! has beyond their requests. CPUs are picked by whole idle cores in the order of their numbers, then by single CPUs of the package and the core of which most is taken.
//!
//! Publication: a zone for each pool (types `socket` and `virtual root`) with the CPUs that could still be shared, and one attribute, the policy's name. There is neither a policy of the
//! topology manager nor a fingerprint of pods. It is written when a container comes or goes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bayplan_types::{CpuId, CpuSet};
use serde_json::{Value as Json, json};

use super::model::{NodeModel, attribute, resource};
use super::pods::Ask;

/// Siblings have numbers that differ by so much.
const CORES: u32 = 16;
const CORES_PER_PACKAGE: u32 = 8;
const PACKAGES: [usize; 2] = [0, 1];

/// A pool of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Package(usize),
    Root,
}

struct Grant {
    pool: Pool,
    /// Own CPUs.
    exclusive: CpuSet,
    /// Thousandths of CPUs of the pool's shared ones.
    shared: u32,
}

pub(super) struct TopologyAware {
    reserved: CpuSet,
    /// CPUs that are shared, or free, by package.
    sharable: [CpuSet; 2],
    grants: BTreeMap<String, Grant>,
}

fn package_of(cpu: CpuId) -> usize {
    usize::from(cpu.0 % CORES >= CORES_PER_PACKAGE)
}

impl TopologyAware {
    pub(super) fn new(reserved: CpuSet) -> TopologyAware {
        let all = CpuSet::first_n(2 * CORES).difference(&reserved);
        let sharable = PACKAGES.map(|package| cpus_of(&all, package));
        TopologyAware { reserved, sharable, grants: BTreeMap::new() }
    }

    /// Thousandths that pods share at a pool and below it.
    fn granted(&self, pool: Pool) -> i64 {
        let is_below = |it: &&Grant| pool == Pool::Root || it.pool == pool;
        self.grants.values().filter(is_below).map(|it| i64::from(it.shared)).sum()
    }

    /// Thousandths of CPUs that are not taken.
    fn whole(&self, pool: Pool) -> i64 {
        let packages: &[usize] = match &pool {
            Pool::Package(package) => std::slice::from_ref(package),
            Pool::Root => &PACKAGES,
        };
        packages.iter().map(|it| self.sharable[*it].len() as i64 * 1000).sum()
    }

    /// Thousandths that a pool can still give, which its root has to have, too. Less than nothing where the root has taken CPUs that a package needs.
    fn allocatable(&self, pool: Pool) -> i64 {
        let of = |pool: Pool| self.whole(pool) - self.granted(pool);
        of(pool).min(of(Pool::Root))
    }

    /// CPUs that can be taken off a pool's shared ones.
    fn sliceable(&self, pool: Pool) -> CpuSet {
        let of = |package: usize| {
            let count = self.allocatable(Pool::Package(package)).max(0) / 1000;
            pick(&self.sharable[package], usize::try_from(count).unwrap()).unwrap_or_default()
        };
        match pool {
            Pool::Package(package) => of(package),
            Pool::Root => of(0).union(&of(1)),
        }
    }

    /// The package that has most left after this, or the root.
    fn choose(&self, milli: i64) -> Pool {
        let left = |package: usize| self.allocatable(Pool::Package(package)) - milli;
        let holding = PACKAGES.into_iter().filter(|it| left(*it) >= 0);
        let best = holding.max_by_key(|it| (left(*it), Reverse(*it)));
        best.map_or(Pool::Root, Pool::Package)
    }

    fn take(&mut self, pool: Pool, count: u32) -> Result<CpuSet, String> {
        let lacking = |what: &str| format!("can't slice {count} exclusive CPUs: {what}");
        if self.allocatable(pool) < i64::from(count) * 1000 {
            return Err(lacking("not available"));
        }
        let picked = pick(&self.sliceable(pool), count as usize);
        let picked = picked.ok_or_else(|| lacking("what is left is parts of CPUs"))?;
        self.sharable.iter_mut().for_each(|it| it.subtract(&picked));
        Ok(picked)
    }
}

fn cpus_of(cpus: &CpuSet, package: usize) -> CpuSet {
    cpus.iter().filter(|cpu| package_of(*cpu) == package).collect()
}

/// So many CPUs of these, as nri-plugins' CPU allocator picks them; `None`: there are not so many.
fn pick(from: &CpuSet, count: usize) -> Option<CpuSet> {
    if from.len() <= count {
        return (from.len() == count).then(|| from.clone());
    }
    let mut picked = CpuSet::new();
    let siblings = |core: u32| [CpuId(core), CpuId(core + CORES)];
    let is_idle = |core: &u32| siblings(*core).into_iter().all(|cpu| from.contains(cpu));
    for core in (0..CORES).filter(is_idle) {
        if count - picked.len() >= 2 {
            picked.extend(siblings(core));
        }
    }
    let left = from.difference(&picked);
    let mut threads: Vec<CpuId> = left.iter().collect();
    threads.sort_by_key(|cpu| {
        let package = package_of(*cpu);
        let of_core = siblings(cpu.0 % CORES).into_iter().filter(|it| left.contains(*it)).count();
        (cpus_of(&left, package).len(), package, of_core, *cpu)
    });
    picked.extend(threads.into_iter().take(count - picked.len()));
    Some(picked)
}

impl NodeModel for TopologyAware {
    fn admit(&mut self, pod: &str, ask: Ask) -> Result<usize, String> {
        let grant = match ask {
            Ask::Cpus(count) => {
                let pool = self.choose(i64::from(count) * 1000);
                Grant { pool, exclusive: self.take(pool, count)?, shared: 0 }
            }
            Ask::Share(milli) => {
                let pool = self.choose(i64::from(milli));
                if self.allocatable(pool) < i64::from(milli) {
                    return Err(format!("not enough sharable CPU for {milli}m"));
                }
                Grant { pool, exclusive: CpuSet::new(), shared: milli }
            }
        };
        let spanned = PACKAGES.into_iter().filter(|it| !cpus_of(&grant.exclusive, *it).is_empty());
        let spanned = spanned.count();
        self.grants.insert(pod.to_owned(), grant);
        Ok(spanned)
    }

    fn release(&mut self, pod: &str) {
        let grant = self.grants.remove(pod).unwrap();
        for package in PACKAGES {
            self.sharable[package].union_with(&cpus_of(&grant.exclusive, package));
        }
    }

    /// Kubelet creates the container again.
    fn refuses_for_good(&self) -> bool {
        false
    }

    fn is_published_at_once(&self, _: Ask) -> bool {
        true
    }

    fn publication(&self) -> Json {
        let all = CpuSet::first_n(2 * CORES);
        let zone = |pool: Pool| {
            let (name, kind, parent, mems) = match pool {
                Pool::Package(package) => {
                    (format!("socket #{package}"), "socket", Some("root"), package.to_string())
                }
                Pool::Root => ("root".to_owned(), "virtual root", None, "0,1".to_owned()),
            };
            let within = |cpus: &CpuSet| match pool {
                Pool::Package(package) => cpus_of(cpus, package),
                Pool::Root => cpus.clone(),
            };
            let cpus = within(&all).len();
            let shared = within(&self.sharable[0].union(&self.sharable[1]));
            let available = format!("{}m", self.allocatable(pool).max(0));
            let memory = ((64_u64 << 30) * mems.split(',').count() as u64).to_string();
            let mut attributes = vec![
                attribute("memory set", &mems),
                attribute("shared cpuset", &shared.to_string()),
            ];
            let reserved = within(&self.reserved);
            if !reserved.is_empty() {
                attributes.push(attribute("reserved cpuset", &reserved.to_string()));
            }
            let resources = [
                resource("memory", &memory, &memory),
                resource("cpu", &cpus.to_string(), &available),
            ];
            let mut zone = json!({
                "name": name, "type": kind, "resources": resources, "attributes": attributes,
            });
            if let Some(parent) = parent {
                zone["parent"] = json!(parent);
            }
            zone
        };
        let pools = [Pool::Package(0), Pool::Package(1), Pool::Root];
        json!({
            "attributes": [attribute("TopologyPolicy", "topology-aware")],
            "zones": pools.map(zone),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> TopologyAware {
        TopologyAware::new("0,16".parse().unwrap())
    }

    /// Admits pods, and shows own CPUs of the last.
    fn check(asks: &[Ask], expected: Result<&str, &str>) {
        let mut node = node();
        let (last, before) = asks.split_last().unwrap();
        for (number, ask) in before.iter().enumerate() {
            node.admit(&number.to_string(), *ask).unwrap();
        }
        let admitted = node.admit("last", *last).map(|_| node.grants["last"].exclusive.to_string());
        let admitted = admitted.as_ref().map(String::as_str).map_err(String::as_str);
        assert_eq!(admitted, expected, "{asks:?}");
    }

    #[test]
    fn cpus_come_from_the_emptiest_package_that_holds_them_else_from_both() {
        use Ask::{Cpus, Share};
        check(&[Cpus(4)], Ok("8-9,24-25"));
        check(&[Cpus(4), Cpus(4)], Ok("1-2,17-18"));
        // Twelve CPUs and ten are left, then two and ten.
        check(&[Cpus(4), Cpus(4), Cpus(10), Cpus(8)], Ok("3-6,19-22"));
        check(&[Cpus(10), Cpus(10), Cpus(8)], Ok("6-7,13-14,22-23,29-30"));
        check(
            &[Share(500), Cpus(10), Cpus(10), Cpus(10)],
            Err("can't slice 10 exclusive CPUs: not available"),
        );
        // Three and a half are left of each package.
        check(
            &[Cpus(2), Share(500), Share(500), Cpus(10), Cpus(10), Cpus(7)],
            Err("can't slice 7 exclusive CPUs: what is left is parts of CPUs"),
        );
    }

    #[test]
    fn what_is_taken_is_given_back() {
        let mut node = node();
        let before = node.publication();
        assert_eq!(node.admit("a", Ask::Cpus(10)), Ok(1));
        assert_eq!(node.admit("b", Ask::Cpus(10)), Ok(1));
        assert_eq!(node.admit("c", Ask::Cpus(9)), Ok(2));
        assert_eq!(node.admit("d", Ask::Share(500)), Ok(0));
        assert_ne!(node.publication(), before);
        for pod in ["a", "b", "c", "d"] {
            node.release(pod);
        }
        assert_eq!(node.publication(), before);
    }
}
