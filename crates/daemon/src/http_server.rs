//! Serves HTTP to clients that may be hostile. In: a listener, routes, limits. Out: answers; never more connections, and so file
//! descriptors and memory, than the limits say, so that kubelet's socket has what it needs.
//!
//! Where a connection would be one too many, the oldest one ends (of the same peer, where that peer has too many): a request takes
//! milliseconds, so the oldest is idle, half-sent, or not reading its answer.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// Of these, from one address. All of a node's own users have the same.
    pub(crate) connections_per_peer_max: usize,
    /// For the head of a request, and between two requests of a connection.
    pub(crate) head_max: Duration,
    /// For a connection as a whole.
    pub(crate) age_max: Duration,
    /// Bytes of the head of a request, and of a body that is not read yet; at least 8 KiB.
    pub(crate) buffer_max: usize,
}

/// Of clients that may be anything.
const SMALL_BUFFER: usize = 32 << 10;
/// As hyper has it where nothing is said.
const LARGE_BUFFER: usize = 8192 + 4096 * 100;

/// Those of `metricsAddress`: a scrape every 15 s or more opens its connection anew. Twenty pages of the live map, all of one address on loopback, have a stream each and
/// ask two questions at a time.
pub(crate) const TCP: Limits = Limits {
    connections_max: 96,
    connections_per_peer_max: 64,
    head_max: Duration::from_secs(5),
    age_max: Duration::from_mins(1),
    buffer_max: SMALL_BUFFER,
};

/// Those of the control socket: a change of the mode answers when all is written.
pub(crate) const CONTROL: Limits = Limits {
    connections_max: 64,
    connections_per_peer_max: 64,
    head_max: Duration::from_secs(10),
    age_max: Duration::from_mins(30),
    buffer_max: LARGE_BUFFER,
};

/// Those of `bayplan webhook`, for three API servers: each changes 200 objects at a time by default, and keeps idle connections for 90 s. A request on a connection that ends at that moment is lost, so none ends by its age.
const REVIEWS: Limits = Limits {
    connections_max: 768,
    connections_per_peer_max: 256,
    head_max: Duration::from_mins(2),
    age_max: Duration::MAX,
    buffer_max: SMALL_BUFFER,
};

/// An address from which connections come.
pub(crate) trait Peer {
    /// `None`: all are one peer.
    fn ip(&self) -> Option<IpAddr>;
}

impl Peer for SocketAddr {
    fn ip(&self) -> Option<IpAddr> {
        Some(SocketAddr::ip(self).to_canonical())
    }
}

impl Peer for tokio::net::unix::SocketAddr {
    fn ip(&self) -> Option<IpAddr> {
        None
    }
}

/// Open connections, the oldest first.
#[derive(Debug, Default)]
struct Open<T>(VecDeque<(Option<IpAddr>, T)>);

impl<T> Open<T> {
    /// Makes room for one more of this peer; gives the one that has to end.
    fn evict(&mut self, peer: Option<IpAddr>, limits: Limits) -> Option<T> {
        let of_peer = self.0.iter().filter(|(other, _)| *other == peer).count();
        let at = match of_peer >= limits.connections_per_peer_max {
            true => self.0.iter().position(|(other, _)| *other == peer)?,
            false if self.0.len() >= limits.connections_max => 0,
            false => return None,
        };
        self.0.remove(at).map(|(_, connection)| connection)
    }
}

/// Serves for ever; what is dropped ends all connections.
pub(crate) async fn serve<L>(mut listener: L, routes: Router, limits: Limits)
where
    L: Listener,
    L::Addr: Peer,
{
    let mut tasks = JoinSet::new();
    let mut open = Open::<AbortHandle>(VecDeque::new());
    loop {
        let (io, address) = listener.accept().await;
        open.0.retain(|(_, task)| !task.is_finished());
        let peer = address.ip();
        if let Some(oldest) = open.evict(peer, limits) {
            oldest.abort();
        }
        // An aborted task has its descriptor until a worker drops it: on a busy node those of many connections at once.
        while tasks.len() > open.0.len() {
            let _ended = tasks.join_next().await;
        }
        let service = TowerToHyperService::new(routes.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_max)
            .max_buf_size(limits.buffer_max)
            .serve_connection(TokioIo::new(io), service);
        // What goes wrong with one client is that client's.
        let task = tasks.spawn(async move {
            let _ended = timeout(limits.age_max, connection).await;
        });
        open.0.push_back((peer, task));
    }
}

/// Serves reviews of pods for ever, to API servers and whatever else reaches the address.
pub async fn serve_reviews<L: Listener<Addr = SocketAddr>>(listener: L, routes: Router) {
    serve(listener, routes, REVIEWS).await;
}

/// Refuses requests for a name that a page of a browser on this node may have made its own (DNS rebinding). Addresses cannot be rebound.
pub(crate) async fn check_host(request: Request, next: Next) -> Response {
    match is_local_host(request.headers()) {
        true => next.run(request).await,
        false => {
            let text = "Host names neither an address nor localhost; ask http://127.0.0.1 (metricsAddress)\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
    }
}

fn is_local_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    // HTTP/1.0 has none, and no browser speaks it.
    let Some(host) = hosts.next() else { return true };
    hosts.next().is_none() && host.to_str().is_ok_and(is_local_name)
}

fn is_local_name(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.ends_with(':') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Bounds how often something costly is made, however many ask for it.
///
/// A value that was begun after a question is the answer to it, so none is ever older than its question; and between two beginnings there
/// is at least [`ROUND`].
#[derive(Debug)]
pub(crate) struct Rounds<T>(tokio::sync::Mutex<Option<(tokio::time::Instant, T)>>);

/// The least time between two renderings of the same.
const ROUND: Duration = Duration::from_millis(50);

impl<T> Default for Rounds<T> {
    fn default() -> Rounds<T> {
        Rounds(tokio::sync::Mutex::new(None))
    }
}

impl<T: Clone> Rounds<T> {
    /// The value of a round that begins from now on.
    pub(crate) async fn get(&self, make: impl Future<Output = T>) -> T {
        let asked = tokio::time::Instant::now();
        let mut last = self.0.lock().await;
        if let Some((begun, value)) = &*last {
            if *begun > asked {
                return value.clone();
            }
            tokio::time::sleep_until(*begun + ROUND).await;
        }
        let begun = tokio::time::Instant::now();
        let value = make.await;
        *last = Some((begun, value.clone()));
        value
    }
}

/// Routes that only clients with such a `Host` can ask.
pub(crate) fn for_local_hosts(routes: Router) -> Router {
    routes.layer(axum::middleware::from_fn(check_host))
}

/// Serves the metrics of an agent for ever, within the limits of `metricsAddress`.
pub async fn serve_scrapes<L: Listener<Addr = SocketAddr>>(listener: L, routes: Router) {
    serve(listener, routes, TCP).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::routing::get;
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn names_that_a_page_can_make_its_own_are_refused() {
        for (host, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.1:9117", true),
            ("[::1]:9117", true),
            ("[::1]", true),
            ("localhost", true),
            ("LocalHost:80", true),
            ("10.0.0.7:9117", true),
            ("evil.example", false),
            ("evil.example:9117", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.1@evil.example", false),
            ("localhost:80:80", false),
            ("localhost:", false),
            ("", false),
        ] {
            assert_eq!(is_local_name(host), expected, "{host}");
        }
        let mut headers = HeaderMap::new();
        assert!(is_local_host(&headers));
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(is_local_host(&headers));
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(!is_local_host(&headers));
    }

    const FEW: Limits = Limits {
        connections_max: 3,
        connections_per_peer_max: 2,
        head_max: Duration::from_millis(200),
        age_max: Duration::from_secs(30),
        buffer_max: SMALL_BUFFER,
    };

    #[test]
    fn the_oldest_connection_makes_room_and_a_greedy_peer_pays_itself() {
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse::<IpAddr>().ok());
        let mut open = Open(VecDeque::new());
        let mut evicted = Vec::new();
        for (number, peer) in [(0, a), (1, b), (2, b), (3, b), (4, a), (5, a)] {
            evicted.push(open.evict(peer, FEW));
            open.0.push_back((peer, number));
        }
        // One more of b than b may have; one more than all may have; one more of a.
        assert_eq!(evicted, [None, None, None, Some(1), Some(0), Some(2)]);
        let left: Vec<i32> = open.0.iter().map(|(_, number)| *number).collect();
        assert_eq!(left, [3, 4, 5]);
    }

    async fn listening(limits: Limits) -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/", get(async || "here\n"));
        (address, tokio::spawn(serve(listener, for_local_hosts(routes), limits)))
    }

    async fn ask(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // A connection that was evicted or timed out may be reset.
        let _reset = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn idle_and_half_sent_connections_neither_stay_nor_keep_others_out() {
        let (address, server) = listening(FEW).await;
        let mut held = Vec::new();
        for head in ["", "GET / HTTP/1.1\r\nHost: loc", "G"].iter().cycle().take(30) {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            held.push(stream);
        }
        let full = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        assert!(ask(address, full).await.ends_with("here\n"));
        // Whichever end a connection has come to, it has come to one.
        for mut stream in held {
            let mut rest = Vec::new();
            let _reset = stream.read_to_end(&mut rest).await;
        }
        assert!(ask(address, full).await.ends_with("here\n"));
        let rebound = ask(address, &full.replace("localhost", "evil.example")).await;
        assert!(rebound.starts_with("HTTP/1.1 421 "), "{rebound}");
        server.abort();
    }

    /// Hands out connections without a pause, as a full backlog does.
    struct Flood {
        clients: Vec<tokio::io::DuplexStream>,
        left: usize,
        over: std::sync::Arc<tokio::sync::Notify>,
    }

    impl Listener for Flood {
        type Io = tokio::io::DuplexStream;
        type Addr = SocketAddr;

        async fn accept(&mut self) -> (Self::Io, Self::Addr) {
            // A client reads the end of a connection that is dropped.
            self.clients.retain_mut(|it| it.read_u8().now_or_never().is_none());
            assert!(self.clients.len() <= FEW.connections_per_peer_max, "{}", self.clients.len());
            if self.left == 0 {
                self.over.notify_one();
                std::future::pending::<()>().await;
            }
            self.left -= 1;
            let (client, server) = tokio::io::duplex(64);
            self.clients.push(client);
            (server, self.local_addr().unwrap())
        }

        fn local_addr(&self) -> std::io::Result<Self::Addr> {
            Ok(SocketAddr::from(([127, 0, 0, 1], 80)))
        }
    }

    /// They had their descriptors until a worker came to them: 114 where 64 may be.
    #[tokio::test]
    async fn connections_that_made_room_are_gone_before_the_next_is_taken() {
        let over = std::sync::Arc::new(tokio::sync::Notify::new());
        let flood = Flood { clients: Vec::new(), left: 200, over: std::sync::Arc::clone(&over) };
        tokio::select! {
            () = serve(flood, Router::new(), FEW) => {}
            () = over.notified() => {}
        }
    }

    #[tokio::test]
    async fn all_that_ask_during_a_round_share_the_next_one() {
        let (rounds, made) = (Rounds::default(), AtomicU32::new(0));
        let go = tokio::sync::Semaphore::new(0);
        let make = || async {
            let _gone_on = go.acquire().await.unwrap();
            made.fetch_add(1, Ordering::Relaxed)
        };
        // The first is at it when the others ask.
        let others = async {
            let others = futures::future::join_all((0..1000).map(|_| rounds.get(make())));
            let release = async { go.add_permits(1) };
            tokio::join!(others, release).0
        };
        let (first, others) = tokio::join!(rounds.get(make()), others);
        assert_eq!((first, made.load(Ordering::Relaxed)), (0, 2));
        assert!(others.iter().all(|it| *it == 1));
        // A later question has a value of its own.
        assert_eq!(rounds.get(make()).await, 2);
    }
}
