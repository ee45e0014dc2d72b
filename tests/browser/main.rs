//! The live map in a browser: first paint, changes as they come, every colouring with its values, the past and back, the table, a narrow and a dark screen,
//! links, and nothing in the browser's log. Screenshots are left in `target/browser`.
#![allow(clippy::print_stdout, reason = "tests tell what was left out")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod agent;
mod cost;
mod driver;
#[path = "../map/host.rs"]
mod host;
#[path = "../map/node.rs"]
mod node;
mod overlays;
mod past;
mod seen;
mod table;
mod terminal;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bayplan_types::CpuSet;
use serde_json::{Value, json};

use driver::Browser;
use node::Node;
use seen::{choose, click, seen, wait};

const MACHINE: &str = "pack:2 numa:2 l3:1 core:6 pu:2 mem:64 isolated:4,28 nic:1 hbm:8";

/// Leaves a picture of what is to be seen.
fn keep(browser: &Browser, name: &str) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/browser");
    std::fs::create_dir_all(&dir).unwrap();
    let file = std::fs::File::create(dir.join(format!("{name}.png"))).unwrap();
    let mut decode =
        Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(file).spawn().unwrap();
    std::io::Write::write_all(&mut decode.stdin.take().unwrap(), browser.screenshot().as_bytes())
        .unwrap();
    assert!(decode.wait().unwrap().success());
}

/// Nothing went wrong in the browser, and nothing was asked elsewhere.
fn check_logs(browser: &Browser, origin: &str) {
    let log = browser.log("browser");
    let bad: Vec<&Value> =
        log.iter().filter(|it| it["level"] == "SEVERE" || it["level"] == "WARNING").collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for entry in browser.log("performance") {
        let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
        let message = &message["message"];
        if message["method"] == "Network.requestWillBeSent" {
            let url = message["params"]["request"]["url"].as_str().unwrap();
            assert!(url.starts_with(origin) || url.starts_with("data:"), "{url}");
        }
    }
}

const PAINTED: &str = "return document.body.dataset.drawn";

fn has_row(name: &str) -> String {
    format!(
        "return [...document.querySelectorAll('#table .name')].some((it) => it.textContent === '{name}')"
    )
}

/// Pods come and go as in an ordinary hour.
async fn populate(node: &mut Node) {
    node.launch("database", 4).await;
    let old = node.launch("old-web", 2).await;
    node.launch_shared("log-shipper", 500).await;
    node.launch("inference", 6).await;
    node.launch_shared("batch", 2000).await;
    node.end(&old).await;
    node.launch("web", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_map_in_a_browser() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    populate(&mut node).await;
    let origin = format!("http://{}", node.address());
    let browser = Browser::start();
    browser.open(&format!("{origin}/map"));
    browser.wait_for(PAINTED);
    assert_eq!(browser.run("return document.querySelectorAll('.cpu').length"), 48);
    browser.wait_for(&has_row("default/web/app"));
    keep(&browser, "1-first");

    node.launch("late", 2).await;
    browser.wait_for(&has_row("default/late/app"));

    overlays::by_key(&browser);
    past::every_moment(&browser);
    past::two_moments(&browser);
    past::a_link_keeps_the_view(&browser, &origin);
    table::search(&browser);
    table::sort(&browser);
    details_and_link(&browser);
    what_if(&browser, &node).await;
    screens(&browser);
    check_logs(&browser, &origin);
    what_is_forbidden_is_told(&browser);
    past::a_link_to_what_is_gone(&browser, &origin);
    node.stop().await;
    wait(&browser, "no daemon", |it| it.text("status") == "not connected; trying again");
}

/// The page's policy stops scripts in the document and requests elsewhere, and the log that tests look at has them.
fn what_is_forbidden_is_told(browser: &Browser) {
    browser.run("const it = document.createElement('script'); it.textContent = 'window.isHere = true'; document.head.append(it)");
    assert_eq!(browser.run("return window.isHere ?? null"), Value::Null);
    let elsewhere =
        "return fetch('http://127.0.0.1:1/').then(() => 'fetched', (error) => error.name)";
    assert_eq!(browser.run(elsewhere), "TypeError");
    let log = browser.log("browser");
    let stopped = log.iter().filter(|it| it["level"] == "SEVERE").filter(|it| {
        let text = it["message"].as_str().unwrap();
        text.contains("Content Security Policy")
    });
    assert!(stopped.count() >= 2, "{log:#?}");
}

/// No finding of axe-core that it calls serious or critical. `cargo xtask nightly browser` fetches it and says where it is.
fn check_accessibility(browser: &Browser, state: &str) {
    let Some(path) = std::env::var_os("BAYPLAN_AXE") else {
        println!(
            "{state}: not looked at with axe-core, which `cargo xtask nightly browser` fetches"
        );
        return;
    };
    let axe = std::fs::read_to_string(path).unwrap();
    let found = browser.run(&format!(
        "{axe};\nreturn axe.run(document, {{ resultTypes: ['violations'] }}).then((it) => it.violations.map((rule) => \
         ({{ id: rule.id, impact: rule.impact, help: rule.help, nodes: rule.nodes.slice(0, 3).map((node) => node.html) }})))"
    ));
    let is_serious = |it: &&Value| it["impact"] == "serious" || it["impact"] == "critical";
    let serious: Vec<&Value> = found.as_array().unwrap().iter().filter(is_serious).collect();
    assert!(serious.is_empty(), "{state}: {serious:#?}");
}

fn details_and_link(browser: &Browser) {
    choose(browser, "default/web/app");
    browser.wait_for("return document.querySelector('.why')?.textContent.includes('placed in')");
    browser.wait_for(
        "return document.querySelector('.why')?.textContent.includes('What slows it down')",
    );
    keep(browser, "4-detail");
    check_accessibility(browser, "detail");
    browser.run("location.reload()");
    browser.wait_for("return document.querySelector('.why')?.textContent.includes('placed in')");
    browser.run("document.querySelector('.cpu').click()");
    browser.wait_for("return document.querySelector('#detail h2')?.textContent.startsWith('CPU ')");
}

fn screens(browser: &Browser) {
    let narrow = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true});
    browser.devtools("Emulation.setDeviceMetricsOverride", &narrow);
    browser.wait_for("return innerWidth <= 390");
    browser.wait_for("return document.documentElement.scrollWidth <= 390");
    // What is chosen can be seen at once.
    choose(browser, "default/web/app");
    wait(browser, "the pane", |it| it.text("detail") == "default/web/app");
    browser.wait_for("return document.documentElement.scrollWidth <= 390");
    check_accessibility(browser, "narrow");
    browser.run("scrollTo(0, 0)");
    keep(browser, "5-narrow");
    browser.devtools("Emulation.clearDeviceMetricsOverride", &json!({}));
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.devtools("Emulation.setEmulatedMedia", &dark);
    browser.wait_for(
        "return getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)'",
    );
    keep(browser, "6-dark");
    check_accessibility(browser, "dark");
}

async fn node_status(node: &Node) -> Value {
    bayplan_daemon::query_control(&node.control_socket(), "/api/v1/status").await.unwrap()
}

/// Each map has the reserved CPUs of its own configuration, and what differs is marked in both.
fn check_what_if(shown: &seen::Seen, then: &Value, now: &Value) {
    let set = |status: &Value| -> CpuSet {
        status["cpus"]["reserved"].as_str().unwrap().parse().unwrap()
    };
    let (then, now) = (set(then), set(now));
    assert_eq!((then.to_string(), now.to_string()), ("0-3".to_owned(), "0".to_owned()));
    for (place, reserved) in [("other", &then), ("map", &now)] {
        assert_eq!(shown.cpus_that_look(place, "reserved"), *reserved, "{place}");
    }
    let moved = shown.cpus_that_look("map", "moved");
    assert_eq!(moved, shown.cpus_that_look("other", "moved"));
    assert!(then.difference(&now).is_subset(&moved), "{moved}");
    assert!(shown.title("other").ends_with(&format!("CPUs {moved} differ")));
}

/// Another configuration beside what is.
async fn what_if(browser: &Browser, node: &Node) {
    let config = "reservedCpus: 0-3\npolicy: one-shared-pool\n";
    let path = "/api/v1/map/what-if?name=tomorrow.yaml";
    let found: Value =
        bayplan_daemon::post_control(&node.control_socket(), path, config.to_owned())
            .await
            .unwrap();
    assert_eq!(found["format"], "bayplan-what-if/1");
    browser.wait_for("return !document.getElementById('whatif').hidden");
    click(browser, "whatif");
    let shown =
        wait(browser, "the other map", |it| it.title("other").starts_with("Under tomorrow.yaml"));
    assert_eq!(shown.title("map"), "Now");
    check_what_if(&shown, &found["status"], &node_status(node).await);
    keep(browser, "8-what-if");
    check_accessibility(browser, "what if");
    browser.run("location.reload()");
    browser.wait_for(
        "return document.getElementById('other').textContent.includes('Under tomorrow.yaml')",
    );
    let (status, _) = bayplan_daemon::ask_control(
        &node.control_socket(),
        "DELETE",
        "/api/v1/map/what-if",
        String::new(),
    )
    .await
    .unwrap();
    assert_eq!(status, 204);
    browser.wait_for("return document.getElementById('other').hidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_node_in_a_browser() {
    let mut node = Node::start("pack:2 numa:4 l3:4 core:8 pu:2 mem:64", |_| {}).await;
    for at in 0..100 {
        node.launch(&format!("exclusive-{at}"), 3).await;
    }
    for at in 0..400 {
        node.launch_shared(&format!("shared-{at}"), 10).await;
    }
    let browser = Browser::start();
    browser.open(&format!("http://{}/map", node.address()));
    browser.wait_for(PAINTED);
    assert_eq!(browser.run("return document.querySelectorAll('.cpu').length"), 512);
    browser.wait_for(&has_row("default/shared-399/app"));
    node.launch("late", 2).await;
    browser.wait_for(&has_row("default/late/app"));
    println!("drawn in {} ms", browser.run(PAINTED));
    keep(&browser, "7-large");
    a_link_to_long_ago(&browser);
    check_logs(&browser, &format!("http://{}", node.address()));
    node.stop().await;
}

/// More has happened since than a page loads at first.
fn a_link_to_long_ago(browser: &Browser) {
    let mut first = seen::ask(browser, "/api/v1/history?count=1000");
    assert_eq!(first["has_more"], false);
    let all = first["entries"].as_array().unwrap().len();
    assert!(all > 500, "{all}");
    let first = first["entries"][3]["id"].take();
    browser.run(&format!("location.hash = 'at={}'", first.as_str().unwrap()));
    let place = format!("event 4 of {all}: ");
    wait(browser, &place, |it| it.text("event").contains(&place));
    assert_eq!(seen(browser).0["slider"], json!([3, all]));
}
