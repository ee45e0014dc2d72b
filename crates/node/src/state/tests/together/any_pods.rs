//! Random histories of two pods: whatever happens, the containers of a pod stay within it.

use super::*;

/// What happens to one of two pods.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create { is_own: bool, cpus: u64 },
    End(usize),
    ResizePod { cpus: u64, is_pod_first: bool },
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<(bool, Act)>> {
    let act = prop_oneof![
        4 => (any::<bool>(), 1..3_u64).prop_map(|(is_own, cpus)| Act::Create { is_own, cpus }),
        2 => (0..4_usize).prop_map(Act::End),
        2 => (2..6_u64, any::<bool>())
            .prop_map(|(cpus, is_pod_first)| Act::ResizePod { cpus, is_pod_first }),
        1 => Just(Act::Restart),
    ];
    prop::collection::vec((any::<bool>(), act), 1..24)
}

/// A pod as kubelet has it: its figure in CPUs, and its containers, each with its own CPUs or with none.
struct Told {
    id: &'static str,
    is_guaranteed: bool,
    cpus: u64,
    containers: Vec<(String, Option<u64>)>,
    made: usize,
}

impl Told {
    /// Of a Burstable pod the limit is 8 CPUs more.
    fn limit(&self) -> u64 {
        if self.is_guaranteed { self.cpus } else { self.cpus + 8 }
    }

    fn whole(&self) -> String {
        format!("{}/{} {}", self.cpus * 1000, self.limit() * 1000, self.cpus)
    }

    fn settings(&self, own: Option<u64>) -> String {
        match own {
            Some(own) => format!("{}/{} {own}", own * 1000, own * 1000),
            None => format!("{}/{} {}", self.limit() * 1000, self.limit() * 1000, self.cpus),
        }
    }

    fn own(&self) -> u64 {
        self.containers.iter().filter_map(|(_, own)| *own).sum()
    }
}

impl Node {
    fn play(&mut self, pod: &mut Told, act: Act) -> Result<(), TestCaseError> {
        let bound = pod.cpus;
        match act {
            Act::Create { is_own, cpus } => {
                let own = is_own.then_some(cpus);
                if pod.own() + own.unwrap_or(0) > pod.cpus {
                    return Ok(());
                }
                pod.made += 1;
                let name = format!("c{}", pod.made);
                let spec = container(pod.id, &name, &pod.settings(own), &pod.whole());
                prop_assert_eq!(self.create(spec), None);
                pod.containers.push((name, own));
            }
            Act::End(index) => {
                if index < pod.containers.len() {
                    let (name, _) = pod.containers.remove(index);
                    self.step(Event::Ended(format!("{}/{name}", pod.id)));
                }
            }
            Act::ResizePod { cpus, is_pod_first } => {
                if cpus < pod.own() {
                    return Ok(());
                }
                pod.cpus = cpus;
                if is_pod_first {
                    self.step(Event::PodResized(pod.id.to_owned(), written(&pod.whole())));
                    self.hold_within(pod, bound.max(cpus))?;
                }
                let silent = pod.containers.iter().filter(|(_, own)| own.is_none());
                for (name, _) in silent.clone() {
                    let to = written(&pod.settings(None));
                    prop_assert_eq!(self.resize(&format!("{}/{name}", pod.id), to), None);
                    self.hold_within(pod, bound.max(cpus))?;
                }
                self.step(Event::PodResized(pod.id.to_owned(), written(&pod.whole())));
            }
            Act::Restart => self.restart(),
        }
        self.hold_within(pod, pod.cpus)
    }

    /// The containers of the pod hold no more than this together, CPUs and GiB, and the silent ones run on the same CPUs, where nothing
    /// else runs.
    fn hold_within(&self, pod: &Told, cpus: u64) -> Result<(), TestCaseError> {
        let of_pod = |it: &&Container| it.spec.pod.id == pod.id;
        let ids: Vec<ContainerId> =
            self.state.containers.iter().filter(|(_, it)| of_pod(it)).map(|(id, _)| *id).collect();
        let held: Vec<_> =
            ids.iter().map(|id| self.state.ledger.allocation(*id).unwrap()).collect();
        let time: u64 = held
            .iter()
            .map(|it| it.exclusive.len() as u64 * 1000 + it.shared.unwrap_or_default().0)
            .sum();
        prop_assert!(time <= cpus * 1000, "{time}m of {cpus}\n{}", self.shown());
        let memory: Bytes = held.iter().flat_map(|it| &it.charges).map(|(_, bytes)| *bytes).sum();
        let is_expected = held.iter().any(|it| it.terms.memory_is_expected);
        prop_assert!(is_expected || memory <= Bytes::gib(cpus), "{}", self.shown());
        if !pod.is_guaranteed {
            return Ok(());
        }
        let cpus_of = |id: &ContainerId| self.state.pinning(*id).unwrap().cpus;
        let mine = ids.iter().fold(CpuSet::new(), |all, id| all.union(&cpus_of(id)));
        let is_all_owned = held.iter().all(|it| it.shared.is_none());
        for other in self.state.containers.ids().filter(|id| !ids.contains(id)) {
            prop_assert!(!is_all_owned || !cpus_of(other).intersects(&mine), "{}", self.shown());
        }
        let joined = ids.iter().zip(&held).filter(|(_, it)| it.terms.part != Part::Alone);
        let sets: BTreeSet<String> = joined.map(|(id, _)| cpus_of(id).to_string()).collect();
        prop_assert!(sets.len() <= 1, "{sets:?}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The containers of a pod together never hold more than the pod asked for, nothing that fits is refused, and a restart changes nothing.
    #[test]
    fn the_containers_of_a_pod_stay_within_it(acts in acts()) {
        let mut node = Node::new("numa:2 core:8 mem:64");
        let pod = |id, is_guaranteed| Told { id, is_guaranteed, cpus: 4, containers: Vec::new(), made: 0 };
        let mut pods = [pod("g", true), pod("b", false)];
        for (is_first, act) in acts {
            node.play(&mut pods[usize::from(!is_first)], act)?;
        }
        for pod in &mut pods {
            while !pod.containers.is_empty() {
                node.play(pod, Act::End(0))?;
            }
        }
        let empty = state("numa:2 core:8 mem:64");
        prop_assert_eq!(node.state.ledger.holdings(), empty.ledger.holdings());
    }
}
