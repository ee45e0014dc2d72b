//! Calls, one after the other or from many clients at once, on one connection as kubelet has it.

use std::time::{Duration, Instant};

use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_types::{Bytes, QosClass};

use crate::ways::{Way, Ways};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Version,
    List,
    CreateShared,
    CreateExclusive,
}

impl Call {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Call::Version => "Version",
            Call::List => "ListContainers of 100",
            Call::CreateShared => "CreateContainer, shared",
            Call::CreateExclusive => "CreateContainer, 2 exclusive",
        }
    }

    fn qos(self) -> QosClass {
        if self == Call::CreateExclusive { QosClass::Guaranteed } else { QosClass::Burstable }
    }

    fn container(self) -> ContainerSpec {
        match self.qos() {
            QosClass::Guaranteed => ContainerSpec::guaranteed("new", 2000, Bytes::gib(1)),
            _ => ContainerSpec::burstable("new", 500),
        }
    }
}

/// What one way took for all calls of a kind.
pub(crate) struct Figures {
    pub(crate) way: &'static str,
    latencies: Vec<Duration>,
    busy: Duration,
    cpu: Option<Duration>,
}

impl Figures {
    /// Microseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let index = (self.latencies.len() * percent / 100).min(self.latencies.len() - 1);
        self.latencies[index].as_secs_f64() * 1e6
    }

    /// Of calls only; what is cleaned up in between does not count.
    pub(crate) fn calls_per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.busy.as_secs_f64()
    }

    /// Microseconds of the process in between, cleaning up included.
    pub(crate) fn cpu_per_call(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() * 1e6 / self.latencies.len() as f64)
    }
}

/// Blocks of `clients` times `calls` calls; the ways take turns, `rounds` times.
pub(crate) async fn measure(
    ways: &Ways,
    call: Call,
    clients: usize,
    calls: usize,
    rounds: u64,
) -> Vec<Figures> {
    let mut figures = Vec::new();
    let mut houses = Vec::new();
    for way in ways.all() {
        houses.push((way, clients_of(way, call, clients).await));
        let cpu = ways.process(way).map(|_| Duration::ZERO);
        figures.push(Figures { way: way.name, latencies: Vec::new(), busy: Duration::ZERO, cpu });
    }
    for _ in 0..rounds {
        for ((way, clients), figures) in houses.iter_mut().zip(&mut figures) {
            let before = ways.process(way).map(|process| process.cpu());
            let block = block(clients, call, calls).await;
            let after = ways.process(way).map(|process| process.cpu());
            figures.latencies.extend(block.latencies);
            figures.busy += block.busy;
            if let (Some(sum), Some(before), Some(after)) = (&mut figures.cpu, before, after) {
                *sum += after - before;
            }
        }
    }
    for (_, clients) in houses {
        for mut client in clients {
            client.kubelet.end_pod(&client.pod).await.unwrap();
        }
    }
    for figures in &mut figures {
        figures.latencies.sort_unstable();
    }
    figures
}

struct Client {
    kubelet: Kubelet,
    pod: RunningPod,
}

async fn clients_of(way: &Way, call: Call, count: usize) -> Vec<Client> {
    // Clones share the connection.
    let kubelet = way.kubelet();
    let mut clients = Vec::new();
    for number in 0..count {
        let mut kubelet = kubelet.clone();
        let name = format!("{}-{number}", way.name.to_lowercase());
        let pod = kubelet.run_pod(&PodSpec::new(&name, call.qos())).await.unwrap();
        clients.push(Client { kubelet, pod });
    }
    clients
}

#[derive(Default)]
struct Block {
    latencies: Vec<Duration>,
    busy: Duration,
}

/// Every client makes its first call, then all their second, and so on; what they made is removed in between.
async fn block(clients: &mut Vec<Client>, call: Call, calls: usize) -> Block {
    let mut block = Block::default();
    for _ in 0..calls {
        let started = Instant::now();
        let tasks: Vec<_> = clients
            .drain(..)
            .map(|mut client| {
                tokio::spawn(async move {
                    let started = Instant::now();
                    let made = one(&mut client, call).await;
                    (client, made, started.elapsed())
                })
            })
            .collect();
        let mut made = Vec::new();
        for task in tasks {
            let (client, id, latency) = task.await.unwrap();
            block.latencies.push(latency);
            made.push((client, id));
        }
        block.busy += started.elapsed();
        for (mut client, id) in made {
            if let Some(id) = id {
                client.kubelet.remove(&id).await.unwrap();
            }
            clients.push(client);
        }
    }
    block
}

/// One call; the id of what it made.
async fn one(client: &mut Client, call: Call) -> Option<String> {
    let Client { kubelet, pod } = client;
    match call {
        Call::Version => {
            kubelet.version().await.unwrap();
            None
        }
        Call::List => {
            assert!(kubelet.list().await.unwrap() >= 100, "containers are missing");
            None
        }
        Call::CreateShared | Call::CreateExclusive => {
            Some(kubelet.create(pod, &call.container(), 0).await.unwrap())
        }
    }
}
