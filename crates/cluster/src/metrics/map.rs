//! The live map of the node, for browsers and other clients of the cluster. In: GETs of the paths that the map has at the daemon, with a token or a session. Out: what the
//! daemon answers on its control socket to a client on loopback, which has nothing that pods say of themselves.
//!
//! Only these paths are passed on, and nothing but path and query of a request. Answers are passed on as they are read, never held as a whole; those that are
//! under way are bounded in number and time, and a client that does not read takes no more than its own.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::FormRejection;
use axum::extract::{DefaultBodyLimit, Form, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use super::access::{Access, Refused, TOKEN_MAX, bearer_token, challenge};
use super::session::Sessions;
use super::tally::Outcome;

const PAGE: &str = "/map";
const EVENTS: &str = "/api/v1/map/events";
/// What can be asked; nothing else is passed on.
const PATHS: [&str; 8] = [
    "/map/{file}",
    EVENTS,
    "/api/v1/map",
    "/api/v1/map/machine",
    "/api/v1/map/about",
    "/api/v1/map/why",
    "/api/v1/map/what-if",
    "/api/v1/history",
];
/// Where the daemon has on its control socket what it has on loopback.
const LOOPBACK: &str = "/loopback";
/// Answers under way at a time, but for streams of events. A browser asks for six at a time.
const ANSWERS_MAX: usize = 8;
/// Streams of events at a time. The daemon has 20, which pages on the node need, too.
pub(super) const STREAMS_MAX: usize = 10;
/// For one of these to end.
const PLACE_MAX: Duration = Duration::from_secs(5);
/// Until the daemon begins to answer; questions about the past wait for each other there.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// For the rest of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// For a stream of events, which the daemon ends a little earlier; the page opens another.
const STREAM_MAX: Duration = Duration::from_secs(55);
/// Of a form: a token of which each byte is escaped.
const FORM_MAX: usize = 3 * TOKEN_MAX + 64;

/// The same as the daemon's for the page.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// Of the form for a token, which needs nothing but to be sent.
const FORM_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
);
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Status, headers, and a body that is read as it is polled.
pub type DaemonAnswer = Response;

/// What reads answers of the daemon of this node as they come.
pub trait DaemonStream: Send + Sync + 'static {
    /// Asks with GET. What is dropped ends the question.
    ///
    /// # Errors
    /// The daemon cannot be reached, in words.
    fn open(&self, path: &str) -> impl Future<Output = Result<DaemonAnswer, String>> + Send;
}

/// What the handlers need.
pub(super) struct Map<S> {
    access: Access,
    daemon: Arc<S>,
    sessions: Sessions,
    answers: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// What a browser sends to begin a session.
#[derive(Deserialize)]
struct LogIn {
    token: String,
}

pub(super) fn routes<S: DaemonStream>(access: Access, daemon: Arc<S>) -> Router {
    let map = Map {
        access,
        daemon,
        sessions: Sessions::default(),
        answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
    };
    let begin = Router::new().route(PAGE, get(answer::<S>).post(log_in::<S>));
    let add = |router: Router<_>, path: &&str| router.route(path, get(answer::<S>));
    let all = PATHS.iter().fold(begin, add).with_state(Arc::new(map));
    all.layer(DefaultBodyLimit::max(FORM_MAX)).layer(map_response(with_headers))
}

/// Headers are the same whatever the daemon says.
async fn with_headers(mut response: Response) -> Response {
    response.headers_mut().extend(HEADERS);
    response.headers_mut().entry(header::CONTENT_SECURITY_POLICY).or_insert(PAGE_POLICY);
    response
}

/// What the daemon has, or the refusal; in place of the document a browser without a token gets a form for one.
async fn answer<S: DaemonStream>(
    State(map): State<Arc<Map<S>>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let has_form = uri.path() == PAGE && !headers.contains_key(header::AUTHORIZATION);
    match map.check(&headers).await {
        Ok(()) => map.show(&uri).await,
        Err(refused) if has_form => form(&refused),
        Err(refused) => refused.into_response(),
    }
}

/// Begins a session.
async fn log_in<S: DaemonStream>(
    State(map): State<Arc<Map<S>>>,
    headers: HeaderMap,
    sent: Result<Form<LogIn>, FormRejection>,
) -> Response {
    // A page of another site must not put its visitor into a session.
    if headers.get("sec-fetch-site").is_some_and(|it| it != "same-origin") {
        return (StatusCode::FORBIDDEN, "the form is not that of this page\n").into_response();
    }
    let token = match &sent {
        Ok(Form(sent)) => sent.token.trim(),
        Err(rejected) => {
            return (rejected.status(), "expected a form with a `token`\n").into_response();
        }
    };
    if let Err(refused) = map.access.check(Some(token)).await {
        return form(&refused);
    }
    match map.sessions.begin(token, Instant::now()) {
        Ok(cookie) => {
            let to = HeaderValue::from_static(PAGE);
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, to)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}\n")).into_response(),
    }
}

/// Asks for a token, and says why.
fn form(refused: &Refused) -> Response {
    let escaped = refused.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = include_str!("log_in.html").replace("REASON", &escaped);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, FORM_POLICY),
    ];
    let mut response = (refused.status, headers, text).into_response();
    challenge(&mut response);
    response
}

impl<S: DaemonStream> Map<S> {
    /// By a bearer token where one is sent, and else by that of a session.
    async fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        match headers.contains_key(header::AUTHORIZATION) {
            true => self.access.check(bearer_token(headers)).await,
            false => {
                let token = self.sessions.token(headers, Instant::now());
                self.access.check(token.as_deref()).await
            }
        }
    }

    /// What the daemon has at this path, which is one of the routes.
    async fn show(&self, uri: &Uri) -> Response {
        if uri.path().strip_prefix("/map/").is_some_and(|name| !is_file_name(name)) {
            return (StatusCode::NOT_FOUND, "the map has no such file\n").into_response();
        }
        let query = uri.query().map(|it| format!("?{it}")).unwrap_or_default();
        let asked = format!("{LOOPBACK}{}{query}", uri.path());
        let (is_page, is_stream) = (uri.path() == PAGE, uri.path() == EVENTS);
        match self.open(&asked, is_stream).await {
            Ok((answer, _)) if is_page && answer.status() == StatusCode::NOT_FOUND => {
                let text = "the daemon serves no map: `map: off` is in its configuration, or it is of an older version\n";
                (StatusCode::NOT_FOUND, text).into_response()
            }
            Ok((answer, place)) => {
                self.access.counts.count(Outcome::Answered);
                let lasts = if is_stream { STREAM_MAX } else { ANSWER_MAX };
                passed_on(answer, place, lasts)
            }
            Err(outcome) => {
                self.access.counts.count(outcome);
                let text = match outcome {
                    Outcome::Busy => {
                        "as many pages are open as may be; this one asks again from time to time\n"
                    }
                    _ => "the daemon is away\n",
                };
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }

    /// An answer that has begun, and its place among those under way.
    async fn open(
        &self,
        path: &str,
        is_stream: bool,
    ) -> Result<(DaemonAnswer, OwnedSemaphorePermit), Outcome> {
        let place = timeout(PLACE_MAX, self.place(is_stream)).await.ok().flatten();
        let place = place.ok_or(Outcome::Busy)?;
        match timeout(BEGIN_MAX, self.daemon.open(path)).await {
            Ok(Ok(answer)) => Ok((answer, place)),
            Ok(Err(error)) => {
                tracing::debug!("the map is not shown: {error}");
                Err(Outcome::DaemonAway)
            }
            Err(_) => Err(Outcome::DaemonAway),
        }
    }

    /// Streams do not wait: a page keeps its place for long.
    async fn place(&self, is_stream: bool) -> Option<OwnedSemaphorePermit> {
        match is_stream {
            true => Arc::clone(&self.streams).try_acquire_owned().ok(),
            false => Arc::clone(&self.answers).acquire_owned().await.ok(),
        }
    }
}

/// Of a file of the page, as it is, without anything escaped.
fn is_file_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.starts_with('.') && name.bytes().all(is_plain)
}

/// Status, type and body of an answer.
fn passed_on(answer: Response, place: OwnedSemaphorePermit, lasts: Duration) -> Response {
    let (mut head, body) = answer.into_parts();
    let form = head.headers.remove(header::CONTENT_TYPE);
    let mut response = (head.status, Body::from_stream(pass(body, place, lasts))).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    response.headers_mut().extend(form.map(|form| (header::CONTENT_TYPE, form)));
    response
}

/// An answer that did not come to its end.
#[derive(Debug)]
struct CutOff;

impl std::fmt::Display for CutOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer did not come to its end")
    }
}

impl std::error::Error for CutOff {}

/// A body as its client takes it. A task of its own ends it in time and gives the place back, also where the client never takes anything.
fn pass(
    body: Body,
    place: OwnedSemaphorePermit,
    lasts: Duration,
) -> impl Stream<Item = Result<Bytes, CutOff>> + Send + 'static {
    // `None` is the end.
    let (sender, receiver) = mpsc::channel::<Option<Bytes>>(1);
    tokio::spawn(async move {
        let _place = place;
        let mut chunks = body.into_data_stream();
        let read = timeout(lasts, async {
            while let Some(chunk) = chunks.next().await {
                let Ok(chunk) = chunk else { return };
                if sender.send(Some(chunk)).await.is_err() {
                    return;
                }
            }
            // A client that is gone needs no end.
            sender.send(None).await.ok();
        });
        tokio::select! {
            () = sender.closed() => {}
            _in_time = read => {}
        }
    });
    stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(chunk)) => Some((Ok(chunk), Some(receiver))),
            Some(None) => None,
            None => Some((Err(CutOff), None)),
        }
    })
}

#[cfg(test)]
mod tests;
