//! Scrapes, beside an API server that answers reviews as the real one does. With the real one: `tests/cluster/metrics.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::access::TOKEN_MAX;

use axum::Json;
use axum::http::Request;
use axum::routing::post;
use kube::Config;
use serde_json::{Value, json};

use super::*;

const DAEMONS: &str = "bayplan_cpus{class=\"shared\"} 4\n";

/// Knows the tokens `good` and `other`, and lets the user of the first one read.
#[derive(Default)]
pub(super) struct Reviews {
    count: AtomicUsize,
    is_refusing: AtomicBool,
}

impl Reviews {
    fn status(&self, status: Value) -> Response {
        self.count.fetch_add(1, Ordering::Relaxed);
        match self.is_refusing.load(Ordering::Relaxed) {
            true => (StatusCode::FORBIDDEN, "no right").into_response(),
            false => (StatusCode::CREATED, Json(status)).into_response(),
        }
    }

    fn of_token(&self, asked: &Value) -> Response {
        let user = match asked["spec"]["token"].as_str() {
            Some("good") => "scraper",
            Some("other") => "bystander",
            Some("map") => "seer",
            Some("odd name") => "<b>&",
            Some("odd") => {
                let mut odd = review("authentication.k8s.io/v1", "TokenReview", &json!(7));
                odd["spec"] = asked["spec"].clone();
                return self.status(odd);
            }
            _ => "",
        };
        let user =
            json!({ "username": user, "uid": "1", "groups": ["g"], "extra": { "k": ["v"] } });
        let status = match user["username"] == "" {
            true => json!({ "error": "invalid bearer token" }),
            false => json!({ "authenticated": true, "user": user }),
        };
        self.status(review("authentication.k8s.io/v1", "TokenReview", &status))
    }

    fn of_access(&self, asked: &Value) -> Response {
        let spec = &asked["spec"];
        let right = &spec["nonResourceAttributes"];
        assert_eq!(right["verb"], "get", "{asked}");
        // The scraper may read metrics, and the user of the token `seer` the map.
        let wanted = match right["path"].as_str() {
            Some("/metrics") => "scraper",
            Some("/map") => "seer",
            _ => panic!("{asked}"),
        };
        assert_eq!([&spec["groups"][0], &spec["uid"], &spec["extra"]["k"][0]], ["g", "1", "v"]);
        let status = json!({ "allowed": spec["user"] == wanted });
        self.status(review("authorization.k8s.io/v1", "SubjectAccessReview", &status))
    }
}

fn review(version: &str, kind: &str, status: &Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": {}, "spec": {}, "status": status })
}

/// Where it listens.
pub(super) async fn start(reviews: &Arc<Reviews>) -> SocketAddr {
    let [of_tokens, of_access] = [Arc::clone(reviews), Arc::clone(reviews)];
    let routes = Router::new()
        .route(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            post(async move |Json(asked): Json<Value>| of_tokens.of_token(&asked)),
        )
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            post(async move |Json(asked): Json<Value>| of_access.of_access(&asked)),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

/// A port where nothing listens.
async fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

struct FakeDaemon(Result<Answer, String>);

impl Daemon for FakeDaemon {
    async fn ask(&self, _: Method, path: &str, _: String) -> Result<Answer, String> {
        assert_eq!(path, "/metrics");
        self.0.clone()
    }
}

pub(super) fn client_of(api: SocketAddr) -> Client {
    let config = Config::new(format!("http://{api}").parse().unwrap());
    Client::try_from(config).unwrap()
}

fn scrapes(api: SocketAddr, daemon: Result<Answer, String>) -> Arc<Scrapes<FakeDaemon>> {
    let (gate, tally) = (Arc::new(Gate::new(client_of(api))), Tally::default());
    let access = Access::new(&gate, Right::Metrics, &tally.scrapes);
    Arc::new(Scrapes { access, daemon: Arc::new(FakeDaemon(daemon)), tally })
}

fn metrics() -> Result<Answer, String> {
    Ok(Answer { status: 200, body: DAEMONS.into() })
}

/// Status and body.
async fn scrape(
    scrapes: &Arc<Scrapes<FakeDaemon>>,
    authorization: &[&str],
) -> (u16, String, HeaderMap) {
    let mut request = Request::builder();
    for value in authorization {
        request = request.header(header::AUTHORIZATION, *value);
    }
    let headers = request.body(()).unwrap().headers().clone();
    let answer = answer(State(Arc::clone(scrapes)), headers).await;
    let (head, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap(), head.headers)
}

#[tokio::test]
async fn a_scrape_is_answered_for_a_token_with_the_right_only() {
    let scrapes = scrapes(start(&Arc::default()).await, metrics());
    let long = format!("Bearer {}", "a".repeat(TOKEN_MAX + 1));
    for (authorization, expected, outcome) in [
        (&["Bearer good"][..], 200, "answered"),
        (&["bearer  good "], 200, "answered"),
        (&[], 401, "unauthenticated"),
        (&["Bearer "], 401, "unauthenticated"),
        (&["good"], 401, "unauthenticated"),
        (&["Basic good"], 401, "unauthenticated"),
        (&["Bearer forged"], 401, "unauthenticated"),
        (&["Bearer forged", "Bearer good"], 401, "unauthenticated"),
        (&[&long], 401, "unauthenticated"),
        (&["Bearer other"], 403, "forbidden"),
    ] {
        let counted = |scrapes: &Scrapes<FakeDaemon>| {
            let text = scrapes.tally.render();
            let name = format!("bayplan_agent_scrapes_total{{outcome=\"{outcome}\"}} ");
            text.lines().find_map(|it| it.strip_prefix(&name)?.parse::<u32>().ok()).unwrap()
        };
        let before = counted(&scrapes);
        let (status, body, headers) = scrape(&scrapes, authorization).await;
        assert_eq!(status, expected, "{authorization:?}: {body}");
        assert_eq!(body.starts_with(DAEMONS), status == 200, "{body}");
        assert_eq!(body.contains("bayplan_agent_build_info{"), status == 200, "{body}");
        assert_eq!(headers.contains_key(header::WWW_AUTHENTICATE), status == 401);
        assert_eq!(counted(&scrapes), before + 1, "{authorization:?}");
    }
}

#[tokio::test]
async fn the_api_server_is_asked_once_in_a_while() {
    let reviews = Arc::<Reviews>::default();
    let scrapes = scrapes(start(&reviews).await, metrics());
    for (token, asked) in [("good", 2), ("other", 4), ("forged", 5)] {
        let authorization = [&*format!("Bearer {token}")];
        let all = (0..8).map(|_| scrape(&scrapes, &authorization));
        let answers = futures::future::join_all(all).await;
        assert!(answers.iter().all(|it| it.0 == answers[0].0), "{answers:?}");
        assert_eq!(reviews.count.load(Ordering::Relaxed), asked, "{token}");
    }
}

#[tokio::test]
async fn nothing_is_served_unchecked() {
    let away = scrapes(nowhere().await, metrics());
    let reviews = Arc::<Reviews>::default();
    reviews.is_refusing.store(true, Ordering::Relaxed);
    let refusing = scrapes(start(&reviews).await, metrics());
    for scrapes in [&away, &refusing] {
        let (status, body, _) = scrape(scrapes, &["Bearer good"]).await;
        assert_eq!((status, body.as_str()), (503, "the API server does not check the token\n"));
        assert!(scrapes.tally.render().contains("{outcome=\"unchecked\"} 1\n"));
    }
    // It is asked again at once.
    reviews.is_refusing.store(false, Ordering::Relaxed);
    assert_eq!(scrape(&refusing, &["Bearer good"]).await.0, 200);
}

/// As a proxy before the API server could give it.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_repeated() {
    let api = start(&Arc::default()).await;
    let scrapes = scrapes(api, metrics());
    let error = Gate::new(client_of(api)).judge("odd", Right::Metrics).await.unwrap_err();
    assert_eq!(format!("{error:#}"), "the answer is no TokenReview");
    assert_eq!(scrape(&scrapes, &["Bearer odd"]).await.0, 503);
}

#[tokio::test]
async fn a_daemon_that_is_away_is_no_empty_answer() {
    let api = start(&Arc::default()).await;
    for (told, words) in [
        (Err("no socket".to_owned()), "no socket"),
        (Ok(Answer { status: 503, body: "stopping\n".into() }), "stopping"),
    ] {
        let (status, body, _) = scrape(&scrapes(api, told), &["Bearer good"]).await;
        assert_eq!((status, body), (503, format!("the daemon is away: {words}\n")));
    }
}

#[test]
fn the_own_certificate_is_renewed_before_its_end() {
    let now = Timestamp::now();
    let certificate = Certificate::default();
    set_own(&Own::new("node-1.example", now).unwrap(), &certificate).unwrap();
    let renewed = own_certificate::renewed_at(now);
    let end = now.checked_add(own_certificate::AGE_MAX).unwrap();
    assert!(now < renewed && renewed < end, "{renewed}");
    assert!(Own::new("\u{fc}", now).is_err());
}
