//! Which GPUs GPU Aware Scheduling has chosen for a pod. In: its annotation, and what kubelet knows of the container. Out: paths below `/dev` that the container wants to be near, as if they
//! were its devices already: those that come by CDI are none of its devices when it is placed.
//!
//! The cards of containers are separated by `|`, in their order in the pod, which CRI does not tell. So only cards count that are the same for all containers that have any, and those of the containers
//! that are to have the same GPU (`gas-same-gpu`) where no other cards stand there as often; elsewhere a container is near the devices that it is given. Where all GPUs are to be of one NUMA node
//! (`gas-allocate-single-numa`), the container has to be on that node, too.

use super::asked::Asked;
use super::hints::GPUS;
use super::values::{FLAG, Misread, check_length, word};
use super::warnings::{Warnings, annotation};
use crate::container::NewContainer;

/// As GAS writes it: `card0,card1|card2`.
pub(super) const CARDS: &str = "gas-container-cards";
/// `true`: all GPUs of a container are of one NUMA node.
pub(super) const SINGLE_NUMA: &str = "gas-allocate-single-numa";
/// Names of containers that share a GPU, with commas between them.
pub(super) const SAME_GPU: &str = "gas-same-gpu";
/// What a container asks for that is to have cards.
const RESOURCES: &str = "gpu.intel.com/";
/// Of a name in the annotation.
const CARD: &str = "card";

/// Whether it is an annotation that is read here.
pub(super) fn is_known(name: &str) -> bool {
    [CARDS, SINGLE_NUMA, SAME_GPU].contains(&name)
}

/// Fills `hints.cards` and `hints.are_gpus_strict`.
pub(super) fn read(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let annotations = &container.pod.annotations;
    if let Some(value) = annotations.get(SINGLE_NUMA) {
        match word(value, FLAG) {
            Ok(is_single) => asked.hints.are_gpus_strict = is_single,
            Err(misread) => {
                warnings.misread(&annotation(SINGLE_NUMA), value, "true or false", &misread);
            }
        }
    }
    read_cards(container, asked, warnings);
}

fn read_cards(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let Some(value) = container.pod.annotations.get(CARDS) else { return };
    let is_asking = container.facts.as_deref().is_none_or(|facts| {
        facts.own.extended.keys().any(|resource| resource.starts_with(RESOURCES))
    });
    let same = container.pod.annotations.get(SAME_GPU);
    let same = same.iter().flat_map(|it| it.split(',')).map(str::trim);
    let same: Vec<&str> = same.filter(|it| !it.is_empty()).collect();
    match parse(value) {
        Ok(parts) if is_asking => asked.hints.cards = cards_of(&container.name, &parts, &same),
        Ok(_) => {}
        Err(misread) => {
            let expected = "cards such as card0,card1, with | between containers";
            warnings.misread(&annotation(CARDS), value, expected, &misread);
        }
    }
}

/// The cards of each container that has any.
fn parse(value: &str) -> Result<Vec<Vec<String>>, Misread> {
    check_length(value)?;
    let parts = value.split('|').map(str::trim).filter(|it| !it.is_empty());
    parts.map(|part| part.split(',').map(|it| path(it.trim())).collect()).collect()
}

/// The cards of a container; none where they may be those of another one.
fn cards_of(name: &str, parts: &[Vec<String>], same: &[&str]) -> Vec<String> {
    let count = |cards: &Vec<String>| parts.iter().filter(|it| *it == cards).count();
    let least = if same.contains(&name) { same.len() } else { parts.len() };
    let mut likely = parts.iter().filter(|it| count(it) >= least.max(1));
    let Some(first) = likely.next() else { return Vec::new() };
    if likely.all(|it| it == first) { first.clone() } else { Vec::new() }
}

/// `card0` is `/dev/dri/card0`.
fn path(card: &str) -> Result<String, Misread> {
    let number = card.strip_prefix(CARD).unwrap_or_default();
    match !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()) {
        true => Ok(format!("{GPUS}{card}")),
        false => Err(Misread::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_same(value: &str, same: &[&str], expected: Option<&[&str]>) {
        let cards = parse(value).ok().map(|parts| cards_of("a", &parts, same));
        let cards = cards.as_ref().map(|it| it.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(cards.as_deref(), expected, "{value}");
    }

    #[track_caller]
    fn check(value: &str, expected: Option<&[&str]>) {
        check_same(value, &[], expected);
    }

    #[test]
    fn containers_with_the_same_gpu_have_the_cards_that_stand_there_often_enough() {
        check_same("card0|card1|card0", &["a", "b"], Some(&["/dev/dri/card0"]));
        check_same("card0|card0|card0", &["a", "b"], Some(&["/dev/dri/card0"]));
        check_same("card0|card0|card1|card1", &["a", "b"], Some(&[]));
        check_same("card0|card1|card0", &["b", "c"], Some(&[]));
        check_same("card0|card1", &["a", "b"], Some(&[]));
        check_same("card0|card1|card0", &["a", "b", "c"], Some(&[]));
        check_same("", &["a", "b"], Some(&[]));
        check_same("card", &["a", "b"], None);
    }

    #[test]
    fn cards_count_that_are_the_same_for_all_containers_with_cards() {
        check("card0", Some(&["/dev/dri/card0"]));
        check("card0,card12", Some(&["/dev/dri/card0", "/dev/dri/card12"]));
        check("|card1|", Some(&["/dev/dri/card1"]));
        check("card1|card1", Some(&["/dev/dri/card1"]));
        check("card0|card1", Some(&[]));
        check("card0,card1|card0", Some(&[]));
        check("", Some(&[]));
        check("||", Some(&[]));
        check("card", None);
        check("../sda", None);
        check("card0,", None);
        check("card0|renderD128", None);
    }
}
