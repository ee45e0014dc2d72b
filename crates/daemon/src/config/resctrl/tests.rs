use std::path::Path;

use expect_test::{Expect, expect};

use super::super::{ConfigFile, parse_config, schema};

/// What is kept, shown as a file, or the mistakes; the schema may accept some of these, and never refuses what is good.
fn check(text: &str, expected: Expect) {
    let shown = match ConfigFile::parse(Path::new("f"), text) {
        Ok(file) => {
            let shown = file.settings().to_string();
            assert_eq!(parse_config(Path::new("f"), &shown), Ok(file.config));
            let validator = jsonschema::draft202012::options().build(&schema()).unwrap();
            let json: serde_json::Value = serde_yaml::from_str(text).unwrap();
            assert!(validator.is_valid(&json), "{text}");
            shown.lines().find(|line| line.starts_with("resctrl:")).unwrap().to_owned()
        }
        Err(errors) => errors.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn every_form_of_goresctrl_is_understood() {
    check(
        "resctrl:
  options:
    l2: {optional: true}
    mb:
      optional: true
  partitions:
    exclusive:
      l3Allocation: 60%
      mbAllocation: [100%]
      classes:
        guaranteed:
    shared:
      l3Allocation:
        all: 40%
        2-3: {unified: 20%, code: 15%, data: 25%}
      mbAllocation: [50%, 1500MBps]
      classes:
        burstable:
          l3Schema: '0x3'
          mbSchema:
            all: [80%]
            0,1: [50, 1GBps]
        besteffort: {l3Allocation: 0-3, kubernetes: {denyPodAnnotation: true}}
        DEFAULT: {}
",
        expect![[r#""#]],
    );
    for text in ["resctrl:\n", "resctrl: {}\n", "resctrl: {partitions: }\n"] {
        check(text, expect!["resctrl: {}  # line 1 of the file"]);
    }
}

#[test]
fn every_mistake_is_listed_where_it_stands() {
    check(
        "resctrl:
  option: {}
  options:
    l4: {optional: true}
    l3: {optional: maybe, needed: true}
  partitions:
    one:
      l3Allocation: {all: 120%, x: 5%, 0-1: 50%, 1: 0x2}
      l2Allocation: {all: {code: 50%, data: 50%}, 1: {unified: 50%, code: 1%}, 2: {unify: 1%}}
      mbAllocation: 50%
      classes:
        web: [1]
        ..:
        db:
          l3Allocation:
            - 5%
          mbAllocation: [[1]]
          kubernetes: {deny: true}
    two:
      l3Allocation: 0xfff000000
      classes:
        web: {l2Allocation: 1%}
    one: 3
",
        expect![[r#""#]],
    );
    check("resctrl: [a]\n", expect![[r#""#]]);
}
