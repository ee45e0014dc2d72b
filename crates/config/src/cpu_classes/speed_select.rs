//! The key `cpuClasses.speedSelect`. In: its tree in the file. Out: what it means, or every mistake in it.

use std::collections::BTreeMap;

use bayplan_enforcement::power::Frequency;
use bayplan_enforcement::speed_select::{ClosWish, SpeedSelectWish};
use bayplan_types::{CLOS_COUNT, CorePower, Khz};
use serde_json::{Map, Value as Json, json};

use crate::config::Config;
use crate::errors::ConfigError;
use crate::kind::{Field, Tree};
use crate::yaml::{Node, Position, Value};

/// The key itself.
pub(crate) struct SpeedSelectTree;

const EXPECTED: &str = "lines such as `corePower: ordered` and `clos: {0: {minFreq: 2.4GHz}}`";
/// The largest that the register of a class holds: 8 bits of 100 MHz.
const MHZ_MAX: u32 = 25_500;
const WEIGHT_MAX: u8 = 15;

#[derive(Default)]
struct Reader {
    errors: Vec<ConfigError>,
}

impl Reader {
    fn wrong(&mut self, at: Position, message: String) {
        self.errors.push(ConfigError { at, message });
    }

    fn entries<'a>(
        &mut self,
        what: &str,
        expected: &str,
        node: &'a Node,
    ) -> &'a [(Position, String, Node)] {
        match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            _ => {
                self.wrong(node.at, format!("`{what}`: expected {expected}"));
                &[]
            }
        }
    }

    /// A value, or a mistake.
    fn value<T>(
        &mut self,
        what: &str,
        expected: &str,
        node: &Node,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = match &node.value {
            Value::Scalar(text) => text.as_str(),
            _ => "",
        };
        let value = parse(text);
        if value.is_none() {
            self.wrong(node.at, format!("`{what}` is `{text}`, expected {expected}"));
        }
        value
    }

    fn unknown(&mut self, at: Position, what: &str, key: &str, known: &str) {
        self.wrong(at, format!("unknown key `{key}` in `{what}`; known are {known}"));
    }

    fn clos(&mut self, what: &str, node: &Node) -> ClosWish {
        let mut wish = ClosWish::default();
        for (at, key, value) in self.entries(what, "lines such as `minFreq: 2.4GHz`", node) {
            let of = format!("{what}.{key}");
            let mhz = "a frequency from 100MHz to 25.5GHz";
            match key.as_str() {
                "minFreq" => wish.min_mhz = self.value(&of, mhz, value, parse_mhz),
                "maxFreq" => wish.max_mhz = self.value(&of, mhz, value, parse_mhz),
                "weight" => {
                    let parse = |text: &str| text.parse().ok().filter(|it| *it <= WEIGHT_MAX);
                    wish.weight = self.value(&of, "a number from 0 to 15", value, parse);
                }
                _ => self.unknown(*at, what, key, "minFreq, maxFreq, weight"),
            }
        }
        if let Some((min, max)) = wish.min_mhz.zip(wish.max_mhz).filter(|(min, max)| min > max) {
            let message = format!(
                "`{what}.minFreq` is {min} MHz, above `maxFreq`, {max} MHz; expected at most that"
            );
            self.wrong(node.at, message);
        }
        wish
    }
}

/// `off` without quotes is a false of YAML.
fn parse_core_power(text: &str) -> Option<CorePower> {
    if text == "false" { Some(CorePower::Off) } else { text.parse().ok() }
}

fn parse_mhz(text: &str) -> Option<u32> {
    let Ok(Frequency::Exactly(khz)) = text.parse() else { return None };
    let mhz = u32::try_from(khz.0 / 1000).ok()?;
    (100..=MHZ_MAX).contains(&mhz).then_some(mhz)
}

impl Tree for SpeedSelectTree {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::default();
        let mut wish = SpeedSelectWish::default();
        for (at, key, value) in reader.entries(field.key, EXPECTED, field.value) {
            let what = format!("{}.{key}", field.key);
            match key.as_str() {
                "corePower" => {
                    let expected = "off, proportional or ordered";
                    wish.core_power = reader.value(&what, expected, value, parse_core_power);
                }
                "clos" => {
                    for (at, number, value) in reader.entries(&what, "classes from 0 to 3", value) {
                        match number.parse::<u8>().ok().filter(|it| *it < CLOS_COUNT) {
                            Some(clos) => {
                                let of = reader.clos(&format!("{what}.{number}"), value);
                                wish.clos.insert(clos, of);
                            }
                            None => reader.unknown(*at, &what, number, "0, 1, 2, 3"),
                        }
                    }
                }
                _ => reader.unknown(*at, field.key, key, "corePower, clos"),
            }
        }
        config.cpu_classes.speed_select = wish;
        reader.errors
    }

    fn shown(&self, config: &mut Config) -> Json {
        let wish = &config.cpu_classes.speed_select;
        let mut shown = Map::new();
        shown.extend(wish.core_power.map(|it| ("corePower".to_owned(), json!(it.name()))));
        if !wish.clos.is_empty() {
            let classes = wish.clos.iter().map(|(number, it)| (number.to_string(), shown_clos(it)));
            let classes: BTreeMap<String, Json> = classes.collect();
            shown.insert("clos".to_owned(), json!(classes));
        }
        Json::Object(shown)
    }

    fn schema(&self) -> Json {
        let scalar = json!({ "type": ["string", "integer"] });
        let class = json!({
            "type": ["object", "null"],
            "properties": { "minFreq": scalar, "maxFreq": scalar, "weight": scalar },
            "additionalProperties": false,
        });
        json!({
            "type": ["object", "null"],
            "properties": {
                "corePower": { "enum": ["off", "proportional", "ordered", false] },
                "clos": {
                    "type": ["object", "null"],
                    "properties": { "0": class, "1": class, "2": class, "3": class },
                    "additionalProperties": false,
                },
            },
            "additionalProperties": false,
        })
    }
}

fn shown_clos(wish: &ClosWish) -> Json {
    let mut shown = Map::new();
    let frequency = |mhz: u32| json!(Frequency::Exactly(Khz(u64::from(mhz) * 1000)).to_string());
    shown.extend(wish.min_mhz.map(|it| ("minFreq".to_owned(), frequency(it))));
    shown.extend(wish.max_mhz.map(|it| ("maxFreq".to_owned(), frequency(it))));
    shown.extend(wish.weight.map(|it| ("weight".to_owned(), json!(it))));
    Json::Object(shown)
}
