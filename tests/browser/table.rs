//! The table of containers on the page: what is found, and in which order.

use bayplan_types::{CpuSet, NodeSet};
use serde_json::Value;

use crate::driver::Browser;
use crate::seen::{ask, press, set, wait};

const ALL: [&str; 6] = ["batch", "database", "inference", "late", "log-shipper", "web"];

fn short<'a>(rows: &[&'a str]) -> Vec<&'a str> {
    rows.iter().map(|it| it.trim_start_matches("default/").trim_end_matches("/app")).collect()
}

/// Those for which this holds.
fn those(map: &Value, holds: impl Fn(&Value) -> bool) -> Vec<String> {
    let all = map["containers"].as_array().unwrap().iter().filter(|it| holds(it));
    let names: Vec<String> = all.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    short(&names).into_iter().map(str::to_owned).collect()
}

fn cpus(it: &Value) -> CpuSet {
    it["cpus"].as_str().unwrap().parse().unwrap()
}

/// Words that all have to occur, and what CPUs and nodes are used.
pub(crate) fn search(browser: &Browser) {
    let map = ask(browser, "/api/v1/map");
    let on_cpu = |cpu: u32| those(&map, |it| cpus(it).iter().any(|it| it.0 == cpu));
    let on_node = |node: u32| {
        let is_there = |it: &Value| {
            let mems: NodeSet = it["mems"].as_str().unwrap().parse().unwrap();
            mems.iter().any(|it| it.0 == node)
        };
        those(&map, is_there)
    };
    let named = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert!(!on_cpu(3).is_empty() && !on_node(1).is_empty() && on_node(1).len() < ALL.len());
    press(browser, "/");
    assert_eq!(browser.run("return document.activeElement.id"), "search");
    for (words, expected) in [
        ("web", named(&["web"])),
        ("  WEB ", named(&["web"])),
        ("exclusive", named(&["database", "inference", "late", "web"])),
        ("exclusive da", named(&["database"])),
        ("burstable", named(&["batch", "log-shipper"])),
        ("cpu:3", on_cpu(3)),
        ("cpu:0", on_cpu(0)),
        ("node:1", on_node(1)),
        ("node:1 shared", named(&["log-shipper"])),
        ("problem", named(&[])),
        ("no such thing", named(&[])),
        ("", named(&ALL)),
    ] {
        set(browser, "search", words);
        let count = match expected.len() {
            6 => "6 containers".to_owned(),
            found => format!("{found} of 6 containers"),
        };
        wait(browser, &format!("{words}: {expected:?}"), |it| {
            short(&it.rows()) == expected && it.text("count") == count
        });
    }
    browser.run("document.activeElement.blur()");
}

/// By each title, and the other way round.
pub(crate) fn sort(browser: &Browser) {
    let map = ask(browser, "/api/v1/map");
    let mut by_cpu = those(&map, |_| true);
    by_cpu.sort_by_key(|name| {
        let containers = map["containers"].as_array().unwrap();
        let full = format!("default/{name}/app");
        cpus(containers.iter().find(|it| it["name"] == full.as_str()).unwrap()).first()
    });
    let by_cpu: Vec<&str> = by_cpu.iter().map(String::as_str).collect();
    let back = |names: &[&'static str]| names.iter().copied().rev().collect::<Vec<_>>();
    let class = ["database", "inference", "late", "web", "batch", "log-shipper"];
    let class_up = ["batch", "log-shipper", "database", "inference", "late", "web"];
    for (title, direction, expected) in [
        ("Container", "descending", back(&ALL)),
        ("Container", "ascending", ALL.to_vec()),
        ("Class", "ascending", class.to_vec()),
        ("Class", "descending", class_up.to_vec()),
        ("CPUs", "ascending", by_cpu.clone()),
        ("CPUs", "descending", by_cpu.iter().copied().rev().collect()),
        ("Container", "ascending", ALL.to_vec()),
    ] {
        click_title(browser, title);
        let sorted = format!("{title} {direction}");
        wait(browser, &format!("{sorted}: {expected:?}"), |it| {
            it.list("sorted") == [&sorted] && short(&it.rows()) == expected
        });
    }
}

pub(crate) fn click_title(browser: &Browser, title: &str) {
    browser.run(&format!(
        "[...document.querySelectorAll('#table th button')].find((it) => it.textContent === '{title}').click()"
    ));
}
