//! Callers that wait until probes are read.

use std::time::{Duration, Instant};

use bayplan_probes::Drain;

use super::{tell, told};
use crate::prober::sightings::{Seen, Sightings};

/// At how many seconds the drain was made that a caller that asks now gets.
fn after(renewed: Option<(Vec<Seen>, Drain)>) -> Option<u64> {
    let (_, drain) = renewed?;
    drain.containers.values().next().map(|it| it.runs)
}

#[tokio::test]
async fn a_client_that_asks_gets_what_was_read_after_that() {
    let sightings = told(&[5]);
    let prober = sightings.clone();
    let reading = tokio::spawn(async move {
        prober.asked().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        tell(&prober, Instant::now(), 10);
    });
    assert_eq!(after(sightings.renewed().await), Some(10));
    reading.await.unwrap();
}

#[tokio::test]
async fn many_that_come_together_are_watched_at_once_and_soon() {
    let (sightings, begun) = (Sightings::default(), Instant::now());
    for _ in 0..20 {
        sightings.note_change();
    }
    sightings.changed().await;
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let change = tokio::time::timeout(Duration::from_millis(1500), sightings.changed()).await;
    assert!(change.is_err());
}

#[tokio::test]
async fn no_client_waits_where_nothing_counts() {
    let sightings = Sightings::default();
    assert_eq!(after(sightings.renewed().await), None);
    // Nor where that ends meanwhile.
    let sightings = told(&[5]);
    let refused = sightings.clone();
    let refusing = tokio::spawn(async move {
        refused.asked().await;
        refused.clear(Vec::new());
    });
    assert_eq!(after(sightings.renewed().await), None);
    refusing.await.unwrap();
}

#[tokio::test]
async fn a_client_without_an_answer_has_what_was_read_last() {
    assert_eq!(after(told(&[5]).renewed().await), Some(5));
}
