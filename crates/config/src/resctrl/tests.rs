use std::path::Path;

use expect_test::{Expect, expect};

use crate::{ConfigFile, parse_config, schema};

/// What is kept, shown as a file, or the mistakes; the schema may accept some of these, and never refuses what is good.
fn check(text: &str, expected: Expect) {
    let shown = match ConfigFile::parse(Path::new("f"), text) {
        Ok(file) => {
            let shown = file.settings().to_string();
            assert_eq!(parse_config(Path::new("f"), &shown), Ok(file.config));
            let validator = jsonschema::draft202012::options().build(&schema()).unwrap();
            let json: serde_json::Value = serde_yaml::from_str(text).unwrap();
            assert!(validator.is_valid(&json), "{text}");
            let section = shown.lines().skip_while(|line| *line != "resctrl:").skip(1);
            let section = section.take_while(|line| !line.is_empty());
            let values = section.filter(|line| !line.trim().starts_with('#'));
            // Without the line of the file.
            let value = |line: &str| line.split("  # line").next().unwrap().trim().to_owned();
            values.map(|line| value(line) + "\n").collect()
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
          mbschema:
            all: [80%]
            0,1: [50, 1GBps, 30%]
        besteffort: {l3Allocation: 0-3, kubernetes: {denyPodAnnotation: true}}
        SYSTEM_DEFAULT: {}
",
        expect![[r#"
            monitor: "off"
            options: {"l2":{"optional":true},"mb":{"optional":true}}
            partitions: {"exclusive":{"classes":{"guaranteed":{}},"l3Allocation":{"all":"60%"},"mbAllocation":{"all":["100%"]}},"shared":{"classes":{"besteffort":{"kubernetes":{"denyPodAnnotation":true},"l3Allocation":{"all":"0xf"}},"burstable":{"l3Allocation":{"all":"0x3"},"mbAllocation":{"0,1":["50","1GBps","30%"],"all":["80%"]}},"system/default":{}},"l3Allocation":{"2-3":{"code":"15%","data":"25%","unified":"20%"},"all":"40%"},"mbAllocation":{"all":["50%","1500MBps"]}}}
        "#]],
    );
    for text in ["resctrl:\n", "resctrl: {}\n", "resctrl: {partitions: , options: }\n"] {
        check(
            text,
            expect![[r#"
                monitor: "off"
                options: {}
                partitions: {}
            "#]],
        );
    }
    check(
        "resctrl: {monitor: auto}\n",
        expect![[r#"
          monitor: auto
          options: {}
          partitions: {}
    "#]],
    );
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
        expect![[r#"
            f:2:3: unknown key `resctrl.option`; did you mean `options`? known are monitor, options, partitions
            f:4:5: `resctrl.options`: unknown key `l4`; known are l2, l3, mb
            f:5:20: `resctrl.options.l3`: `optional` is `maybe`, expected true, false
            f:5:27: `resctrl.options.l3`: unknown key `needed`; known are optional
            f:8:27: `resctrl.partitions.one.l3Allocation`: `all`: `120%` is not within 0% to 100%
            f:8:33: `resctrl.partitions.one.l3Allocation`: `x` names no caches, expected `all` or cache ids such as 0, 0-3 or 0,2-3
            f:9:27: `resctrl.partitions.one.l2Allocation.all`: `unified` is missing, which counts where code and data are one
            f:9:54: `resctrl.partitions.one.l2Allocation.1`: `code` and `data` go together; write both, or only `unified`
            f:9:84: `resctrl.partitions.one.l2Allocation.2`: unknown key `unify`; known are unified, code, data
            f:10:21: `resctrl.partitions.one.mbAllocation`: expected a share, or `all` and cache ids with one each
            f:12:14: `resctrl.partitions.one.classes.web`: expected lines of l2Allocation, l3Allocation, mbAllocation, kubernetes
            f:13:9: `resctrl.partitions.one.classes`: a class cannot be called `..`, which is a directory
            f:16:13: `resctrl.partitions.one.classes.db.l3Allocation`: expected a share, or `all` and cache ids with one each
            f:17:26: `resctrl.partitions.one.classes.db`: `mbAllocation`: expected values such as 50% or 1500MBps
            f:18:24: `resctrl.partitions.one.classes.db.kubernetes`: unknown key `deny`; known are denyPodAnnotation, denyContainerAnnotation
            f:20:21: `resctrl.partitions.two`: `l3Allocation`: `68702699520` is not a part of a cache, expected a percentage ("60%"), a range of it ("20-50%"), a bit mask ("0xff0") or bit numbers ("4-11")
            f:22:9: `resctrl`: class `web`: duplicate; names are unique across partitions
            f:22:9: `resctrl`: class `web`: has l2Allocation, but its partition `two` has none; write it there, too
            f:23:5: `resctrl`: partition `one`: l3Allocation names caches of `1` twice
            f:23:5: `resctrl`: partition `one`: duplicate; classes of one name belong together
            f:23:10: `resctrl.partitions.one`: expected lines of l2Allocation, l3Allocation, mbAllocation, classes"#]],
    );
    check(
        "resctrl: [a]\n",
        expect![
            "f:1:10: `resctrl` is not a mapping, expected lines of `key: value`; known are monitor, options, partitions"
        ],
    );
    check(
        "resctrl: {monitor: always, options: 1, partitions: [a]}\n",
        expect![[r#"
            f:1:20: `resctrl.monitor` is `always`, expected one of auto, off
            f:1:37: `resctrl.options`: expected l2, l3 or mb
            f:1:52: `resctrl.partitions`: expected names of partitions, or nothing such as {}; docs/resctrl.md has examples"#]],
    );
}
