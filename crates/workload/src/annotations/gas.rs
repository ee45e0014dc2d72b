//! Which GPUs GPU Aware Scheduling has chosen for a pod. In: its annotation, and what kubelet knows of the container. Out: paths below `/dev` that the container wants to be near, as if they
//! were its devices already: those that come by CDI are none of its devices when it is placed.
//!
//! The cards of containers are separated by `|`, in their order in the pod, which CRI does not tell. So only cards that are the same for all containers that have any count; in a pod where
//! they differ, a container is near the devices that it is given.

use super::asked::Asked;
use super::values::{Misread, check_length};
use super::warnings::{Warnings, annotation};
use crate::container::NewContainer;

/// As GAS writes it: `card0,card1|card2`.
pub(super) const CARDS: &str = "gas-container-cards";
/// What a container asks for that is to have cards.
const RESOURCES: &str = "gpu.intel.com/";
/// Of a name in the annotation.
const CARD: &str = "card";

/// Fills `hints.cards`.
pub(super) fn read(container: &NewContainer, asked: &mut Asked, warnings: &mut Warnings) {
    let Some(value) = container.pod.annotations.get(CARDS) else { return };
    let is_asking = container.facts.as_deref().is_none_or(|facts| {
        facts.own.extended.keys().any(|resource| resource.starts_with(RESOURCES))
    });
    match parse(value) {
        Ok(Some(cards)) if is_asking => asked.hints.cards = cards,
        Ok(_) => {}
        Err(misread) => {
            let expected = "cards such as card0,card1, with | between containers";
            warnings.misread(&annotation(CARDS), value, expected, &misread);
        }
    }
}

/// `None`: they are other ones for another container, or there are none.
fn parse(value: &str) -> Result<Option<Vec<String>>, Misread> {
    check_length(value)?;
    let mut found: Option<Vec<String>> = None;
    let mut are_same = true;
    for part in value.split('|').map(str::trim).filter(|it| !it.is_empty()) {
        let cards: Vec<String> =
            part.split(',').map(|it| path(it.trim())).collect::<Result<_, _>>()?;
        are_same &= found.as_ref().is_none_or(|it| *it == cards);
        found = Some(cards);
    }
    Ok(found.filter(|_| are_same))
}

/// `card0` is `/dev/dri/card0` (Documentation/gpu/drm-uapi.rst).
fn path(card: &str) -> Result<String, Misread> {
    let number = card.strip_prefix(CARD).unwrap_or_default();
    match !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()) {
        true => Ok(format!("/dev/dri/{card}")),
        false => Err(Misread::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: Option<&[&str]>) {
        let cards = parse(value).ok().map(Option::unwrap_or_default);
        let cards = cards.as_ref().map(|it| it.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(cards.as_deref(), expected, "{value}");
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
