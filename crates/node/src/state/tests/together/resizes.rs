//! Resizes of containers and of pods.

use super::*;

/// In a pod without a figure of its own, where one container then asks for as much as all had before.
#[test]
fn a_resize_alone_makes_no_container_silent() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "o/a 1000/1000 1 of 2000/2000 2",
            "o/b 1000/1000 1 of 2000/2000 2",
            "resize o/a 2000/2000 1",
            "show",
            "pod o 3000/3000 2",
            "show",
        ],
        expect![[r#"
            o/a 1000/1000 1 of 2000/2000 2
            o/b 1000/1000 1 of 2000/2000 2
            resize o/a 2000/2000 1
              o/a owns 2, cpus 1-2, mems 0, 1 GiB
              o/b owns 1, cpus 5, mems 0, 1 GiB
            pod o 3000/3000 2
              o/a owns 2, cpus 1-2, mems 0, 1 GiB
              o/b owns 1, cpus 5, mems 0, 1 GiB
        "#]],
    );
}

/// Of the memory alone, to as much as the pod had before: the pod's figure follows, or came first.
#[test]
fn a_resize_of_memory_alone_counts_in_full_before_and_after_the_pods_figure() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "o/a 1000/1000 4 of 2000/2000 6",
            "o/b 1000/1000 2 of 2000/2000 6",
            "resize o/a 1000/1000 6",
            "show",
            "restart",
            "pod o 2000/2000 8",
            "show",
            "resize o/a 1000/1000 9",
            "show",
            "pod o 2000/2000 11",
            "resize o/a 1000/1000 4",
            "pod o 2000/2000 6",
            "show",
            "pod o 2000/2000 8",
            "resize o/a 1000/1000 6",
            "show",
        ],
        expect![[r#"
            o/a 1000/1000 4 of 2000/2000 6
            o/b 1000/1000 2 of 2000/2000 6
            resize o/a 1000/1000 6
              o/a owns 1, cpus 1, mems 0, 6 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            restart
            pod o 2000/2000 8
              o/a owns 1, cpus 1, mems 0, 6 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            resize o/a 1000/1000 9
              o/a owns 1, cpus 1, mems 0, 9 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            pod o 2000/2000 11
            resize o/a 1000/1000 4
            pod o 2000/2000 6
              o/a owns 1, cpus 1, mems 0, 4 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
            pod o 2000/2000 8
            resize o/a 1000/1000 6
              o/a owns 1, cpus 1, mems 0, 6 GiB
              o/b owns 1, cpus 5, mems 0, 2 GiB
        "#]],
    );
}

#[test]
fn memory_that_is_filled_from_the_pod_grows_with_it_in_either_order() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "p/a 1000/1000 8 of 2000/2000 8",
            "p/b 1000/1000 2 of 2000/2000 8",
            "show",
            "resize p/a 1000/1000 12",
            "show",
            "pod p 2000/2000 12",
            "show",
            "pod p 2000/2000 16",
            "resize p/a 1000/1000 16",
            "show",
        ],
        expect![[r#"
            p/a 1000/1000 8 of 2000/2000 8
            p/b 1000/1000 2 of 2000/2000 8
              p/a owns 1, cpus 1, mems 0, 6 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
            resize p/a 1000/1000 12
              p/a owns 1, cpus 1, mems 0, 10 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
            pod p 2000/2000 12
              p/a owns 1, cpus 1, mems 0, 10 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
            pod p 2000/2000 16
            resize p/a 1000/1000 16
              p/a owns 1, cpus 1, mems 0, 14 GiB
              p/b owns 1, cpus 5, mems 0, 2 GiB
        "#]],
    );
}

/// As kubelet 1.37 resizes the figure of a pod: of a container that says nothing the shares become the least.
#[test]
fn a_resize_of_the_pod_gives_its_silent_containers_cpus_and_takes_them_back() {
    let whole = "500/500 4 of 500/500 4";
    let created = ["p/a", "p/b", "p/c"].map(|name| format!("{name} {whole}"));
    let mut steps: Vec<&str> = created.iter().map(String::as_str).collect();
    steps.extend(["show", "pod p 500/1000 4", "pod p 1000/1000 4"]);
    // The second of them had the pod's CPU taken away until the third was resized.
    steps.extend(["resize p/a 0/1000 4", "resize p/b 0/1000 4", "show"]);
    steps.extend(["resize p/c 0/1000 4", "show", "restart"]);
    steps.extend(["resize p/c 0/500 4", "show", "resize p/b 0/500 4", "resize p/a 0/500 4"]);
    steps.extend(["pod p 500/1000 4", "pod p 500/500 4", "show"]);
    check(
        "numa:1 core:4 pu:2 mem:64",
        &steps,
        expect![[r#"
            p/a 500/500 4 of 500/500 4
            p/b 500/500 4 of 500/500 4
            p/c 500/500 4 of 500/500 4
              p/a shares 500m, cpus 0-7, mems 0, 4 GiB
              p/b shares 0, cpus 0-7, mems 0, 0 B
              p/c shares 0, cpus 0-7, mems 0, 0 B
            pod p 500/1000 4
            pod p 1000/1000 4
            resize p/a 0/1000 4
            resize p/b 0/1000 4
              p/a owns 1, cpus 1, mems 0, 4 GiB
              p/b joined, cpus 1, mems 0, 0 B
              p/c joined, cpus 1, mems 0, 0 B
            resize p/c 0/1000 4
              p/a owns 1, cpus 1, mems 0, 4 GiB
              p/b joined, cpus 1, mems 0, 0 B
              p/c joined, cpus 1, mems 0, 0 B
            restart
            resize p/c 0/500 4
              p/a owns 1, cpus 1, mems 0, 4 GiB
              p/b joined, cpus 1, mems 0, 0 B
              p/c joined, cpus 1, mems 0, 0 B
            resize p/b 0/500 4
            resize p/a 0/500 4
            pod p 500/1000 4
            pod p 500/500 4
              p/a shares 500m, cpus 0-7, mems 0, 4 GiB
              p/b shares 0, cpus 0-7, mems 0, 0 B
              p/c shares 0, cpus 0-7, mems 0, 0 B
        "#]],
    );
}

#[test]
fn a_resize_of_the_pod_resizes_the_set() {
    for first in ["pod p 4000/4000 8", "resize p/a 4000/4000 8"] {
        let mut steps = vec![
            "p/a 2000/2000 4 of 2000/2000 4",
            "p/b 2000/2000 4 of 2000/2000 4",
            first,
            "resize p/a 4000/4000 8",
            "resize p/b 4000/4000 8",
            "pod p 4000/4000 8",
            "restart",
        ];
        let mut node = Node::new("numa:1 core:4 pu:2 mem:64");
        for step in steps.drain(..2) {
            let (name, rest) = step.split_once(' ').unwrap();
            let (own, whole) = rest.split_once(" of ").unwrap();
            assert_eq!(node.create(container("p", &name[2..], own, whole)), None);
        }
        assert_eq!(
            node.state.ledger.allocations().map(|(_, it)| it.exclusive.len()).sum::<usize>(),
            2
        );
        for step in steps {
            match step.split_once(' ') {
                Some(("resize", rest)) => {
                    let (id, to) = rest.split_once(' ').unwrap();
                    assert_eq!(node.resize(id, written(to)), None);
                }
                Some((_, rest)) => {
                    let (id, to) = rest.split_once(' ').unwrap();
                    node.step(Event::PodResized(id.to_owned(), written(to)));
                }
                None => node.restart(),
            }
        }
        let owned: Vec<usize> =
            node.state.ledger.allocations().map(|(_, it)| it.exclusive.len()).collect();
        assert_eq!(owned, [4, 0], "{first}");
        let cpus: BTreeSet<String> = node
            .state
            .containers
            .ids()
            .map(|id| node.state.pinning(*id).unwrap().cpus.to_string())
            .collect();
        assert_eq!(cpus.len(), 1, "{cpus:?}");
    }
}

#[test]
fn a_resize_for_which_there_is_no_room_changes_nothing() {
    check(
        "numa:1 core:4 pu:2 mem:64",
        &[
            "x/a 4000/4000 1 of 4000/4000 1",
            "p/a 2000/2000 4 of 2000/2000 4",
            "p/b 2000/2000 4 of 2000/2000 4",
            "resize p/b 4000/4000 4",
            "show",
            "restart",
        ],
        expect![[r#"
            x/a 4000/4000 1 of 4000/4000 1
            p/a 2000/2000 4 of 2000/2000 4
            p/b 2000/2000 4 of 2000/2000 4
            resize p/b 4000/4000 4: bayplan: default/p/b refused: needs 4 exclusive CPUs; 3 are free; `bayplan explain default/p/b` lists every pool
              x/a owns 4, cpus 1-2,5-6, mems 0, 1 GiB
              p/a owns 2, cpus 3,7, mems 0, 4 GiB
              p/b joined, cpus 3,7, mems 0, 0 B
            restart
        "#]],
    );
}
