//! The webhook's server over TLS, as the API server calls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::certificate::{Stored, renew};
use super::*;

const NAME: &str = "bayplan-webhook.bayplan-system.svc";
/// Far beyond what a test waits for.
const STUCK: Duration = Duration::from_secs(30);

fn connector(ca: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    // A resumed session shows the certificate of its first connection.
    config.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

/// One review on a connection of its own; the answer's body, and the server's certificate.
async fn ask(
    connector: &TlsConnector,
    address: SocketAddr,
    body: &str,
) -> std::io::Result<(Json, Vec<u8>)> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(NAME).unwrap();
    let mut stream = connector.connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain[0].to_vec();
    let length = body.len();
    let head = format!(
        "POST /pods HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    // The server may end without TLS's own goodbye.
    drop(stream.read_to_string(&mut answer).await);
    let (_, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((serde_json::from_str(body)?, certificate))
}

fn review() -> String {
    let containers = json!([{ "name": "a", "resources": { "requests": { "cpu": "1" } } }]);
    let object = json!({ "metadata": {}, "spec": { "containers": containers } });
    json!({ "request": { "uid": "u", "operation": "CREATE", "kind": { "kind": "Pod" }, "object": object } }).to_string()
}

fn stored(before: Option<&Stored>, days: i64) -> Stored {
    let now = Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    renew(before, &[NAME.to_owned()], now).unwrap().unwrap()
}

/// Clients that trust the CA go on without a failure while the leaf is renewed again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_under_load() {
    let first = stored(None, -70);
    let certificate = Certificate::default();
    certificate.set(&first.leaf, &first.leaf_key).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let listener = TlsListener::new(tcp, certificate.clone()).unwrap();
    let served = tokio::spawn(async move {
        axum::serve(listener, routes(watch::channel(Known::default()).1)).await
    });
    let (connector, answered) = (connector(&first.ca), Arc::new(AtomicUsize::new(0)));
    let clients = (0..4).map(|_| {
        let (connector, answered, review) = (connector.clone(), Arc::clone(&answered), review());
        tokio::spawn(async move {
            let mut seen = std::collections::BTreeSet::new();
            while seen.len() < 3 {
                let (answer, leaf) = ask(&connector, address, &review).await.unwrap();
                assert_eq!(answer["response"]["allowed"], true, "{answer}");
                assert!(answer["response"]["patch"].is_string(), "{answer}");
                answered.fetch_add(1, Ordering::Relaxed);
                seen.insert(leaf);
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let renewing = async {
        let mut last = first.clone();
        // Each is renewed when others have asked meanwhile, until every client has seen three.
        loop {
            let before = answered.load(Ordering::Relaxed);
            while answered.load(Ordering::Relaxed) < before + 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            last.leaf_renewed_at = Timestamp::UNIX_EPOCH;
            last = stored(Some(&last), 0);
            assert_eq!(last.ca, first.ca);
            certificate.set(&last.leaf, &last.leaf_key).unwrap();
        }
    };
    let done = futures::future::join_all(clients);
    let done = timeout(STUCK, async {
        tokio::select! {
            done = done => done,
            () = renewing => Vec::new(),
        }
    });
    done.await.unwrap().into_iter().for_each(|it| it.unwrap());
    served.abort();
}

#[tokio::test]
async fn a_certificate_that_is_none_changes_nothing() {
    let [first, second] = [stored(None, 0), stored(None, 0)];
    let certificate = Certificate::default();
    for (leaf, key, expected) in [
        ("", first.leaf_key.as_str(), "there is no certificate"),
        (first.leaf.as_str(), "", "the key is no PEM"),
        (&first.leaf, &second.leaf_key, "do not belong together"),
    ] {
        let told = format!("{:#}", certificate.set(leaf, key).unwrap_err());
        assert!(told.contains(expected), "{told}");
    }
    certificate.set(&first.leaf, &first.leaf_key).unwrap();
}

/// A server that nothing is asked of but a certificate.
async fn serve(certificate: Certificate) -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let listener = TlsListener::new(tcp, certificate).unwrap();
    let routes = routes(watch::channel(Known::default()).1);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

#[tokio::test]
async fn a_renewed_leaf_is_used_also_where_the_configuration_cannot_be_written() {
    let certificate = Certificate::default();
    let address = serve(certificate.clone()).await;
    let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap()));
    let store = Store::new(client.unwrap(), "n", ["s", "c"], &[]);
    let mut looker = Looker::new(store, certificate);
    let first = stored(None, -70);
    let second = stored(Some(&first), 0);
    let foreign = stored(None, 0);
    for (kept, is_trusted, expected) in [
        (&first, false, &first),
        (&first, true, &first),
        (&second, false, &second),
        // The API server would not take it.
        (&foreign, false, &second),
        (&foreign, true, &foreign),
    ] {
        let trust = if is_trusted { Ok(()) } else { Err(anyhow::anyhow!("refused")) };
        let done = looker.take(Kept { stored: kept.clone(), trust });
        assert_eq!(done.is_ok(), is_trusted);
        let (_, leaf) = ask(&connector(&expected.ca), address, &review()).await.unwrap();
        assert!(leaf == *CertificateDer::from_pem_slice(expected.leaf.as_bytes()).unwrap());
    }
}

/// The answer to a review with a body that begins so, by its first line.
async fn answer(address: SocketAddr, length: usize, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /pods HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut text = String::new();
    drop(stream.read_to_string(&mut text).await);
    text.lines().next().unwrap_or_default().to_owned()
}

/// Bodies that are announced and do not come: with its beginning alone (issue 34), up to the bound of small ones, beyond it, and nearly whole. None keeps a usual review waiting, and
/// large ones are read one after the other.
#[tokio::test]
async fn bodies_that_do_not_come_end_and_only_large_ones_wait_for_each_other() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let routes = routes(watch::channel(Known::default()).1);
    let served = tokio::spawn(async move { axum::serve(tcp, routes).await });
    let (small, padding) = (review(), " ".repeat(SMALL_MAX));
    let large = format!("{small}{padding}");
    for (count, length, large_waits) in [
        (1, 1, false),
        (200, SMALL_MAX, false),
        (1, SMALL_MAX + 1, true),
        (200, SMALL_MAX + 1, true),
        (1, REVIEW_MAX - 1, true),
    ] {
        let (begun, begin) = (std::time::Instant::now(), "x".repeat(length));
        let stalled = (0..count).map(|_| {
            let begin = begin.clone();
            tokio::spawn(async move { answer(address, REVIEW_MAX, &begin).await })
        });
        let stalled: Vec<_> = stalled.collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(answer(address, small.len(), &small).await, "HTTP/1.1 200 OK");
        let took = begun.elapsed();
        assert!(took < REVIEW_TIME_MAX, "{count} of {length}: {took:?}");
        assert_eq!(answer(address, large.len(), &large).await, "HTTP/1.1 200 OK");
        let took = begun.elapsed();
        assert_eq!(took >= REVIEW_TIME_MAX, large_waits, "{count} of {length}: {took:?}");
        for it in stalled {
            assert_eq!(it.await.unwrap(), "HTTP/1.1 503 Service Unavailable");
        }
    }
    let most = answer(address, REVIEW_MAX + 1, &"x".repeat(REVIEW_MAX + 1)).await;
    assert_eq!(most, "HTTP/1.1 413 Payload Too Large");
    served.abort();
}

/// Issue 34: one address could hold every handshake.
#[tokio::test]
async fn one_address_does_not_hold_all_handshakes() {
    let first = stored(None, 0);
    let certificate = Certificate::default();
    certificate.set(&first.leaf, &first.leaf_key).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let listener = TlsListener::new(tcp, certificate).unwrap();
    let routes = routes(watch::channel(Known::default()).1);
    let served = tokio::spawn(async move { axum::serve(listener, routes).await });
    let silent = (0..300).map(|_| async move {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap()
    });
    let mut silent = futures::future::join_all(silent).await;
    let (connector, review) = (connector(&first.ca), review());
    let asked = timeout(Duration::from_secs(4), ask(&connector, address, &review));
    let (answer, _) = asked.await.unwrap().unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    // The first of them are waited for, the last are cut off.
    let mut one = [0];
    let last = silent.pop().unwrap().read(&mut one).now_or_never();
    assert!(silent[0].read(&mut one).now_or_never().is_none());
    assert!(matches!(last, Some(Ok(0) | Err(_))), "{last:?}");
    served.abort();
}

#[tokio::test]
async fn reviews_wait_for_profiles_and_not_for_ever() {
    let (known, mut profiles) = watch::channel(Known::default());
    await_profiles(&mut profiles, Duration::from_millis(1)).await;
    let told = async {
        for what in ["profiles", "namespaces", "classes"] {
            assert!(!known.borrow().is_whole());
            known.send_modify(|known| known.listed.extend([what]));
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(await_profiles(&mut profiles, STUCK), told);
    assert!(profiles.borrow().is_whole());
}
