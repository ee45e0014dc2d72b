//! The map at the agent, over HTTP, beside an API server and a daemon as the real ones answer. With the real ones: `tests/cluster/metrics.rs`.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::*;
use crate::daemon::{Answer, Daemon, Method};
use crate::metrics::tests::{Reviews, client_of, start};

/// Far beyond anything that is waited for.
const STUCK: Duration = Duration::from_secs(60);

/// Its streams go on for ever; what else it is asked is remembered.
#[derive(Default)]
struct FakeDaemon {
    asked: Mutex<Vec<String>>,
    chunks: Arc<AtomicUsize>,
    is_away: bool,
}

impl Daemon for FakeDaemon {
    async fn ask(&self, _: Method, _: &str, _: String) -> Result<Answer, String> {
        Ok(Answer { status: 200, body: Vec::new() })
    }
}

impl DaemonStream for FakeDaemon {
    async fn open(&self, path: &str) -> Result<DaemonAnswer, String> {
        if self.is_away {
            return Err("no socket".to_owned());
        }
        if path == "/loopback/api/v1/map/events" {
            let chunks = Arc::clone(&self.chunks);
            let all = stream::repeat_with(move || {
                chunks.fetch_add(1, Ordering::Relaxed);
                Ok::<_, CutOff>(Bytes::from(vec![b'.'; 1 << 16]))
            });
            let form = [(header::CONTENT_TYPE, "text/event-stream")];
            return Ok((form, Body::from_stream(all)).into_response());
        }
        self.asked.lock().unwrap().push(path.to_owned());
        let form = [(header::CONTENT_TYPE, "application/json"), (header::SET_COOKIE, "a=b")];
        Ok((form, format!("{{\"path\": \"{path}\"}}")).into_response())
    }
}

/// An agent that listens.
struct Agent {
    address: SocketAddr,
    daemon: Arc<FakeDaemon>,
}

impl Agent {
    async fn start(daemon: FakeDaemon) -> Agent {
        let api = start(&Arc::<Reviews>::default()).await;
        let (daemon, counts) = (Arc::new(daemon), Arc::default());
        let gate = Arc::new(super::super::Gate::new(client_of(api)));
        let access = Access::new(&gate, super::super::Right::Map, &counts);
        let routes = routes(access, Arc::clone(&daemon));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Agent { address, daemon }
    }

    async fn send(&self, request: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Status, and head and body as they are sent.
    async fn ask_with(&self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let mut answer = String::new();
        let mut stream = self.send(request, headers, body).await;
        stream.read_to_string(&mut answer).await.unwrap();
        (answer[9..12].parse().unwrap(), answer)
    }

    async fn ask(&self, request: &str) -> (u16, String) {
        self.ask_with(request, "Authorization: Bearer map\r\n", "").await
    }

    /// Sends the form.
    async fn log_in(&self, headers: &str, body: &str) -> (u16, String) {
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.ask_with("POST /map", &format!("{form}{headers}"), body).await
    }
}

fn check_headers(answer: &str) {
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert_eq!(answer.matches(header).count(), 1, "{header}: {answer}");
    }
}

#[tokio::test]
async fn the_map_is_shown_for_a_token_with_the_right_only() {
    let agent = Agent::start(FakeDaemon::default()).await;
    for path in ["/map", "/map/app.js", "/api/v1/map?at=3.17", EVENTS] {
        for (headers, expected) in [
            ("", 401),
            ("Authorization: Bearer forged\r\n", 401),
            ("Authorization: Basic map\r\n", 401),
            ("Cookie: __Host-bayplan=forged\r\n", 401),
            ("Authorization: Bearer good\r\n", 403),
            ("Authorization: Bearer odd\r\n", 503),
        ] {
            let (status, answer) = agent.ask_with(&format!("GET {path}"), headers, "").await;
            assert_eq!(status, expected, "{path} {headers}: {answer}");
            assert_eq!(answer.contains("www-authenticate: Bearer"), status == 401, "{answer}");
            let is_form = path == "/map" && !headers.starts_with("Auth");
            assert_eq!(answer.contains("<form method=\"post\">"), is_form, "{answer}");
            check_headers(&answer);
        }
    }
    assert!(agent.daemon.asked.lock().unwrap().is_empty());
    assert_eq!(agent.daemon.chunks.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn paths_of_the_map_are_passed_on_and_no_others() {
    let agent = Agent::start(FakeDaemon::default()).await;
    for (request, expected) in [
        ("GET /map", 200),
        ("GET /map/app.js", 200),
        ("GET /api/v1/map?at=3.17", 200),
        ("GET /api/v1/map/machine", 200),
        ("GET /api/v1/map/about?name=a%2Fb%0D%0Ac", 200),
        ("GET /api/v1/map/why?name=a", 200),
        ("GET /api/v1/map/what-if", 200),
        ("GET /api/v1/history?count=5", 200),
        ("HEAD /map", 200),
        ("GET /", 404),
        ("GET /map/", 404),
        ("GET /map/..", 404),
        ("GET /map/../api/v1/status", 404),
        ("GET /map/..%2Fapi%2Fv1%2Fstatus", 404),
        ("GET /map/.hidden", 404),
        ("GET //map", 404),
        ("GET /api/v1/map/../status", 404),
        ("GET /api/v1/status", 404),
        ("GET /api/v1/config/cluster", 404),
        ("GET /api/v1/mode?to=draining", 404),
        ("GET /loopback/map", 404),
        ("POST /api/v1/map/what-if?name=x", 405),
        ("DELETE /api/v1/map/what-if", 405),
        ("POST /api/v1/mode?to=draining", 404),
        ("POST /api/v1/map", 405),
        ("PUT /map", 405),
        ("OPTIONS /map", 405),
    ] {
        let (status, answer) = agent.ask(request).await;
        assert_eq!(status, expected, "{request}: {answer}");
        let mut asked = agent.daemon.asked.lock().unwrap();
        let path = request.split(' ').nth(1).unwrap();
        let passed_on = if status == 200 { vec![format!("/loopback{path}")] } else { Vec::new() };
        assert_eq!(std::mem::take(&mut *asked), passed_on, "{request}");
        if status == 200 {
            check_headers(&answer);
            assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
            assert!(!answer.contains("set-cookie"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_form_begins_a_session() {
    let agent = Agent::start(FakeDaemon::default()).await;
    for (headers, body, expected, words) in [
        ("", "token=forged", 401, "the map is for bearer tokens of the cluster"),
        ("", "token=", 401, "<form method=\"post\">"),
        ("", "token=good", 403, "scraper may not get /map"),
        ("", "token=odd+name", 403, "&lt;b&gt;&amp; may not get /map"),
        ("", "tokens=map", 422, "expected a form"),
        ("", &"a".repeat(FORM_MAX + 1), 413, "expected a form"),
        ("Sec-Fetch-Site: cross-site\r\n", "token=map", 403, "not that of this page"),
        ("Sec-Fetch-Site: same-site\r\n", "token=map", 403, "not that of this page"),
    ] {
        let (status, answer) = agent.log_in(headers, body).await;
        assert_eq!(status, expected, "{body:.40}: {answer}");
        assert!(answer.contains(words) && !answer.contains("set-cookie"), "{body:.40}: {answer}");
        check_headers(&answer);
    }
    let (status, answer) = agent.log_in("Sec-Fetch-Site: same-origin\r\n", "token=+map%0A").await;
    assert_eq!(status, 303, "{answer}");
    assert!(answer.contains("location: /map\r\n"), "{answer}");
    let cookie = answer.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap();
    assert!(!cookie.contains("map"), "the token is no part of it: {cookie}");
    let headers = format!("Cookie: {cookie}\r\n");
    for path in ["/map", "/map/app.js", "/api/v1/map"] {
        let (status, answer) = agent.ask_with(&format!("GET {path}"), &headers, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    // A token that is sent counts, and not the session.
    let both = format!("{headers}Authorization: Bearer good\r\n");
    assert_eq!(agent.ask_with("GET /map", &both, "").await.0, 403);
    // It is a session of the map alone.
    assert_eq!(agent.ask_with("GET /metrics", &headers, "").await.0, 404);
}

#[tokio::test]
async fn a_daemon_that_is_away_or_has_no_map_is_told_so() {
    let daemon = FakeDaemon { is_away: true, ..FakeDaemon::default() };
    let agent = Agent::start(daemon).await;
    for path in ["/map", "/api/v1/map", EVENTS] {
        let (status, answer) = agent.ask(&format!("GET {path}")).await;
        assert_eq!((status, answer.ends_with("the daemon is away\n")), (503, true), "{answer}");
    }
}

/// Reads until the body has begun.
async fn begun(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.contains("\r\n\r\n") {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    text
}

#[tokio::test]
async fn a_page_that_does_not_read_holds_up_nothing() {
    let agent = Agent::start(FakeDaemon::default()).await;
    let request = format!("GET {EVENTS}");
    let mut held = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = agent.send(&request, "Authorization: Bearer map\r\n", "").await;
        let head = begun(&mut stream).await;
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        held.push(stream);
    }
    // What is read of the daemon has an end, which is that of the sockets' buffers.
    let begun = std::time::Instant::now();
    let mut read = agent.daemon.chunks.load(Ordering::Relaxed);
    loop {
        sleep(Duration::from_millis(300)).await;
        let now = agent.daemon.chunks.load(Ordering::Relaxed);
        if now == read {
            break;
        }
        assert!(begun.elapsed() < STUCK, "{now} chunks");
        read = now;
    }
    let (status, answer) = agent.ask(&request).await;
    assert!(status == 503 && answer.contains("as many pages are open as may be"), "{answer}");
    assert_eq!(agent.ask("GET /api/v1/map").await.0, 200);
    // A page that is closed makes room at once.
    held.pop();
    let begun = std::time::Instant::now();
    loop {
        let mut stream = agent.send(&request, "Authorization: Bearer map\r\n", "").await;
        if self::begun(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(begun.elapsed() < STUCK);
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_not_taken_gives_its_place_back_and_is_no_whole_one() {
    for (chunks, takes_all, expected) in [(3, true, Ok(3)), (3, false, Err(1)), (0, true, Ok(0))] {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let lasts = if takes_all { STUCK } else { Duration::from_millis(20) };
        let body = stream::iter((0..chunks).map(|_| Ok::<_, CutOff>(Bytes::from("x"))));
        let mut passed = Box::pin(pass(Body::from_stream(body), place, lasts));
        if !takes_all {
            // The place is there again although nothing was taken.
            drop(timeout(STUCK, places.acquire()).await.unwrap().unwrap());
        }
        let mut count = 0;
        let end = loop {
            match passed.next().await {
                Some(Ok(_)) => count += 1,
                Some(Err(CutOff)) => break Err(count),
                None => break Ok(count),
            }
        };
        assert_eq!(end, expected);
        drop(timeout(STUCK, places.acquire()).await.unwrap().unwrap());
    }
}
