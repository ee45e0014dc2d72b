//! The live map in a browser: first paint, changes as they come, every colouring, the past and back, a narrow and a dark screen, a link, and
//! nothing in the browser's log. Screenshots are left in `target/browser`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cost;
mod driver;
#[path = "../map/node.rs"]
mod node;
mod terminal;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use driver::Browser;
use node::Node;
use terminal::Terminal;

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

fn press(browser: &Browser, key: &str) {
    browser.run(&format!("document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))"));
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

    overlays(&browser);
    past_and_back(&browser);
    details_and_link(&browser);
    what_if(&browser, &node).await;
    screens(&browser);
    check_logs(&browser, &origin);
    drop(browser);
    node.stop().await;
}

fn overlays(browser: &Browser) {
    let ids =
        browser.run("return [...document.getElementById('overlay').options].map((it) => it.value)");
    let ids = ids.as_array().unwrap();
    assert!(ids.len() > 8, "{ids:?}");
    for id in ids {
        press(browser, "o");
        browser.wait_for("return document.querySelectorAll('#legend li').length > 0");
        if *id == "use" {
            keep(browser, "2-overlay");
        }
    }
    // Once around.
    assert_eq!(browser.run("return document.getElementById('overlay').value"), "holder");
}

fn past_and_back(browser: &Browser) {
    // Event by event; how many there are depends on which shared containers had to give way.
    let is_there = has_row("default/old-web/app");
    for _ in 0..20 {
        press(browser, "[");
        let has_moment =
            "return document.getElementById('status').textContent.startsWith('the past')";
        browser.wait_for(has_moment);
        if browser.is_soon(&is_there) {
            break;
        }
    }
    browser.wait_for(&is_there);
    browser.run("document.getElementById('pin').click()");
    browser.wait_for("return !document.getElementById('other').hidden");
    press(browser, "]");
    press(browser, "]");
    browser.wait_for("return document.querySelectorAll('.moved').length > 0");
    keep(browser, "3-compared");
    browser.run("document.getElementById('pin').click()");
    press(browser, "l");
    browser.wait_for("return document.getElementById('status').textContent.startsWith('live')");
    browser.wait_for(&has_row("default/late/app"));
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
    browser.run("[...document.querySelectorAll('#table .name')].find((it) => it.textContent === 'default/web/app').click()");
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
    browser.run("document.getElementById('whatif').click()");
    browser.wait_for(
        "return document.getElementById('other').textContent.includes('Under tomorrow.yaml')",
    );
    browser.wait_for("return document.querySelectorAll('.moved').length > 0");
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
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn top_in_a_terminal_of_three_sizes() {
    let mut node = Node::start(MACHINE, |_| {}).await;
    populate(&mut node).await;
    let socket = node.control_socket();
    for (size, there, absent) in [
        ((200, 50), ["NumaNode 0 (Package 0)", "default/web/app", "q quit"].as_slice(), None),
        ((80, 24), &["CONTAINER", "default/web/app", "q quit"], None),
        // The map is left out where it would take more than half.
        ((60, 15), &["CONTAINER", "default/web/app", "q quit"], Some("NumaNode")),
    ] {
        let terminal = Terminal::start(size, &socket);
        let screen = terminal.wait_for(there);
        assert!(absent.is_none_or(|it| !screen.contains(it)), "{screen}");
        terminal.keep();
        terminal.press("[");
        terminal.wait_for(&["THE PAST"]);
        terminal.press("l");
        terminal.press("?");
        terminal.wait_for(&["an event back"]);
        terminal.press("?");
        terminal.press("q");
        terminal.wait_for_end();
    }
    node.stop().await;
}
