//! What the daemon costs a call of kubelet: the same call to the runtime directly and through the daemon, in turns. It asks for the version, which changes
//! nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use bayplan_cri::upstream::Upstream;
use bayplan_daemon::config::{Config, FrontEnd};
use bayplan_daemon::query_control;
use bayplan_node::status::Status;

use crate::bench::figures::{Figure, LeftOut, Part};

const DIRECT: &str = "call: Version of the runtime, directly";
const THROUGH: &str = "call: the same through the daemon";

/// Without a runtime or a daemon, what is there.
pub(super) fn measure(config: &Config, control: &Path, rounds: usize) -> Part {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(ask(config, control, rounds)),
        Err(error) => (Vec::new(), vec![LeftOut::new(DIRECT, error)]),
    }
}

async fn ask(config: &Config, control: &Path, rounds: usize) -> Part {
    let direct = Upstream::new(config.runtime_socket.clone(), config.runtime_timeout);
    let through = Upstream::new(config.socket.clone(), config.runtime_timeout);
    let reason = not_through(config, control).await;
    let (mut directly, mut by_daemon) = (Vec::new(), Vec::new());
    let mut left_out: Vec<LeftOut> = Vec::new();
    left_out.extend(reason.as_deref().map(|it| LeftOut::new(THROUGH, it)));
    for round in 0..=rounds {
        // The first opens a connection.
        let is_counted = round > 0;
        let mut failed = call(DIRECT, &direct, is_counted, &mut directly).await;
        if failed.is_none() && reason.is_none() {
            failed = call(THROUGH, &through, is_counted, &mut by_daemon).await;
        }
        if let Some(failed) = failed {
            left_out.push(failed);
            break;
        }
    }
    (figures(directly, by_daemon), left_out)
}

/// One call; why it failed, if it did.
async fn call(
    name: &str,
    runtime: &Upstream,
    is_counted: bool,
    times: &mut Vec<Duration>,
) -> Option<LeftOut> {
    let begun = Instant::now();
    let asked = runtime.version().await;
    if is_counted && asked.is_ok() {
        times.push(begun.elapsed());
    }
    asked.err().map(|error| LeftOut::new(name, error))
}

/// Why no call goes through a daemon. Its control socket is asked first: a call on kubelet's may start one.
async fn not_through(config: &Config, control: &Path) -> Option<String> {
    if config.front_end == FrontEnd::Nri {
        return Some("with `frontEnd: nri` kubelet calls the runtime itself".to_owned());
    }
    let asked = query_control::<Status>(control, "/api/v1/status").await;
    asked.err().map(|error| format!("{:#}", anyhow::Error::new(error)))
}

fn figures(directly: Vec<Duration>, by_daemon: Vec<Duration>) -> Vec<Figure> {
    let directly = Figure::of(DIRECT, String::new(), &directly);
    let base = directly.as_ref().map(|it| it.median_us);
    let by_daemon = Figure::of(THROUGH, String::new(), &by_daemon).map(|it| {
        let more = base.map(|base| format!("{:+.0} \u{b5}s", it.median_us - base));
        Figure { result: more.unwrap_or_default(), ..it }
    });
    directly.into_iter().chain(by_daemon).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_that_of_the_medians() {
        let times = |micros: &[u64]| micros.iter().map(|it| Duration::from_micros(*it)).collect();
        let both = figures(times(&[300, 310, 900]), times(&[420, 450, 460]));
        assert_eq!(both[1].result, "+140 \u{b5}s");
        assert_eq!(figures(times(&[300]), Vec::new()).len(), 1);
        assert_eq!(figures(Vec::new(), Vec::new()), []);
    }

    #[test]
    fn without_a_runtime_nothing_is_measured_and_the_reason_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let config = Config { runtime_socket: at("r"), socket: at("s"), ..Config::default() };
        let (figures, left_out) = measure(&config, &at("c"), 2);
        assert_eq!(figures, []);
        let names: Vec<&str> = left_out.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, [THROUGH, DIRECT]);
        assert!(left_out[0].reason.contains("cannot reach the daemon"), "{left_out:?}");
        assert!(left_out[1].reason.contains("cannot connect to the container runtime"));
        let nri = Config { front_end: FrontEnd::Nri, ..config };
        assert!(measure(&nri, &at("c"), 2).1[0].reason.contains("frontEnd: nri"));
    }
}
