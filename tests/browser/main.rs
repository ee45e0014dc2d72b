//! The live map in a browser: first paint, changes as they come, every colouring, the past and back, a narrow and a dark screen, a link, and
//! nothing in the browser's log. Screenshots are left in `target/browser`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod driver;
#[path = "../map/node.rs"]
mod node;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use driver::Browser;
use node::Node;

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

fn details_and_link(browser: &Browser) {
    browser.run("[...document.querySelectorAll('#table .name')].find((it) => it.textContent === 'default/web/app').click()");
    browser.wait_for("return document.querySelector('.why')?.textContent.includes('placed in')");
    keep(browser, "4-detail");
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
