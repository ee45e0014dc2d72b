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
//! - `idle` reads idle states of CPUs.
//! - `feed` tells open pages of changes, at most four times a second, however many there are and however slowly they read.

mod feed;
mod idle;
mod page;
mod past;
pub(crate) mod rates;
mod routes;
mod view;
mod what_if;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::Semaphore;

pub(crate) use feed::{Feed, Sources, run_feed};
pub(crate) use page::{file, page};
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

/// The map under another configuration that is kept for pages: what they call it, and the map as JSON. Clones are the same.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Option<(String, Bytes)>>>);

impl LiveMap {
    /// What pages call the configuration of which the map is kept.
    fn kept_name(&self) -> Option<String> {
        Some(self.kept().as_ref()?.0.clone())
    }

    fn kept(&self) -> MutexGuard<'_, Option<(String, Bytes)>> {
        self.kept.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
