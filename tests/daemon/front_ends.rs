//! Kubelet's endpoint and the front end have to agree: two ways in at once are refused at the start.

use std::fs;

use bayplan_daemon::config::{Config, FrontEnd};
use bayplan_daemon::{Daemon, Machine, StartError};

use crate::node::{MACHINE, Node, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_does_not_start_while_kubelet_calls_the_proxy() {
    let node = Node::without_daemon(MACHINE);
    let kubelet = node.host_root().join("proc/7");
    fs::create_dir_all(&kubelet).unwrap();
    let proxy = format!("unix://{}", node.path("bayplan.sock").display());
    for (front_end, endpoint, starts) in [
        (FrontEnd::Nri, proxy.as_str(), false),
        (FrontEnd::Nri, "unix:///run/containerd/containerd.sock", true),
        (FrontEnd::Cri, &proxy, true),
    ] {
        let line = format!("/usr/bin/kubelet\0--container-runtime-endpoint={endpoint}\0");
        fs::write(kubelet.join("cmdline"), line).unwrap();
        let config = Config { front_end, nri_socket: node.path("nri.sock"), ..node.config() };
        let machine = Machine::fixed(node.topology().clone());
        match soon(Daemon::start(config, machine)).await {
            Ok(daemon) => {
                assert!(starts, "{front_end:?} with kubelet at {endpoint}");
                soon(daemon.stop()).await;
            }
            Err(StartError::KubeletAtProxy { endpoint: told }) => {
                assert!(!starts && told == endpoint, "{front_end:?} with kubelet at {endpoint}");
            }
            Err(other) => panic!("{front_end:?} with kubelet at {endpoint}: {other}"),
        }
    }
}
