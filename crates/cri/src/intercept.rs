//! The calls that are read. In: one whole call from kubelet. Out: the agent's word on it, the call to the runtime, the answer.
//!
//! Problem: a call may end in more ways than yes and no. The client may go away, its deadline may pass, the runtime may die; then
//! it is not known whether the runtime did what it was told. Approach: each call runs to its end in a task of its own, and what became of the
//! runtime's part is one value, [`Exchange`], from which the agent's answer follows.

mod exchange;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use bayplan_workload::{Admission, Agent, CreateOutcome, Mount, Pinning, ResizeOutcome, Ticket};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, Response};
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call_observer::CallObserver;
use crate::delta::Additions;
use crate::needed::{self, Fields};
use crate::proxy::shared::Shared;
use crate::proxy::watched::CallEnd;
use crate::upstream::code_number;
use crate::window::Window;
use crate::{delta, frame, translate, v1};

use exchange::{Call, Exchange, Gathered};

/// The paths that are decoded. All others, also of methods that do not exist yet, are forwarded unread.
pub const DECODED: [&str; 9] = [
    "/runtime.v1.RuntimeService/RunPodSandbox",
    "/runtime.v1.RuntimeService/StopPodSandbox",
    "/runtime.v1.RuntimeService/RemovePodSandbox",
    "/runtime.v1.RuntimeService/UpdatePodSandboxResources",
    "/runtime.v1.RuntimeService/CreateContainer",
    "/runtime.v1.RuntimeService/StartContainer",
    "/runtime.v1.RuntimeService/StopContainer",
    "/runtime.v1.RuntimeService/RemoveContainer",
    "/runtime.v1.RuntimeService/UpdateContainerResources",
];

/// A decoded method, in the order of [`DECODED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    RunPod,
    StopPod,
    RemovePod,
    UpdatePod,
    Create,
    Start,
    Stop,
    Remove,
    Update,
}

impl Method {
    /// `None`: the call is not read.
    pub(crate) fn of(path: &str) -> Option<Method> {
        const METHODS: [Method; 9] = [
            Method::RunPod,
            Method::StopPod,
            Method::RemovePod,
            Method::UpdatePod,
            Method::Create,
            Method::Start,
            Method::Stop,
            Method::Remove,
            Method::Update,
        ];
        DECODED.iter().zip(METHODS).find(|(known, _)| **known == path).map(|(_, method)| method)
    }
}

/// Whether a call of this path would be read if it were of the version that is: `/runtime.v2.RuntimeService/CreateContainer`.
pub(crate) fn is_of_other_version(path: &str) -> bool {
    fn call(path: &str) -> Option<&str> {
        let (version, call) = path.strip_prefix("/runtime.")?.rsplit_once('.')?;
        (!version.contains('/')).then_some(call)
    }
    let called = call(path);
    called.is_some() && !DECODED.contains(&path) && DECODED.iter().any(|it| call(it) == called)
}

/// A message of a decoded method, as far as it is read.
enum Question {
    RunPod(Box<v1::RunPodSandboxRequest>),
    EndPod(String),
    UpdatePod(Box<v1::UpdatePodSandboxResourcesRequest>),
    Create(Box<v1::CreateContainerRequest>),
    Start(String),
    End(String),
    Update(Box<v1::UpdateContainerResourcesRequest>),
}

impl Question {
    fn decode(method: Method, message: Bytes) -> Result<Question, prost::DecodeError> {
        Ok(match method {
            Method::RunPod => Question::RunPod(Box::new(decoded(message, &needed::RUN_POD)?)),
            Method::StopPod => {
                Question::EndPod(v1::StopPodSandboxRequest::decode(message)?.pod_sandbox_id)
            }
            Method::RemovePod => {
                Question::EndPod(v1::RemovePodSandboxRequest::decode(message)?.pod_sandbox_id)
            }
            Method::UpdatePod => Question::UpdatePod(Box::new(Message::decode(message)?)),
            Method::Create => Question::Create(Box::new(decoded(message, &needed::CREATE)?)),
            Method::Start => {
                Question::Start(v1::StartContainerRequest::decode(message)?.container_id)
            }
            Method::Stop => Question::End(v1::StopContainerRequest::decode(message)?.container_id),
            Method::Remove => {
                Question::End(v1::RemoveContainerRequest::decode(message)?.container_id)
            }
            Method::Update => Question::Update(Box::new(Message::decode(message)?)),
        })
    }
}

/// A message, without the fields that are not read if it cannot be had with them.
fn decoded<M: Message + Default>(message: Bytes, fields: &Fields) -> Result<M, prost::DecodeError> {
    match M::decode(message.clone()) {
        Err(_) => M::decode(&*needed::without(&message, fields)?),
        decoded => decoded,
    }
}

/// Handles one decoded call from its first byte to its last.
pub(crate) async fn run<A: Agent + CallObserver>(
    shared: Arc<Shared<A>>,
    method: Method,
    request: Request<Body>,
    window: Window,
    mut end: CallEnd<A>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let whole = match exchange::gather(&shared, &window, body).await {
        Ok(Gathered::Whole(whole)) => whole,
        Ok(Gathered::TooLong(body)) => {
            let request = Request::from_parts(head, body);
            return pass_unread(&shared, method, &window, request, end, "long").await;
        }
        Err(status) => return end.answer(status),
    };
    let read = frame::parse(&whole.data).map_err(frame::NotOneMessage::word).and_then(|message| {
        let question = Question::decode(method, message.clone()).map_err(|_| "malformed")?;
        Ok((message, question))
    });
    let (message, question) = match read {
        Ok(read) => read,
        Err(why) => {
            let request = Request::from_parts(head, whole.into_body());
            return pass_unread(&shared, method, &window, request, end, why).await;
        }
    };
    let call = Call { shared, window, head, whole };
    match call.answer(message, question).await {
        Ok(Exchange::Answered(answer)) => {
            end.tell(answer.code.unwrap_or(code_number(Code::Unknown)));
            answer.into_response()
        }
        Ok(Exchange::Cut { status, .. }) | Err(status) => end.answer(status),
    }
}

/// Forwards a call that cannot be read, unless it asks for CPUs and the agent lets none pass.
async fn pass_unread<A: Agent + CallObserver>(
    shared: &Arc<Shared<A>>,
    method: Method,
    window: &Window,
    request: Request<Body>,
    mut end: CallEnd<A>,
    why: &'static str,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if matches!(method, Method::Create | Method::Update)
        && let Err(text) = shared.agent.may_pass(&path, why)
    {
        return end.answer(Status::resource_exhausted(text));
    }
    let answer = exchange::pass(shared, window, request, end).await;
    shared.agent.passed_through(&path, why);
    answer
}

impl<A: Agent + CallObserver> Call<A> {
    /// `Err` is an answer that bayplan gives without calling the runtime.
    async fn answer(self, message: Bytes, question: Question) -> Result<Exchange, Status> {
        let shared = Arc::clone(&self.shared);
        let agent = &shared.agent;
        match question {
            Question::Create(create) => self.create(message, &create).await,
            Question::Update(update) => self.update(message, &update).await,
            Question::RunPod(run) => {
                let exchange = self.forward(None).await;
                if let Some(answer) = exchange.read::<v1::RunPodSandboxResponse>() {
                    let config = run.config.unwrap_or_default();
                    agent.pod_started(translate::pod(&answer.pod_sandbox_id, &config)).await;
                }
                Ok(exchange)
            }
            Question::EndPod(pod_id) => {
                let exchange = self.forward(None).await;
                if exchange.is_over() {
                    agent.pod_ended(&pod_id).await;
                }
                Ok(exchange)
            }
            Question::UpdatePod(update) => {
                // What the pod needs is for kubelet to say, whatever the runtime, which may not know the call, does with it.
                if let Some(resources) = update.resources.as_ref().map(translate::resources) {
                    agent.pod_resized(&update.pod_sandbox_id, resources).await;
                }
                Ok(self.forward(None).await)
            }
            Question::Start(container_id) => {
                // Kubelet would try for ever to start what it cannot create anew, so the start goes on; what is missing is counted.
                let _not_refused = agent.starting(&container_id).await;
                let exchange = self.forward(None).await;
                if exchange.code() == Some(Code::Ok) {
                    agent.started(&container_id).await;
                }
                Ok(exchange)
            }
            Question::End(container_id) => {
                let exchange = self.forward(None).await;
                if exchange.is_over() {
                    agent.ended(&container_id).await;
                }
                Ok(exchange)
            }
        }
    }

    async fn create(
        self,
        message: Bytes,
        create: &v1::CreateContainerRequest,
    ) -> Result<Exchange, Status> {
        let shared = Arc::clone(&self.shared);
        let agent = &shared.agent;
        let ticket = shared.next_ticket();
        let work = async {
            let pinned = match agent.admit(ticket, translate::new_container(create)).await {
                Admission::Place(pinning) => {
                    let mounts = mounts(agent, create);
                    let additions = Additions { mounts, ..Additions::default() };
                    isolated(agent, ticket, &message, create, &pinning, additions).await
                }
                Admission::PassThrough => None,
                Admission::Refuse(text) => return Err(Status::resource_exhausted(text)),
                Admission::Unavailable(text) => return Err(Status::unavailable(text)),
            };
            let is_pinned = pinned.is_some();
            let exchange = self.forward(pinned).await;
            let outcome = outcome(&exchange, is_pinned);
            Ok((exchange, outcome))
        };
        let unknown = async || agent.created(ticket, CreateOutcome::Unknown).await;
        let (exchange, outcome) = or_tell(work, unknown).await?;
        agent.created(ticket, outcome).await;
        Ok(exchange)
    }

    async fn update(
        self,
        message: Bytes,
        update: &v1::UpdateContainerResourcesRequest,
    ) -> Result<Exchange, Status> {
        let shared = Arc::clone(&self.shared);
        let (agent, id) = (&shared.agent, &update.container_id);
        let work = async {
            let resources = update.linux.as_ref().map(translate::resources).unwrap_or_default();
            let pinned = match agent.resize(id, resources).await {
                Admission::Place(pinning) => frame::wrap(&message, &delta::for_update(&pinning)),
                Admission::PassThrough => None,
                Admission::Refuse(text) => return Err(Status::resource_exhausted(text)),
                Admission::Unavailable(text) => return Err(Status::unavailable(text)),
            };
            Ok(self.forward(pinned).await)
        };
        let exchange =
            or_tell(work, async || agent.resized(id, ResizeOutcome::Unknown).await).await?;
        agent.resized(id, resize_outcome(&exchange)).await;
        Ok(exchange)
    }
}

/// Does the work; should it panic, which is a bug, the agent is told that the outcome is unknown, or it would wait for ever.
async fn or_tell<T>(work: impl Future<Output = T>, unknown: impl AsyncFnOnce()) -> T {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(panic) => {
            unknown().await;
            resume_unwind(panic)
        }
    }
}

/// The pinned call, without `cmk isolate` in the command where the container is in the pool that this asks for.
async fn isolated<A: Agent>(
    agent: &A,
    ticket: Ticket,
    message: &[u8],
    create: &v1::CreateContainerRequest,
    pinning: &Pinning,
    mut additions: Additions,
) -> Option<Bytes> {
    let mut message = Cow::Borrowed(message);
    if let Some(said) = create.config.as_ref().and_then(translate::cmk_words)
        && let Some(variables) = agent.pool_environment(ticket).await
    {
        additions.variables = variables;
        if let Some((command, without)) = said.command.zip(delta::without_command(&message).ok()) {
            additions.command = command;
            message = Cow::Owned(without);
        }
    }
    frame::wrap(&message, &delta::for_create(pinning, &additions))
}

/// What the container is to see besides what kubelet lets it see; kubelet's own mounts win.
fn mounts<A: Agent + CallObserver>(agent: &A, create: &v1::CreateContainerRequest) -> Vec<Mount> {
    let Some(config) = &create.config else { return Vec::new() };
    let Some(metadata) = &config.metadata else { return Vec::new() };
    let mut mounts = agent.mounts(&create.pod_sandbox_id, &metadata.name, metadata.attempt);
    mounts.retain(|mount| config.mounts.iter().all(|it| it.container_path != mount.container_path));
    mounts
}

/// Whether there is a container now.
fn outcome(exchange: &Exchange, pinned: bool) -> CreateOutcome {
    if let Some(answer) = exchange.read::<v1::CreateContainerResponse>()
        && !answer.container_id.is_empty()
    {
        return CreateOutcome::Created { id: answer.container_id, pinned };
    }
    match resize_outcome(exchange) {
        ResizeOutcome::Failed => CreateOutcome::Failed,
        // OK without an id says nothing.
        ResizeOutcome::Done | ResizeOutcome::Unknown => CreateOutcome::Unknown,
    }
}

/// Whether the runtime has done what it was asked for.
fn resize_outcome(exchange: &Exchange) -> ResizeOutcome {
    match exchange {
        Exchange::Cut { was_sent: false, .. } => ResizeOutcome::Failed,
        Exchange::Cut { was_sent: true, .. } => ResizeOutcome::Unknown,
        Exchange::Answered(_) => match exchange.code() {
            Some(Code::Ok) => ResizeOutcome::Done,
            // These say that the client stopped waiting, not what the runtime did.
            None | Some(Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable) => {
                ResizeOutcome::Unknown
            }
            // Also UNKNOWN, which is containerd's ordinary error.
            Some(_) => ResizeOutcome::Failed,
        },
    }
}
