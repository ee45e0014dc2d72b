//! The live map: a page for browsers with the machine, what holds each CPU, what is measured, and the past. In: the state, the last
//! readings, the history's files. Out: the page, and JSON for it.
//!
//! Read-only, on the listeners of [`crate::api`]; `map: off` leaves all of it out. Nothing is made while no page is open.
//!
//! - `page` has the files of the page, with the headers under which a browser may use them.
//! - `view` is the map at one moment as a value; it is the same for now and for the past.
//! - `past` finds a moment in the history.
//! - `what_if` keeps the map under another configuration for pages.
//! - `rates` are differences between two readings.
//! - `absent` says why a value is missing.
//! - `idle` reads idle states of CPUs.
//! - `feed` tells open pages of changes, at most four times a second, however many there are and however slowly they read.

mod absent;
mod feed;
mod idle;
mod page;
mod past;
pub(crate) mod rates;
mod routes;
mod view;
mod what_if;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use jiff::Timestamp;
use tokio::sync::Semaphore;

pub(crate) use feed::{Feed, Sources, run_feed};
pub(crate) use page::{file, page};
pub(crate) use past::PastList;
pub(crate) use routes::{about, events, history, machine, map, why};
pub(crate) use what_if::{forget_what_if, kept_what_if, what_if};

/// Questions about the past, and about single containers, that are worked on at a time: each reads files or takes a turn of the state.
const QUESTIONS_MAX: usize = 1;

/// What the handlers of the map need.
#[derive(Clone, Debug)]
pub(crate) struct LiveMap {
    feed: Feed,
    /// The history's directory.
    history: PathBuf,
    kept: Kept,
    past_questions: Arc<Semaphore>,
    about_questions: Arc<Semaphore>,
}

impl LiveMap {
    /// The map of a daemon with its history in this directory.
    pub(crate) fn new(feed: Feed, history: PathBuf) -> LiveMap {
        let questions = || Arc::new(Semaphore::new(QUESTIONS_MAX));
        let kept = Kept::default();
        LiveMap { feed, history, kept, past_questions: questions(), about_questions: questions() }
    }
}

/// The map under another configuration that is kept for pages. Clones are the same.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Option<KeptMap>>>);

#[derive(Clone, Debug)]
struct KeptMap {
    /// What pages call the configuration.
    name: String,
    /// When it was made.
    at: Timestamp,
    json: Bytes,
}

impl LiveMap {
    /// What pages call the configuration of which the map is kept, and when that was made.
    fn kept_label(&self) -> Option<(String, Timestamp)> {
        self.kept().map(|it| (it.name, it.at))
    }

    fn kept(&self) -> Option<KeptMap> {
        self.kept.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps this one from now on, or none, and tells open pages. The state is as it was, so no other client is told.
    fn keep(&self, map: Option<KeptMap>) {
        *self.kept.0.lock().unwrap_or_else(PoisonError::into_inner) = map;
        self.feed.note_kept();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_map_that_is_kept_or_forgotten_is_told_to_the_feed() {
        let map = LiveMap::new(Feed::default(), PathBuf::new());
        let (at, json) = (Timestamp::UNIX_EPOCH, Bytes::from("{}"));
        map.keep(Some(KeptMap { name: "other.yaml".to_owned(), at, json }));
        map.feed.kept_changed().await;
        assert_eq!(map.kept_label(), Some(("other.yaml".to_owned(), at)));
        map.keep(None);
        map.feed.kept_changed().await;
        assert_eq!(map.kept_label(), None);
    }
}
