//! Chains of services: a web server in front, one behind it, and a store, for each instance of an application.
//!
//! Each answer goes through all three. Loads run on all instances at once, and while they do, it is looked where services run and where their memory is.

use std::fs;
use std::io::{BufWriter, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bayplan_types::CpuSet;

use super::{Stage, WARM_UP, await_server, load_generator};
use crate::reenact::chains::{Chains, Deployment, PAGE_BYTES};
use crate::reenact::holding::{cpu_seconds, memory_at_hand, nodes};
use crate::reenact::manifest::{Pod, back_script, front_script, store_script};
use crate::reenact::outputs::{WebLoad, parse_wrk, together};
use crate::reenact::report::Measured;
use crate::reenact::scenario::{CPU_USE, MEMORY_AT_HAND, Qos};

/// Of the first instance; each service of each has one of its own.
const PORT: u16 = 8000;
/// Of load.
const SECONDS: u32 = 5;
/// Connections of a thread of wrk, and the most of an instance.
const CONNECTIONS: (usize, usize) = (40, 400);
/// Between two looks at where services are.
const LOOK: Duration = Duration::from_millis(500);

/// Ports of an instance.
#[derive(Clone, Copy, Debug)]
struct Ports {
    front: u16,
    back: u16,
    store: u16,
}

impl Ports {
    fn of(instance: usize) -> anyhow::Result<Ports> {
        let front = PORT + u16::try_from(instance * 3).context("too many instances")?;
        Ok(Ports { front, back: front + 1, store: front + 2 })
    }
}

impl Stage<'_> {
    pub(super) fn chains(&mut self, deployment: Deployment) -> anyhow::Result<Measured> {
        let chains = Chains::of(&nodes(), deployment);
        for (instance, namespace) in chains.namespaces().enumerate() {
            self.start_chain(instance, &namespace, &chains)?;
        }
        self.subject = Some("store-1".to_owned());
        let script = self.task.work.join("out/pages.lua");
        let ask = "math.random(1, PAGES)".replace("PAGES", &chains.pages.to_string());
        fs::write(
            &script,
            format!("request = function() return wrk.format('GET', '/' .. {ask}) end\n"),
        )?;
        // Until connections are there.
        let warm_up = self.clients(&chains, WARM_UP.as_secs())?;
        warm_up.into_iter().map(|it| it.wait_with_output()).collect::<Result<Vec<_>, _>>()?;
        let before = self.mark(true);
        let (begun, used) = (Instant::now(), self.cpu_seconds());
        let mut clients = self.clients(&chains, SECONDS.into())?;
        let at_hand = self.watch(&mut clients)?;
        let used = self.cpu_seconds() - used;
        let use_percent = 100.0 * used / begun.elapsed().as_secs_f64() / count(&self.online)?;
        let loads = clients.into_iter().map(told).collect::<anyhow::Result<Vec<WebLoad>>>()?;
        let load = together(&loads).context("no load")?;
        let values = [
            ("rps", Some(load.requests_per_second)),
            ("mean", Some(load.mean)),
            ("p99", Some(load.p99)),
            (CPU_USE, Some(use_percent)),
            (MEMORY_AT_HAND, at_hand),
        ];
        let values = values.into_iter().filter_map(|(key, it)| Some((key.to_owned(), it?)));
        Ok(self.measured(values.collect(), before))
    }

    /// Three services, each of which waits for the next, and answers in the store.
    fn start_chain(
        &mut self,
        instance: usize,
        namespace: &str,
        chains: &Chains,
    ) -> anyhow::Result<()> {
        let (ports, workers, number) = (Ports::of(instance)?, chains.workers, instance + 1);
        let services = [
            ("store", ports.store, store_script(ports.store, workers)),
            ("back", ports.back, back_script(ports.back, workers, ports.store)),
            ("front", ports.front, front_script(ports.front, workers, ports.back)),
        ];
        for (name, port, script) in services {
            let pod = Pod::new(format!("{name}-{number}"), Qos::BestEffort, 0, script);
            self.run(Pod { namespace: namespace.to_owned(), ..pod })?;
            await_server(name, port)?;
        }
        fill(ports.store, chains.pages)
    }

    /// A load generator for each instance.
    fn clients(&self, chains: &Chains, seconds: u64) -> anyhow::Result<Vec<Child>> {
        let wrk = self.task.programs.unpacked.join("usr/bin/wrk").display().to_string();
        let script = self.task.work.join("out/pages.lua");
        let start = |(instance, cpus): (usize, &CpuSet)| {
            let mut client: Command = load_generator(self.task, cpus, &wrk);
            let (each, most) = CONNECTIONS;
            let connections = (each * cpus.len()).min(most).max(cpus.len());
            client.args(["-t", &cpus.len().to_string(), "-c", &connections.to_string()]);
            client.args(["-d", &format!("{seconds}s"), "--latency", "-s"]).arg(&script);
            client.arg(format!("http://127.0.0.1:{}/", Ports::of(instance)?.front));
            client.stdout(Stdio::piped()).spawn().context("cannot start wrk")
        };
        chains.clients.iter().enumerate().map(start).collect()
    }

    /// Until all clients have ended; the mean of how much of the services' memory was on the NUMA nodes where they ran.
    fn watch(&self, clients: &mut [Child]) -> anyhow::Result<Option<f64>> {
        let nodes = nodes();
        let (mut sum, mut looks) = (0.0, 0.0);
        loop {
            let containers = self.running.values().map(|it| it.container.as_str());
            if let Some(percent) = memory_at_hand(containers, &nodes) {
                sum += percent;
                looks += 1.0;
            }
            let mut is_over = true;
            for client in &mut *clients {
                is_over &= client.try_wait()?.is_some();
            }
            if is_over {
                return Ok((looks > 0.0).then(|| sum / looks));
            }
            sleep(LOOK);
        }
    }

    /// Of all services together.
    fn cpu_seconds(&self) -> f64 {
        self.running.values().filter_map(|it| cpu_seconds(&it.container)).sum()
    }
}

fn count(cpus: &CpuSet) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(cpus.len())?))
}

fn told(client: Child) -> anyhow::Result<WebLoad> {
    let done = client.wait_with_output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    ensure!(done.status.success(), "wrk: {}: {text}", done.status);
    parse_wrk(&text)
}

/// Puts answers into a store, in the protocol of memcached, and waits until it has them.
fn fill(port: u16, pages: usize) -> anyhow::Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut to = BufWriter::new(&stream);
    let page = "x".repeat(PAGE_BYTES);
    for number in 1..=pages {
        write!(to, "set /{number} 0 0 {PAGE_BYTES} noreply\r\n{page}\r\n")?;
    }
    write!(to, "version\r\n")?;
    to.flush()?;
    let mut answer = [0; 7];
    (&stream).read_exact(&mut answer).context("the store has not answered")?;
    ensure!(answer == *b"VERSION", "the store has refused a page");
    Ok(())
}
