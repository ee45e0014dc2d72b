//! etcd and kube-apiserver on loopback, with everything in a temporary directory. Ports are the kernel's choice.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bayplan_tests::containerd::programs_cache;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The token of the administrator.
pub(crate) const ADMIN: &str = "administrator";
const READY: Duration = Duration::from_secs(120);

/// Programs with a directory of their own.
pub(crate) struct Servers {
    dir: TempDir,
    programs: [PathBuf; 2],
    ports: [u16; 3],
    etcd: Option<Child>,
    api: Option<Child>,
}

/// By a variable, or the oldest in the cache of `tests/cluster/build`, which has several releases.
pub(crate) fn find(variable: &str, name: &str, beginning: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let built = fs::read_dir(programs_cache()?).ok()?.filter_map(|it| Some(it.ok()?.path()));
    let is_it = |it: &PathBuf| {
        it.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning))
    };
    built.filter(is_it).map(|it| it.join(name)).filter(|it| it.is_file()).min()
}

/// Says that a program is missing, so that something is not tested.
pub(crate) fn is_missing(what: &str) {
    is_not_tested(&format!("{what} is missing; `tests/cluster/build` builds it"));
}

/// Says that something is not tested, which is a failure where all is required.
pub(crate) fn is_not_tested(said: &str) {
    assert!(std::env::var("BAYPLAN_CLUSTER").as_deref() != Ok("required"), "{said}");
    eprintln!("not tested: {said}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Servers {
    /// `None`: the programs are not there.
    pub(crate) async fn start() -> Option<Servers> {
        let etcd = find("BAYPLAN_ETCD", "etcd", "etcd-");
        let release = std::env::var("BAYPLAN_KUBERNETES").unwrap_or_default();
        let beginning = format!("kube-apiserver-{release}");
        let api = find("BAYPLAN_KUBE_APISERVER", "kube-apiserver", &beginning);
        let Some((etcd, api)) = etcd.zip(api) else {
            is_missing("etcd or kube-apiserver");
            return None;
        };
        let ports = [free_port(), free_port(), free_port()];
        let dir = tempfile::tempdir().unwrap();
        let mut servers = Servers { dir, programs: [etcd, api], ports, etcd: None, api: None };
        servers.make_key();
        servers.start_etcd();
        servers.start_api().await;
        Some(servers)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Of the API server.
    pub(crate) fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[2])
    }

    /// Of the API server and etcd, while they run.
    pub(crate) fn pids(&self) -> [Option<u32>; 2] {
        [&self.api, &self.etcd].map(|it| it.as_ref().map(Child::id))
    }

    /// Signs tokens of service accounts.
    fn make_key(&self) {
        let key = self.path("sa.key");
        let made = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output();
        assert!(made.expect("openssl is installed").status.success());
        let tokens = format!("{ADMIN},admin,admin,\"system:masters\"\n");
        fs::write(self.path("tokens.csv"), tokens).unwrap();
    }

    fn spawn(&self, program: &Path, args: &[String], log: &str) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.path(log)).unwrap();
        let errors = log.try_clone().unwrap();
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(log).stderr(errors);
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }

    fn start_etcd(&mut self) {
        let [client, peer] = [0, 1].map(|it| format!("http://127.0.0.1:{}", self.ports[it]));
        let args = [
            format!("--data-dir={}", self.path("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
        ];
        self.etcd = Some(self.spawn(&self.programs[0].clone(), &args, "etcd.log"));
    }

    /// Comes back when it is ready.
    pub(crate) async fn start_api(&mut self) {
        let path = |name: &str| self.path(name).display().to_string();
        let args = [
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports[0]),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={}", self.ports[2]),
            format!("--cert-dir={}", path("pki")),
            "--service-account-issuer=https://test".to_owned(),
            format!("--service-account-key-file={}", path("sa.key")),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // On by itself from 1.36 on.
            "--feature-gates=MutatingAdmissionPolicy=true".to_owned(),
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true".to_owned(),
        ];
        self.api = Some(self.spawn(&self.programs[1].clone(), &args, "api.log"));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.ports[2])).await.is_err() {
            let log = self.path("api.log");
            assert!(begun.elapsed() < READY, "{}", fs::read_to_string(log).unwrap());
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) fn stop_api(&mut self) {
        end(&mut self.api);
    }
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        // It may have ended already.
        let _ended = child.kill();
        let _status = child.wait();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        end(&mut self.api);
        end(&mut self.etcd);
    }
}
