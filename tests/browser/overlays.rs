//! What CPUs can be coloured by. In: values of kernel files, values that this machine cannot give, and none. Out: what each CPU shows and says, and what the
//! legend says of what is missing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::driver::Browser;
use crate::node::Node;
use crate::seen::{Seen, ask, press, set, wait};
use crate::table::click_title;
use crate::{MACHINE, PAINTED, check_logs, has_row, host, keep, populate};

/// In the page before its own scripts: the stream of events can be told by the test instead, of one kind of event or both.
const FEED: &str = r"
(() => {
  const Real = window.EventSource;
  const listeners = {};
  const told = new Set();
  window.tell = (kind, value) => {
    told.add(kind);
    listeners[kind]({ data: JSON.stringify(value) });
  };
  window.EventSource = class extends Real {
    addEventListener(kind, listener) {
      listeners[kind] = listener;
      super.addEventListener(kind, (event) => {
        if (!told.has(kind)) listener(event);
      });
    }
  };
})();
";

fn tell(browser: &Browser, kind: &str, value: &Value) {
    browser.run(&format!("window.tell('{kind}', {value})"));
}

/// What a CPU shows in a colouring: its text, how it looks, and words of its label.
#[track_caller]
fn check(browser: &Browser, overlay: &str, cpu: u32, expected: (&str, &str, &str)) {
    set(browser, "overlay", overlay);
    let (text, look, said) = expected;
    let wanted = format!("{overlay}: CPU {cpu} is {text}, {look}, {said}");
    wait(browser, &wanted, |it| {
        let (label, shown, looks) = it.cpu("map", cpu);
        it.text("overlay") == overlay
            && shown == text
            && looks.contains(&look)
            && label.contains(said)
    });
}

/// Once around with the key.
pub(crate) fn by_key(browser: &Browser) {
    let ids =
        browser.run("return [...document.getElementById('overlay').options].map((it) => it.value)");
    let ids: Vec<&str> = ids.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(ids.len(), 12, "{ids:?}");
    for id in ids.iter().skip(1).chain(ids.first()) {
        press(browser, "o");
        wait(browser, id, |it| it.text("overlay") == *id && !it.list("legend").is_empty());
        if *id == "use" {
            keep(browser, "2-overlay");
        }
    }
}

fn start(node: &Node) -> Browser {
    let browser = Browser::start();
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": FEED }));
    browser.open(&format!("http://{}/map", node.address()));
    browser.wait_for(PAINTED);
    browser
}

const OFF: &str = "probes are off, or the daemon has just been started";
const NO_GROUP: &str = "no container has a cgroup that could be read";
/// Of a machine without any of it.
const MISSING: [(&str, &str); 10] = [
    ("use", "the kernel does not tell how long CPUs were idle"),
    ("intrusions", OFF),
    ("delay", OFF),
    ("migrations", OFF),
    ("throttled", NO_GROUP),
    ("far", NO_GROUP),
    ("cache", NO_GROUP),
    ("traffic", NO_GROUP),
    ("frequency", "the kernel tells no frequencies here, as in most virtual machines"),
    ("idle", "the kernel tells of no idle states here, as in most virtual machines"),
];

fn nothing_is_known(browser: &Browser) {
    for (overlay, why) in MISSING {
        check(browser, overlay, 1, ("?", "unknown", "not known"));
        wait(browser, why, |it| {
            let legend = it.list("legend");
            legend.contains(&"?not known") && legend.last() == Some(&why)
        });
    }
    // Nor is it of the past.
    press(browser, "[");
    let why = "the past has no measured values";
    wait(browser, why, |it| it.list("legend").last() == Some(&why));
    press(browser, "l");
    wait(browser, "now", |it| it.text("status").starts_with("live"));
}

/// CPUs 1, 2, 25 and 26 are the database's; 12 and others are the batch's, and shared.
fn rates() -> Value {
    let database = json!({"cpu": 1.5, "delay_ms": 12.3, "migrations": 250.0, "throttled": 0.07, "far": 0.25, "cache_mib": 9.5, "traffic_mbps": 2500.0,
        "taken": 0.0003, "waiting": 0.5});
    json!({
        "format": "bayplan-rates/1", "at": "2026-11-28T00:00:00Z",
        "containers": {
            "default/database/app": database,
            "default/batch/app": {"cpu": 0.5, "delay_ms": 0.04, "migrations": 0.2},
        },
        "cpus": {
            "1": {"busy": 0.5, "mhz": 3100.0, "deep": 0.95, "idle": [["C1", 0.03], ["C6", 0.95]], "intruded": 0.0003,
                "intruders": ["kernel thread kworker: 0.03 %"]},
            "2": {"busy": 0.0, "mhz": 800.0, "deep": 0.0, "intruded": 0.0},
        },
    })
}

fn what_is_told_is_shown(browser: &Browser) {
    tell(browser, "rates", &rates());
    for (overlay, cpu, expected) in [
        ("use", 1, ("50", "o3", "use 50 % of time")),
        ("use", 2, ("0", "o0", "use 0 % of time")),
        ("use", 25, ("?", "unknown", "use not known")),
        ("intrusions", 1, ("0.03", "o1", "intrusions 0.03 % of time taken by others")),
        ("intrusions", 2, ("0", "o0", "intrusions 0 %")),
        ("delay", 26, ("12", "o4", "run-queue delay 12 ms, 99th percentile")),
        ("delay", 12, ("0.0", "o0", "run-queue delay 0.0 ms")),
        ("delay", 6, ("?", "unknown", "run-queue delay not known")),
        ("migrations", 1, ("250", "o3", "migrations 250 moves a second")),
        ("throttled", 1, ("7.0", "o2", "throttling 7.0 % of time")),
        ("far", 1, ("25", "o3", "far memory 25 % of memory")),
        ("cache", 1, ("9.5", "o3", "cache 9.5 MiB of last-level cache")),
        ("traffic", 1, ("2500", "o3", "memory bandwidth 2500 MB/s")),
        ("frequency", 1, ("3.1", "o4", "frequency 3.1 GHz")),
        ("frequency", 2, ("0.8", "o0", "frequency 0.8 GHz")),
        ("idle", 1, ("95", "o5", "C-states 95 % of time in idle states")),
    ] {
        check(browser, overlay, cpu, expected);
    }
    set(browser, "overlay", "intrusions");
    wait(browser, "limits", |it| {
        it.list("legend").starts_with(&["below 0.01", "from 0.01", "from 0.1", "from 1.0"])
    });
    the_table_is_sorted_by_values(browser);
    the_pane_of_a_cpu_has_its_values(browser);
}

/// The largest first, then the smallest; what is not known is last.
fn the_table_is_sorted_by_values(browser: &Browser) {
    for expected in [["database", "batch"], ["batch", "database"]] {
        click_title(browser, "Delay ms");
        wait(browser, &format!("{expected:?} first"), |it| {
            let first = expected.map(|name| format!("default/{name}/app"));
            it.rows().iter().zip(&first).all(|(row, name)| *row == name.as_str())
                && it.rows().len() == 6
        });
    }
    let title = |name: &str| {
        browser.run(&format!(
            "return [...document.querySelectorAll('#table th:not([hidden])')].some((it) => it.textContent === '{name}')"
        ))
    };
    let shown = ["Use", "Delay ms", "Taken %", "Throttled %", "Moves/s", "Far %"].map(title);
    assert!(shown.iter().all(|it| *it == true), "{shown:?}");
    click_title(browser, "Container");
    wait(browser, "by name", |it| it.rows().first() == Some(&"default/batch/app"));
}

fn the_pane_of_a_cpu_has_its_values(browser: &Browser) {
    browser.run("document.querySelector('#map .cpu[data-id=\"1\"]').click()");
    wait(browser, "the pane", |it| it.text("detail") == "CPU 1");
    let text = browser.run("return document.getElementById('detail').innerText");
    for part in ["50.0 %", "3100 MHz", "C1 3 %, C6 95 %", "0.03 %", "kernel thread kworker"] {
        assert!(text.as_str().unwrap().contains(part), "{part}: {text}");
    }
    // Values that come again leave the focus where it is.
    let focus = "document.querySelector('#detail .links button').focus()";
    browser.run(focus);
    let mut next = rates();
    next["cpus"]["1"]["busy"] = json!(0.25);
    tell(browser, "rates", &next);
    browser.wait_for("return document.getElementById('detail').innerText.includes('25.0 %')");
    assert_eq!(
        browser.run("return document.activeElement.dataset.focus"),
        "container:default/database/app"
    );
    press(browser, "Escape");
    wait(browser, "no pane", |it| it.0["detail"].is_null());
}

/// CPUs that are lent, kept idle, or closed: the first told as if they were, the others as they are.
fn lent_idle_and_closed(browser: &Browser) {
    let mut map = ask(browser, "/api/v1/map");
    let list =
        |name: &str| -> bayplan_types::CpuSet { map[name].as_str().unwrap().parse().unwrap() };
    let (idle, closed) = (list("idle").first().unwrap().0, list("closed").first().unwrap().0);
    check(browser, "lent", idle, ("-", "idle", "idle for other threads of the core"));
    check(browser, "lent", closed, ("c", "closed", "closed to other exclusive containers"));
    check(browser, "lent", 12, ("", "free", "shared, numa 2"));
    map["lent"] = "2,26".into();
    tell(browser, "map", &map);
    check(browser, "lent", 26, ("l", "lent", "lent"));
    check(browser, "lent", 1, ("", "free", "default/database/app"));
}

/// Values that no kernel gives here: told to the page as the daemon would.
#[tokio::test(flavor = "multi_thread")]
async fn every_colouring_shows_its_values_and_what_is_missing() {
    let mut node = Node::start(MACHINE, |config| {
        config.has_probes = false;
        config.observe_interval = Duration::from_millis(500);
    })
    .await;
    populate(&mut node).await;
    let idle = node.launch_with("alone", 1, &[("bayplan.dev/siblings", "idle")]).await;
    let closed = node.launch_with("apart", 1, &[("bayplan.dev/siblings", "shared")]).await;
    let browser = start(&node);
    browser.wait_for(&has_row("default/apart/app"));
    lent_idle_and_closed(&browser);
    keep(&browser, "9-lent");
    node.end(&idle).await;
    node.end(&closed).await;
    node.launch("late", 2).await;
    browser.run("location.reload()");
    browser.wait_for(&has_row("default/late/app"));
    nothing_is_known(&browser);
    what_is_told_is_shown(&browser);
    check_logs(&browser, &format!("http://{}", node.address()));
    drop(browser);
    node.stop().await;
}

/// A text of a CPU as a number.
fn number(seen: &Seen, cpu: u32) -> f64 {
    seen.cpu("map", cpu).1.parse().unwrap_or(f64::NAN)
}

/// What kernel files say goes all the way to the page.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_counts_is_shown() {
    let mut node = Node::start(MACHINE, |config| {
        config.has_probes = false;
        config.observe_interval = Duration::from_millis(500);
    })
    .await;
    populate(&mut node).await;
    let status: Value =
        bayplan_daemon::query_control(&node.control_socket(), "/api/v1/status").await.unwrap();
    let counting = host::count(&node.host_root(), &status, "database");
    let browser = start(&node);
    browser.wait_for(&has_row("default/web/app"));
    for (overlay, cpu, expected) in [
        ("frequency", 0, ("2.4", "o3", "frequency 2.4 GHz")),
        ("frequency", 1, ("3.7", "o5", "frequency 3.7 GHz")),
        ("frequency", 2, ("?", "unknown", "frequency not known")),
        ("use", 0, ("100", "o5", "use 100 % of time")),
        ("use", 1, ("0", "o0", "use 0 % of time")),
        ("far", 25, ("25", "o3", "far memory 25 % of memory")),
        ("cache", 25, ("12", "o3", "cache 12 MiB")),
        ("idle", 0, ("100", "o5", "C-states 100 %")),
        ("idle", 1, ("0", "o0", "C-states 0 %")),
    ] {
        check(&browser, overlay, cpu, expected);
    }
    for (overlay, least, most) in [("throttled", 40.0, 60.0), ("traffic", 2400.0, 3600.0)] {
        set(&browser, "overlay", overlay);
        let wanted = format!("{overlay} between {least} and {most}");
        wait(&browser, &wanted, |it| (least..most).contains(&number(it, 25)));
    }
    check_logs(&browser, &format!("http://{}", node.address()));
    drop(counting);
    drop(browser);
    node.stop().await;
}
