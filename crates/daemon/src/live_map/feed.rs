//! Tells open pages what changes. In: a count of the state's changes, readings. Out: two values, the map and the rates, of which each
//! page sends the newest whenever its connection takes it.
//!
//! Bounds: the values are made by one task for all pages, at most four times a second, and only while a page is open. A page that does
//! not read keeps one value from being dropped and holds up nothing; its connection ends with the listener's limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::sse::Event as Message;
use futures::{Stream, stream};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};

use crate::api::Api;
use crate::inbox::Look;
use crate::live_map::absent::absent_of;
use crate::live_map::idle::{IdleByCpu, IdleReader};
use crate::live_map::rates::rates;
use crate::observer::{GroupsRead, Shown};
use crate::tasks::blocking;

/// Pages that may be open at a time.
const PAGES_MAX: usize = 20;
/// The least time between two values.
const ROUND: Duration = Duration::from_millis(250);
/// Readings are looked at this often; the observer makes them less often.
const RATES_EVERY: Duration = Duration::from_secs(2);
/// A page's stream ends after this and the page opens another: connections have an age at which they are cut off.
const STREAM_MAX: Duration = Duration::from_secs(50);

/// The way from the task to the pages.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    map: watch::Sender<Bytes>,
    rates: watch::Sender<Bytes>,
    places: Arc<Semaphore>,
    /// A page has opened.
    opened: Arc<Notify>,
    /// Another map under another configuration is kept, or none.
    kept: Arc<Notify>,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed {
            map: watch::Sender::new(Bytes::new()),
            rates: watch::Sender::new(Bytes::new()),
            places: Arc::new(Semaphore::new(PAGES_MAX)),
            opened: Arc::default(),
            kept: Arc::default(),
        }
    }
}

/// One open page.
struct Page {
    map: watch::Receiver<Bytes>,
    rates: watch::Receiver<Bytes>,
    end: Instant,
    _place: OwnedSemaphorePermit,
}

impl Feed {
    /// The messages for one more page: `map` and `rates`, each a value as JSON. `None`: as many are open as may be.
    pub(crate) fn open(
        &self,
    ) -> Option<impl Stream<Item = Result<Message, std::convert::Infallible>> + Send + use<>> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let page = Page {
            map: self.map.subscribe(),
            rates: self.rates.subscribe(),
            end: Instant::now() + STREAM_MAX,
            _place: place,
        };
        self.opened.notify_one();
        Some(stream::unfold(page, |mut page| async move {
            let message = page.next().await?;
            Some((Ok(message), page))
        }))
    }

    /// Another map under another configuration is kept, or none.
    pub(super) fn note_kept(&self) {
        self.kept.notify_one();
    }

    /// Comes back after that.
    pub(super) async fn kept_changed(&self) {
        self.kept.notified().await;
    }

    fn has_pages(&self) -> bool {
        self.map.receiver_count() > 0
    }
}

impl Page {
    async fn next(&mut self) -> Option<Message> {
        let (name, value) = tokio::select! {
            biased;
            () = sleep_until(self.end) => return None,
            changed = self.map.changed() => {
                changed.ok()?;
                ("map", self.map.borrow_and_update().clone())
            }
            changed = self.rates.changed() => {
                changed.ok()?;
                ("rates", self.rates.borrow_and_update().clone())
            }
        };
        let text = std::str::from_utf8(&value).ok()?;
        Some(Message::default().event(name).data(text))
    }
}

/// From what the values are made.
pub(crate) struct Sources {
    pub(crate) api: Api,
    pub(crate) shown: Shown,
    /// Counts changes of the state.
    pub(crate) changes: watch::Receiver<u64>,
}

/// Two readings, of which the older may be missing.
#[derive(Default)]
struct Readings {
    before: Option<GroupsRead>,
    now: Option<GroupsRead>,
    idle: Option<IdleReader>,
    idle_rates: IdleByCpu,
}

impl Readings {
    /// The last reading, which may be the one that is known.
    fn learn(&mut self, read: Option<GroupsRead>) {
        if read.as_ref().map(|it| it.at) != self.now.as_ref().map(|it| it.at) {
            self.before = self.now.take();
            self.now = read;
        }
    }

    /// Why there are no shares of idle states.
    fn idle_absent(&self) -> Option<&'static str> {
        match &self.idle {
            None => Some("the kernel tells of no idle states here, as in most virtual machines"),
            Some(_) if self.idle_rates.is_empty() => {
                Some("idle states are read every 8 s; there are no two readings yet")
            }
            Some(_) => None,
        }
    }

    /// Files are read on a thread of their own.
    async fn read_idle(&mut self) {
        let Some(mut reader) = self.idle.take() else { return };
        let read = blocking(move || {
            let rates = reader.rates(std::time::Instant::now()).clone();
            (reader, rates)
        });
        if let Some((reader, rates)) = read.await {
            (self.idle, self.idle_rates) = (Some(reader), rates);
        }
    }
}

/// Why values are made.
enum News {
    /// A page has opened, and has nothing yet.
    Opened,
    /// The state has changed, or the map that is kept.
    Changed,
    /// It is time for rates.
    Due,
}

/// Makes values while there are pages; comes back when the daemon is stopping.
pub(crate) async fn run_feed(feed: Feed, mut sources: Sources) {
    let mut readings = Readings::default();
    let mut ticks = interval(RATES_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let news = match feed.has_pages() {
            true => news(&feed, &mut sources, &mut ticks).await,
            false => {
                feed.opened.notified().await;
                readings = Readings::default();
                let root = sources.api.reloader.live().host_root.clone();
                readings.idle = blocking(move || IdleReader::open(&root)).await.flatten();
                Some(News::Opened)
            }
        };
        let Some(news) = news else { return };
        if !matches!(news, News::Due) {
            sources.changes.mark_unchanged();
            let Some(map) = sources.api.map_now().await else { return };
            send(&feed.map, &map);
        }
        if !matches!(news, News::Changed) {
            readings.learn(sources.shown.groups());
            readings.read_idle().await;
            tell_rates(&feed, &sources, &readings).await;
        }
        sleep(ROUND).await;
    }
}

/// `None`: the daemon is stopping.
async fn news(feed: &Feed, sources: &mut Sources, ticks: &mut Interval) -> Option<News> {
    tokio::select! {
        () = feed.opened.notified() => Some(News::Opened),
        () = feed.kept_changed() => Some(News::Changed),
        changed = sources.changes.changed() => changed.ok().map(|()| News::Changed),
        _ = ticks.tick() => Some(News::Due),
    }
}

async fn tell_rates(feed: &Feed, sources: &Sources, readings: &Readings) {
    let Some(status) = sources.api.looker.look(Look::Status).await else { return };
    let named = status.containers.iter().filter_map(|it| Some((it.id.clone()?, it.full_name())));
    let names: BTreeMap<String, String> = named.collect();
    let audit = sources.api.sightings.view();
    let both = (readings.before.as_ref(), readings.now.as_ref());
    let mut view = rates(both, &audit, &names, Timestamp::now());
    for (cpu, idle) in &readings.idle_rates {
        let cpu = view.cpus.entry(*cpu).or_default();
        (cpu.deep, cpu.idle) = (Some(idle.deep), idle.states.clone());
    }
    view.absent_of = absent_of(&view, both, &audit);
    let of_idle = readings.idle_absent().map(|why| ("deep", vec![why.to_owned()]));
    view.absent_of.extend(of_idle);
    send(&feed.rates, &view);
}

/// Does not fail: the values are maps with text keys.
fn send(to: &watch::Sender<Bytes>, value: &impl Serialize) {
    if let Ok(json) = serde_json::to_vec(value) {
        to.send_replace(Bytes::from(json));
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_page_that_does_not_read_misses_values_and_not_the_last_one() {
        let feed = Feed::default();
        let mut page = std::pin::pin!(feed.open().unwrap());
        for value in 0..100_000 {
            send(&feed.map, &value);
        }
        let message = format!("{:?}", page.next().await.unwrap().unwrap());
        assert!(message.contains("99999"), "{message}");
    }

    #[tokio::test]
    async fn pages_beyond_the_limit_are_turned_away_until_one_is_closed() {
        let feed = Feed::default();
        let mut open: Vec<_> = (0..PAGES_MAX).map(|_| feed.open().unwrap()).collect();
        assert!(feed.open().is_none());
        open.pop();
        assert!(feed.open().is_some());
        drop(open);
        assert!(!feed.has_pages());
    }

    #[test]
    fn a_machine_without_idle_states_says_so() {
        let root = tempfile::tempdir().unwrap();
        let idle = IdleReader::open(root.path());
        let told = Readings { idle, ..Readings::default() }.idle_absent();
        assert!(told.unwrap().contains("no idle states here"));
    }

    #[test]
    fn a_stream_ends_before_its_connection_is_cut_off() {
        assert!(STREAM_MAX < crate::http_server::TCP.age_max);
    }
}
