//! The key `cpuClasses.speedSelect`. In: its tree in the file. Out: what it means, or every mistake in it.

use std::collections::BTreeMap;

use bayplan_enforcement::power::Frequency;
use bayplan_enforcement::speed_select::{ClosWish, SpeedSelectWish};
use bayplan_types::{CLOS_COUNT, CLOS_MHZ_MAX, CLOS_MHZ_STEP, CLOS_WEIGHT_MAX, CorePower, Khz};
use serde_json::{Map, Value as Json, json};

use crate::config::Config;
use crate::errors::ConfigError;
use crate::fields::Fields;
use crate::kind::{Field, Tree};

/// The key itself.
pub(crate) struct SpeedSelectTree;

const EXPECTED: &str = "lines such as `corePower: ordered` and `clos: {0: {minFreq: 2.4GHz}}`";

const KEYS: [&str; 2] = ["corePower", "clos"];
const CLOS_KEYS: [&str; 3] = ["minFreq", "maxFreq", "weight"];

fn wish(fields: &mut Fields<'_>) -> SpeedSelectWish {
    let mut wish = SpeedSelectWish::default();
    for (at, key, value) in fields.entries() {
        match key.as_str() {
            "corePower" => {
                let expected = ways().join(", ");
                wish.core_power = fields.parsed(&key, value, &expected, parse_core_power);
            }
            "clos" => wish.clos = classes(&mut fields.inner(&key, value)),
            other => fields.unknown(at, other, &KEYS),
        }
    }
    wish
}

fn classes(fields: &mut Fields<'_>) -> BTreeMap<u8, ClosWish> {
    let mut classes = BTreeMap::new();
    for (at, key, value) in fields.entries() {
        match numbers().position(|it| it == key).and_then(|it| u8::try_from(it).ok()) {
            Some(number) => {
                let class = class(&mut fields.inner(&key, value));
                classes.insert(number, class);
            }
            None => {
                let known: Vec<String> = numbers().collect();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                fields.unknown(at, &key, &known);
            }
        }
    }
    classes
}

fn class(fields: &mut Fields<'_>) -> ClosWish {
    let mut wish = ClosWish::default();
    for (at, key, value) in fields.entries() {
        let mhz = "a frequency from 100MHz to 25.5GHz";
        match key.as_str() {
            "minFreq" => wish.min_mhz = fields.parsed(&key, value, mhz, parse_mhz),
            "maxFreq" => wish.max_mhz = fields.parsed(&key, value, mhz, parse_mhz),
            "weight" => {
                let expected = "a number from 0 to 15";
                wish.weight = fields.number(&key, value, 0..=CLOS_WEIGHT_MAX, expected);
            }
            other => fields.unknown(at, other, &CLOS_KEYS),
        }
    }
    if let Some((min, max)) = wish.min_mhz.zip(wish.max_mhz).filter(|(min, max)| min > max) {
        let message =
            format!("`minFreq` is {min} MHz, above `maxFreq`, {max} MHz; expected at most that");
        fields.wrong(fields.at(), message);
    }
    wish
}

/// Classes of service, as keys.
fn numbers() -> impl Iterator<Item = String> {
    (0..CLOS_COUNT).map(|it| it.to_string())
}

fn ways() -> [&'static str; 3] {
    CorePower::ALL.map(CorePower::name)
}

/// `off` without quotes is a false of YAML.
fn parse_core_power(text: &str) -> Option<CorePower> {
    if text == "false" { Some(CorePower::Off) } else { text.parse().ok() }
}

fn parse_mhz(text: &str) -> Option<u32> {
    let Ok(Frequency::Exactly(khz)) = text.parse() else { return None };
    let mhz = u32::try_from(khz.0 / 1000).ok()?;
    (CLOS_MHZ_STEP..=CLOS_MHZ_MAX).contains(&mhz).then_some(mhz)
}

impl Tree for SpeedSelectTree {
    fn expected(&self) -> String {
        EXPECTED.to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let mut fields = Fields::new(field.key, field.value, &mut errors);
        config.cpu_classes.speed_select = wish(&mut fields);
        errors
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
        let classes: BTreeMap<String, &Json> = numbers().map(|it| (it, &class)).collect();
        // `off` without quotes is a false of YAML.
        let ways: Vec<Json> = ways().map(Json::from).into_iter().chain([json!(false)]).collect();
        json!({
            "type": ["object", "null"],
            "properties": {
                "corePower": { "enum": ways },
                "clos": {
                    "type": ["object", "null"],
                    "properties": classes,
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
