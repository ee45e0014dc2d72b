//! Between an agent and the API server, over plain HTTP. In: the agent's calls. Out: the API server's answers; a write can be held back, before the API server has it or before the agent
//! has the answer, until the test lets it go or the agent is gone.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Longest object that is written.
const LEN_MAX: usize = 8 << 20;

/// When a write is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The API server does not have it yet.
    Sent,
    /// The API server has carried it out, and the agent does not know.
    Answered,
}

/// A write that is held back until this is sent to, or dropped.
pub(crate) type Held = oneshot::Sender<()>;

#[derive(Default)]
struct Plan {
    /// Methods, paths and queries of writes so far.
    writes: Vec<String>,
    /// The next write that is held back.
    hold: Option<(String, Moment)>,
}

#[derive(Clone)]
struct Shared {
    client: Client,
    plan: Arc<Mutex<Plan>>,
    held: mpsc::UnboundedSender<Held>,
}

pub(crate) struct WriteRelay {
    pub(crate) address: String,
    plan: Arc<Mutex<Plan>>,
    held: mpsc::UnboundedReceiver<Held>,
}

impl WriteRelay {
    /// To the API server that this client speaks to, as the account that it is.
    pub(crate) async fn start(client: Client) -> WriteRelay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, held) = mpsc::unbounded_channel();
        let plan = Arc::<Mutex<Plan>>::default();
        let shared = Shared { client, plan: Arc::clone(&plan), held: sender };
        let router = Router::new().fallback(pass).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, router).await });
        WriteRelay { address, plan, held }
    }

    /// The writes since this was asked last, each once, in the order in which they came first.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let mut kinds = Vec::new();
        for write in std::mem::take(&mut self.plan.lock().unwrap().writes) {
            if !kinds.contains(&write) {
                kinds.push(write);
            }
        }
        kinds
    }

    /// The next write of this kind is held back.
    pub(crate) fn hold(&self, write: &str, moment: Moment) {
        self.plan.lock().unwrap().hold = Some((write.to_owned(), moment));
    }

    /// Comes back when it is.
    pub(crate) async fn held(&mut self) -> Held {
        self.held.recv().await.expect("the relay lives as long as this")
    }
}

impl Shared {
    /// Waits if it is this write's turn.
    async fn wait(&self, write: &str, moment: Moment) {
        let its_turn = Some((write.to_owned(), moment));
        let is_held = self.plan.lock().unwrap().hold.take_if(|it| Some(&*it) == its_turn.as_ref());
        if is_held.is_some() {
            let (held, released) = oneshot::channel();
            self.held.send(held).unwrap();
            // A sender that is dropped lets it go, too.
            let _released = released.await;
        }
    }
}

async fn pass(State(shared): State<Shared>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let write = (head.method != http::Method::GET).then(|| format!("{} {}", head.method, head.uri));
    if let Some(write) = &write {
        shared.plan.lock().unwrap().writes.push(write.clone());
        shared.wait(write, Moment::Sent).await;
    }
    let body = to_bytes(body, LEN_MAX).await.unwrap();
    let mut asked = http::Request::builder().method(head.method).uri(head.uri);
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = head.headers.get(&name) {
            asked = asked.header(name, value);
        }
    }
    let answer = shared.client.send(asked.body(body.to_vec().into()).unwrap()).await;
    if let Some(write) = &write {
        shared.wait(write, Moment::Answered).await;
    }
    match answer {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let mut response = Response::new(Body::new(body));
            *response.status_mut() = head.status;
            if let Some(value) = head.headers.get(CONTENT_TYPE) {
                response.headers_mut().insert(CONTENT_TYPE, value.clone());
            }
            response
        }
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
