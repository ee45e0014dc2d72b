//! Every level that the configuration knows: groups that are a whole domain of it, and the domain around a group that shares idle CPUs.

use super::*;

const MACHINE: (&str, &str) = ("pack:2 die:2 numa:2 l3:2 core:2 pu:2 mem:2", "0,32");

/// A group for each of two pods: all of a domain that no other container owns, rather one without reserved CPUs. Of the machine there is one.
#[test]
fn a_group_is_a_whole_domain_of_its_level() {
    let mut told = String::new();
    for level in [Level::L3, Level::NumaNode, Level::Die, Level::Package, Level::Machine] {
        let instances = Instances { by: InstanceKey::Pod, ..Instances::default() };
        let zone = GroupType { instances, ..kind("zone", Size::Domain(level)) };
        let mut node = started(MACHINE, &[zone]);
        for name in ["n/a/c", "n/b/c"] {
            let place = node.create(&[name, "100", "bayplan.dev/group=zone"]);
            told.push_str(&format!("{level} {name}: {place}\n"));
        }
        node.restart();
    }
    expect![[r#"
        L3 n/a/c: on 2-3,34-35
        L3 n/b/c: on 4-5,36-37
        NumaNode n/a/c: on 4-7,36-39
        NumaNode n/b/c: on 8-11,40-43
        Die n/a/c: on 8-15,40-47
        Die n/b/c: on 16-23,48-55
        Package n/a/c: on 16-31,48-63
        Package n/b/c: on 1-15,33-47
        Machine n/a/c: on 1-31,33-63
        Machine n/b/c: bayplan: n/b/c refused: no group of `zone` has room; a new zone: none of its domains is free
    "#]].assert_eq(&told);
}

/// Beside its own CPU a member runs on all CPUs of the domain that no other container has; an exclusive container has all of the next cores, and CPUs 0 and 32 are reserved.
#[test]
fn members_share_idle_cpus_of_each_level() {
    let mut told = String::new();
    for level in [
        Level::Core,
        Level::L2,
        Level::L3,
        Level::NumaNode,
        Level::Die,
        Level::Package,
        Level::Machine,
    ] {
        let cpus = CpuWishes { shares_idle: Some(level), ..CpuWishes::default() };
        let mut node = started(MACHINE, &[GroupType { cpus, ..kind("web", requests(1, 4)) }]);
        node.create(&["n/a/c", "1000", "bayplan.dev/group=web"]);
        node.create(&["n/x/c", "4000", "Guaranteed"]);
        told.push_str(&format!("{level}\n{}", node.shown()));
        node.restart();
    }
    expect![[r#"
        Core
          web[0] : 1, n/a/c on 1,33
          n/x/c on 2-3,34-35
        L2
          web[0] : 1, n/a/c on 1,33
          n/x/c on 2-3,34-35
        L3
          web[0] : 1, n/a/c on 1,33
          n/x/c on 2-3,34-35
        NumaNode
          web[0] : 1, n/a/c on 1,33
          n/x/c on 2-3,34-35
        Die
          web[0] : 1, n/a/c on 1,4-7,33,36-39
          n/x/c on 2-3,34-35
        Package
          web[0] : 1, n/a/c on 1,4-15,33,36-47
          n/x/c on 2-3,34-35
        Machine
          web[0] : 1, n/a/c on 1,4-31,33,36-63
          n/x/c on 2-3,34-35
    "#]]
    .assert_eq(&told);
}
