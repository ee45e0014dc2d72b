//! TLS connections for axum. In: a TCP socket, and a certificate that may be another one at any time. Out: connections after their handshake.
//!
//! Connections that were made keep the certificate that they began with; each new one has the latest.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::server::TlsStream;

/// A client that does not finish its handshake in this time is cut off.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Handshakes at a time; further connections wait in the socket.
const HANDSHAKES_MAX: usize = 256;
/// Handshakes of one address at a time; what it begins beyond is cut off, so that others have room.
const HANDSHAKES_OF_ONE_MAX: usize = 64;
/// After the kernel had no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The certificate that new connections get; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Certificate(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Certificate {
    /// New connections get this one, in PEM, from now on.
    ///
    /// # Errors
    /// It is none, or the key is not its own.
    pub(crate) fn set(&self, certificate: &str, key: &str) -> anyhow::Result<()> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
        let chain: Vec<_> = chain.collect::<Result<_, _>>().context("the certificate is no PEM")?;
        anyhow::ensure!(!chain.is_empty(), "there is no certificate in the PEM");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the key is no PEM")?;
        let certified = CertifiedKey::from_der(chain, key, &provider());
        let certified = certified.context("certificate and key do not belong together")?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }

    /// Whether there is any.
    pub(super) fn is_there(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

/// A socket for reviews or scrapes; its connections speak TLS.
#[allow(missing_debug_implementations, reason = "TLS's acceptor has none")]
pub struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
    /// Each handshake of an address has a clone.
    addresses: BTreeMap<IpAddr, Arc<()>>,
}

/// A host has a network of 64 bits to itself in IPv6.
fn host_of(from: SocketAddr) -> IpAddr {
    match from.ip().to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() & (u128::MAX << 64)).into(),
        it => it,
    }
}

impl TlsListener {
    /// # Errors
    /// The library for TLS has no version of it in common with itself.
    pub(crate) fn new(tcp: TcpListener, certificate: Certificate) -> anyhow::Result<TlsListener> {
        let config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificate));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(TlsListener { tcp, acceptor, handshakes: JoinSet::new(), addresses: BTreeMap::new() })
    }

    fn begin(&mut self, stream: TcpStream, from: SocketAddr) {
        self.addresses.retain(|_, it| Arc::strong_count(it) > 1);
        let held = self.addresses.entry(host_of(from)).or_default();
        if Arc::strong_count(held) > HANDSHAKES_OF_ONE_MAX {
            tracing::debug!(%from, "cut off: too many handshakes of its address are under way");
            return;
        }
        let (held, acceptor) = (Arc::clone(held), self.acceptor.clone());
        self.handshakes.spawn(async move {
            let _held = held;
            let shaken = timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await;
            match shaken {
                Ok(Ok(stream)) => Some((stream, from)),
                Ok(Err(error)) => {
                    tracing::debug!(%from, %error, "no TLS");
                    None
                }
                Err(_) => None,
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next(), if !self.handshakes.is_empty() => {
                    if let Ok(Some(connection)) = done {
                        return connection;
                    }
                }
                accepted = self.tcp.accept(), if self.handshakes.len() < HANDSHAKES_MAX => {
                    match accepted {
                        Ok((stream, from)) => self.begin(stream, from),
                        Err(error) => {
                            tracing::warn!(%error, "a connection could not be accepted");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
