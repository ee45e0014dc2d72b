//! What the page shows, as values. In: a browser with the page. Out: texts, the table, the maps, what is chosen.

use bayplan_types::{CpuId, CpuSet};
use serde_json::Value;

use crate::driver::Browser;

/// Everything that tests look at, in one object.
const SCRIPT: &str = r##"
const byId = (id) => document.getElementById(id);
const map = (id) => {
  const place = byId(id);
  if (place.hidden) return null;
  const cpus = [...place.querySelectorAll(".cpu")].map((it) => [it.dataset.id, {
    label: it.getAttribute("aria-label"), text: it.querySelector(".letter").dataset.text ?? null, looks: [...it.classList].slice(1) }]);
  return { title: place.querySelector("h2")?.textContent ?? "", cpus: Object.fromEntries(cpus) };
};
const texts = (selector) => [...document.querySelectorAll(selector)].map((it) => it.textContent);
return {
  status: byId("status").textContent, event: byId("event").textContent, count: byId("count").textContent,
  map: map("map"), other: map("other"), slider: [Number(byId("slider").value), Number(byId("slider").max)],
  overlay: byId("overlay").value, search: byId("search").value, rows: texts("#table tbody .name"), legend: texts("#legend li"),
  sorted: [...document.querySelectorAll("#table th[aria-sort]")].map((it) => `${it.textContent} ${it.getAttribute("aria-sort")}`),
  detail: document.querySelector("#detail:not([hidden]) h2")?.textContent ?? null, address: location.hash,
};
"##;

/// What is shown at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen(pub(crate) Value);

impl Seen {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    /// Names of containers in the table, from its top.
    pub(crate) fn rows(&self) -> Vec<&str> {
        self.list("rows")
    }

    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.0[name].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
    }

    /// What a map, `map` or `other`, shows of a CPU: label, text and looks.
    pub(crate) fn cpu(&self, map: &str, cpu: u32) -> (&str, &str, Vec<&str>) {
        let it = &self.0[map]["cpus"][cpu.to_string()];
        let looks = it["looks"].as_array().unwrap_or_else(|| panic!("{map} {cpu}: {}", self.0));
        let looks = looks.iter().map(|it| it.as_str().unwrap()).collect();
        (it["label"].as_str().unwrap(), it["text"].as_str().unwrap_or_default(), looks)
    }

    /// CPUs that a map marks so.
    pub(crate) fn cpus_that_look(&self, map: &str, look: &str) -> CpuSet {
        let all = self.0[map]["cpus"].as_object().unwrap().iter();
        let marked = all.filter(|(_, it)| it["looks"].as_array().unwrap().contains(&look.into()));
        marked.map(|(cpu, _)| CpuId(cpu.parse().unwrap())).collect()
    }

    pub(crate) fn title(&self, map: &str) -> &str {
        self.0[map]["title"].as_str().unwrap_or_default()
    }
}

/// What is shown now.
pub(crate) fn seen(browser: &Browser) -> Seen {
    Seen(browser.run(SCRIPT))
}

/// What is shown as soon as this holds; `what` is what is waited for.
pub(crate) fn wait(browser: &Browser, what: &str, holds: impl Fn(&Seen) -> bool) -> Seen {
    let found = browser.wait_until(SCRIPT, what, |it| holds(&Seen(it.clone())));
    Seen(found)
}

/// What the daemon answers to the page.
pub(crate) fn ask(browser: &Browser, path: &str) -> Value {
    browser.run(&format!("return fetch('{path}').then((it) => it.json())"))
}

pub(crate) fn press(browser: &Browser, key: &str) {
    browser.run(&format!("document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))"));
}

pub(crate) fn click(browser: &Browser, id: &str) {
    browser.run(&format!("document.getElementById('{id}').click()"));
}

/// Types into a field, moves the slider, or chooses of a list.
pub(crate) fn set(browser: &Browser, id: &str, value: &str) {
    browser.run(&format!(
        "const it = document.getElementById('{id}'); it.value = '{value}'; \
         it.dispatchEvent(new Event('input')); it.dispatchEvent(new Event('change'))"
    ));
}

/// Clicks a container's name in the table.
pub(crate) fn choose(browser: &Browser, name: &str) {
    browser.run(&format!(
        "[...document.querySelectorAll('#table .name')].find((it) => it.textContent === '{name}').click()"
    ));
}
