//! Speed Select: the daemon over a device that refuses what the driver refuses, behind a socket in the device's place.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;

use bayplan_daemon::post_control;
use bayplan_isst::{Domain, FakeDevice, SpeedSelect, answer};
use bayplan_node::mode::{Mode, ModeReport};
use bayplan_tests::speed_select::{self, AS_IT_WAS, AS_WANTED, CLASSES, Cores, NOTHING, Shown};
use bayplan_types::{CpuSet, SPEED_SELECT_DEVICE};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Duration, sleep};

use crate::node::{MACHINE, Node, set, soon};
use crate::observing::{metrics, sum};

/// What answers in the device's place.
struct StandIn {
    settings: SpeedSelect<FakeDevice>,
    /// Questions that would have changed something.
    writes: usize,
    /// The process that is killed instead of an answer, when so many writes were made.
    kill_after: Option<(usize, Pid)>,
}

/// Two power domains of four cores each, in the order of CPUs; the power unit counts cores in steps of two.
fn cores() -> Cores {
    let core = |cpu: u32| {
        let number = u8::try_from(cpu % 8 / 4).unwrap();
        (cpu, (Domain { package: 0, number }, u16::try_from(cpu % 4 * 2).unwrap()))
    };
    (0..16).map(core).collect()
}

fn device(is_write_blocked: bool) -> SpeedSelect<FakeDevice> {
    let mut device = FakeDevice::of_cores(cores());
    device.is_write_blocked = is_write_blocked;
    SpeedSelect::new(device).unwrap()
}

type Shared = Arc<Mutex<StandIn>>;

/// Answers below a node's root until the test ends.
fn stand_in(node: &Node, is_write_blocked: bool) -> Shared {
    let path = node.host_root().join(SPEED_SELECT_DEVICE);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    let settings = device(is_write_blocked);
    let shared: Shared = Arc::new(Mutex::new(StandIn { settings, writes: 0, kill_after: None }));
    let own = Arc::clone(&shared);
    thread::spawn(move || {
        for stream in listener.incoming() {
            talk(stream.unwrap(), &own);
        }
    });
    shared
}

fn talk(mut stream: UnixStream, shared: &Shared) {
    let mut question = String::new();
    let _gone = BufReader::new(&stream).read_line(&mut question);
    let mut stand_in = shared.lock().unwrap();
    if question.starts_with("write ") {
        if let Some((_, pid)) = stand_in.kill_after.filter(|(after, _)| *after == stand_in.writes) {
            stand_in.kill_after = None;
            kill(pid, Signal::SIGKILL).unwrap();
            return;
        }
        stand_in.writes += 1;
    }
    let answer = answer(&mut stand_in.settings, question.trim_end());
    let _gone = stream.write_all(format!("{answer}\n").as_bytes());
}

fn shown(shared: &Shared) -> Shown {
    speed_select::shown(&mut shared.lock().unwrap().settings, &cores())
}

/// Waits until the device has this, CPUs of class 1 and CPUs of class 3.
async fn wait_for(shared: &Shared, text: &str, fast: &CpuSet, slow: &CpuSet) {
    let wanted = (text.to_owned(), [fast.clone(), CpuSet::new(), slow.clone()]);
    let reached = async {
        while shown(shared) != wanted {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(30), reached).await.is_err() {
        panic!("expected {wanted:?}, found {:?}", shown(shared));
    }
}

async fn change(node: &Node, to: Mode) {
    let (socket, path) = (node.control_socket(), format!("/api/v1/mode?to={}", to.name()));
    let report: ModeReport = soon(post_control(&socket, &path, String::new())).await.unwrap();
    assert_eq!(report.files_not_written, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cores_have_the_class_of_service_of_what_runs_there_and_everything_is_given_back() {
    let mut node = Node::without_daemon(MACHINE);
    let device = stand_in(&node, false);
    let none = CpuSet::new();
    node.spawn_daemon(CLASSES).await;
    let shared = set("1-7,9-15");
    wait_for(&device, AS_WANTED, &none, &shared).await;

    let (pod, id) = node.guaranteed("owner", 2000).await;
    let own = node.cpus(&id);
    wait_for(&device, AS_WANTED, &own, &shared.difference(&own)).await;

    // Another program changes a setting.
    device.lock().unwrap().settings.write("0.1/clos3/max_mhz", "3000").unwrap();
    wait_for(&device, AS_WANTED, &own, &shared.difference(&own)).await;

    change(&node, Mode::Restored).await;
    wait_for(&device, AS_IT_WAS, &none, &none).await;
    change(&node, Mode::Placing).await;
    wait_for(&device, AS_WANTED, &own, &shared.difference(&own)).await;

    soon(node.kubelet.end_pod(&pod)).await.unwrap();
    wait_for(&device, AS_WANTED, &none, &shared).await;
    // What a killed daemon has changed the next one gives back, which wants nothing of it.
    node.kill_daemon();
    node.spawn_daemon(NOTHING).await;
    wait_for(&device, AS_IT_WAS, &none, &none).await;
}

/// Seven cores, three limits of each of two domains, and core power: 15 writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_between_two_ioctls_leaves_the_next_one_a_way_on_and_a_way_back() {
    let mut node = Node::without_daemon(MACHINE);
    let device = stand_in(&node, false);
    let (none, shared) = (CpuSet::new(), set("1-7,9-15"));
    for writes in [1, 7, 14] {
        for next in [CLASSES, NOTHING] {
            // Nothing is wanted at first, so that the process is known before its first write.
            node.spawn_daemon(NOTHING).await;
            wait_for(&device, AS_IT_WAS, &none, &none).await;
            {
                let mut device = device.lock().unwrap();
                device.writes = 0;
                let pid = Pid::from_raw(node.daemon_pid().try_into().unwrap());
                device.kill_after = Some((writes, pid));
            }
            let path = node.path("bayplan.yaml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace(NOTHING, CLASSES)).unwrap();
            node.daemon_ended().await;
            let (found, [fast, _, slow]) = shown(&device);
            assert!(found != AS_WANTED && fast.is_empty(), "{writes}: {found}");
            assert!(found != AS_IT_WAS || !slow.is_empty(), "{writes}: {found}");
            node.kill_daemon();
            node.spawn_daemon(next).await;
            match next {
                CLASSES => wait_for(&device, AS_WANTED, &none, &shared).await,
                _ => wait_for(&device, AS_IT_WAS, &none, &none).await,
            }
            node.kill_daemon();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_firmware_forbids_is_told_and_tried_again() {
    let mut node = Node::without_daemon(MACHINE);
    let device = stand_in(&node, true);
    node.spawn_daemon(CLASSES).await;
    let failing =
        || async { sum(&metrics(&node).await, "bayplan_file_writes_total", &["\"refused\""]) };
    let (none, shared) = (CpuSet::new(), set("1-7,9-15"));
    soon(async { while failing().await == 0.0 {} }).await;
    assert_eq!(shown(&device), (AS_IT_WAS.to_owned(), [none.clone(), none.clone(), none.clone()]));
    device.lock().unwrap().settings = self::device(false);
    wait_for(&device, AS_WANTED, &none, &shared).await;
}

/// What the daemon sets is no fact of the machine; what an operator has set before is.
#[tokio::test(flavor = "multi_thread")]
async fn classes_of_service_of_the_operator_are_priorities_and_those_of_the_daemon_are_not() {
    let mut node = Node::without_daemon(MACHINE);
    let device = stand_in(&node, false);
    {
        let settings = &mut device.lock().unwrap().settings;
        settings.write("0.0/core_power", "ordered").unwrap();
        settings.write("0.1/core_power", "ordered").unwrap();
        for cpu in 0..16 {
            let core = settings.read(&format!("cpu{cpu}@0/core")).unwrap();
            let clos = if [5, 6].contains(&(cpu % 8)) { "0" } else { "2" };
            settings.write(&format!("{}/clos", core.trim()), clos).unwrap();
        }
    }
    let config = format!("{CLASSES}requests: {{defaultCpuPriority: high}}\n");
    for _ in 0..2 {
        node.spawn_daemon(&config).await;
        let (pod, id) = node.guaranteed("owner", 4000).await;
        assert_eq!(node.cpus(&id), set("5-6,13-14"));
        soon(async {
            while shown(&device).1[0] != set("5-6,13-14") {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        soon(node.kubelet.end_pod(&pod)).await.unwrap();
        // The next daemon finds what this one has set, and what it was before.
        node.kill_daemon();
    }
}
