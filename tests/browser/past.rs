//! The past on the page. In: a node on which pods have come and gone. Out: every moment is what the daemon tells of it, and of two moments what differs.

use std::collections::BTreeMap;

use bayplan_types::{CpuId, CpuSet};
use serde_json::Value;

use crate::driver::Browser;
use crate::keep;
use crate::seen::{Seen, ask, choose, click, press, seen, set, wait};

/// The exclusive container of each CPU.
fn owners(map: &Value) -> BTreeMap<u32, String> {
    let mut owners = BTreeMap::new();
    for it in map["containers"].as_array().unwrap() {
        let own: CpuSet = it["own"].as_str().unwrap().parse().unwrap();
        owners.extend(own.iter().map(|cpu| (cpu.0, it["name"].as_str().unwrap().to_owned())));
    }
    owners
}

fn names(map: &Value) -> Vec<&str> {
    map["containers"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

fn events(browser: &Browser) -> Vec<Value> {
    ask(browser, "/api/v1/history?count=200")["entries"].as_array().unwrap().clone()
}

fn is_capital(letter: &str) -> bool {
    !letter.is_empty() && letter.bytes().all(|it| it.is_ascii_uppercase())
}

fn id(event: &Value) -> &str {
    event["id"].as_str().unwrap()
}

/// The moment after an event, once the page shows it.
fn check_moment(browser: &Browser, all: &[Value], at: usize) -> Seen {
    let event = &all[at];
    let map = ask(browser, &format!("/api/v1/map?at={}", id(event)));
    let place = format!("event {} of {}: ", at + 1, all.len());
    let name = event["name"].as_str().unwrap();
    let shown = wait(browser, &place, |it| {
        let text = it.text("event");
        let is_there = text.contains(&place) && text.contains(name) && it.rows() == names(&map);
        is_there && it.text("status").starts_with("the past") && has_owners(it, "map", &map)
    });
    let why = event["why"].as_str().unwrap();
    assert!(shown.text("event").ends_with(why), "{why}: {}", shown.text("event"));
    assert!(shown.title("map").starts_with("At "), "{}", shown.title("map"));
    assert_eq!(shown.text("address"), format!("#at={}", id(event)));
    shown
}

/// Whether each CPU says which container has it, and has a letter for that.
fn has_owners(shown: &Seen, place: &str, map: &Value) -> bool {
    let owners = owners(map);
    shown.0[place]["cpus"].as_object().unwrap().keys().all(|cpu| {
        let cpu = cpu.parse().unwrap();
        let (label, letter, _) = shown.cpu(place, cpu);
        match owners.get(&cpu) {
            Some(owner) => label.contains(owner.as_str()) && is_capital(letter),
            None => !label.contains("/app"),
        }
    })
}

/// Every moment with the slider and the buttons, forwards and back to now.
pub(crate) fn every_moment(browser: &Browser) {
    let all = events(browser);
    for kind in ["started", "placed", "ended"] {
        assert!(all.iter().any(|it| it["kind"] == kind), "{kind}: {all:#?}");
    }
    set(browser, "slider", "0");
    for at in 0..all.len() {
        let shown = check_moment(browser, &all, at);
        assert_eq!(shown.0["slider"], serde_json::json!([at, all.len()]));
        click(browser, "forward");
    }
    let now = wait(browser, "now", |it| it.text("status").starts_with("live"));
    assert!(now.text("event").starts_with("Now. The last event, "), "{}", now.text("event"));
    assert_eq!(now.text("address"), "");
    assert!(has_owners(&now, "map", &ask(browser, "/api/v1/map")), "{now:#?}");
    // Back again, by button and by key.
    click(browser, "back");
    check_moment(browser, &all, all.len() - 1);
    press(browser, "[");
    check_moment(browser, &all, all.len() - 2);
    set(browser, "slider", &all.len().to_string());
    wait(browser, "now", |it| it.text("status").starts_with("live"));
}

/// The moment before a container has ended, and the last one, beside each other.
pub(crate) fn two_moments(browser: &Browser) {
    let all = events(browser);
    let is_end = |it: &Value| it["kind"] == "ended" && it["name"] == "default/old-web/app";
    let end = all.iter().position(is_end).unwrap();
    set(browser, "slider", &(end - 1).to_string());
    check_moment(browser, &all, end - 1);
    click(browser, "pin");
    wait(browser, "a second map", |it| it.title("other").ends_with("no CPU differs"));
    set(browser, "slider", &(all.len() - 1).to_string());
    let [then, last] = [end - 1, all.len() - 1]
        .map(|at| ask(browser, &format!("/api/v1/map?at={}", id(&all[at]))));
    let (before, after) = (owners(&then), owners(&last));
    let cpus = before.keys().chain(after.keys());
    let moved = cpus.filter(|cpu| before.get(cpu) != after.get(cpu)).map(|cpu| CpuId(*cpu));
    let moved: CpuSet = moved.collect();
    assert!(!moved.is_empty());
    let ending = format!("CPUs {moved} differ");
    let shown = wait(browser, &ending, |it| it.title("other").ends_with(&ending));
    assert!(shown.title("other").starts_with("Compared with "), "{}", shown.title("other"));
    for (place, map) in [("other", &then), ("map", &last)] {
        assert_eq!(shown.cpus_that_look(place, "moved"), moved, "{place}");
        assert!(has_owners(&shown, place, map), "{place}: {shown:#?}");
        for cpu in moved.iter() {
            assert!(shown.cpu(place, cpu.0).0.ends_with("differs"));
        }
    }
    check_letters(&shown, &before, &after);
    keep(browser, "3-compared");
    click(browser, "pin");
    press(browser, "l");
    let now = wait(browser, "now", |it| it.text("status").starts_with("live"));
    assert!(now.0["other"].is_null() && now.rows().contains(&"default/late/app"));
}

/// A letter stands for one container in both maps, and the legend has those of both.
fn check_letters(shown: &Seen, before: &BTreeMap<u32, String>, after: &BTreeMap<u32, String>) {
    let mut letters = BTreeMap::new();
    for (place, owners) in [("other", before), ("map", after)] {
        for (cpu, owner) in owners {
            let letter = shown.cpu(place, *cpu).1;
            assert_eq!(*letters.entry(letter).or_insert(owner), owner, "{letter} in {place}");
        }
    }
    // Those of shared pools stay, too.
    let moved = shown.cpus_that_look("map", "moved");
    for cpu in (0..48).filter(|cpu| !moved.iter().any(|it| it.0 == *cpu)) {
        assert_eq!(shown.cpu("map", cpu).1, shown.cpu("other", cpu).1, "CPU {cpu}");
    }
    let legend = shown.list("legend");
    for (letter, owner) in letters {
        let is_both = |it: &&str| it.starts_with(&format!("{letter}{owner}"));
        assert!(legend.iter().any(is_both), "{letter} {owner}: {legend:?}");
    }
    assert!(legend.iter().any(|it| it.contains("old-web/app, in the other map")), "{legend:?}");
}

/// A link to everything that can be chosen shows the same again.
pub(crate) fn a_link_keeps_the_view(browser: &Browser, origin: &str) {
    let all = events(browser);
    let is_placed = |it: &Value| it["kind"] == "placed" && it["name"] == "default/old-web/app";
    let then = all.iter().position(is_placed).unwrap();
    set(browser, "slider", &then.to_string());
    check_moment(browser, &all, then);
    click(browser, "pin");
    set(browser, "slider", &(all.len() - 1).to_string());
    check_moment_with(browser, &all, all.len() - 1);
    set(browser, "overlay", "lent");
    set(browser, "search", "exclusive");
    browser.run("[...document.querySelectorAll('#table th button')].find((it) => it.textContent === 'CPUs').click()");
    choose(browser, "default/web/app");
    let whole = |it: &Seen| {
        it.text("detail") == "default/web/app"
            && it.title("other").contains("differ")
            && it.text("event").contains(&format!("event {} of", all.len()))
    };
    let shown = wait(browser, "the view", whole);
    for part in ["by=lent", "at=", "with=", "see=container", "find=exclusive", "sort=cpus"] {
        assert!(shown.text("address").contains(part), "{part}: {}", shown.text("address"));
    }
    let link = format!("{origin}/map{}", shown.text("address"));
    browser.open("about:blank");
    browser.open(&link);
    let again = wait(browser, "the view of the link", |it| whole(it) && it.rows() == shown.rows());
    assert_eq!(again, shown);
    // What only moves the focus changes nothing of it.
    browser.run("document.querySelector('.skip').click()");
    assert_eq!(browser.run("return document.activeElement.id"), "containers");
    assert_eq!(seen(browser), shown);
    browser.open("about:blank");
    browser.open(&format!("{origin}/map"));
    wait(browser, "now", |it| it.text("status").starts_with("live") && it.rows().len() > 3);
}

fn check_moment_with(browser: &Browser, all: &[Value], at: usize) {
    let place = format!("event {} of {}: ", at + 1, all.len());
    wait(browser, &place, |it| it.text("event").contains(&place) && !it.0["other"].is_null());
}

/// A link to what is gone shows now, and says so; the browser's log has the answer alone.
pub(crate) fn a_link_to_what_is_gone(browser: &Browser, origin: &str) {
    browser.open("about:blank");
    browser.open(&format!("{origin}/map#at=9.9"));
    let why = "the history has no entry 9.9, or not any more";
    let shown = wait(browser, why, |it| it.text("status").ends_with(why));
    assert!(shown.text("status").starts_with("live"), "{}", shown.text("status"));
    wait(browser, "now", |it| it.rows().contains(&"default/web/app"));
    assert_eq!(seen(browser).text("address"), "");
    let log = browser.log("browser");
    let all: Vec<&str> = log.iter().map(|it| it["message"].as_str().unwrap()).collect();
    assert!(all.len() == 1 && all[0].contains("at=9.9") && all[0].contains("404"), "{all:?}");
}
