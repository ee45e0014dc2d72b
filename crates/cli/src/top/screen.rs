//! The live screen of `bayplan top`. In: a terminal, the daemon's control socket, files of cgroups. Out: the screen, until a key or a signal
//! ends it.
//!
//! One thread draws, and waits for news alone: keys come from a thread that reads the terminal, readings from tasks that ask the daemon. So
//! a daemon that does not answer holds up neither a key nor the end; what still waits for it is dropped with the process.

use std::io::{self, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bayplan_daemon::{AuditView, ControlError, MachineView, WhyView, query_control, render_causes};
use bayplan_host::parse_recorded_machine;
use bayplan_node::status::{Explanation, Status};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind,
};
use ratatui::crossterm::execute;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::draw::draw;
use super::model::{Action, Model};
use super::past::{PastList, PastMap, Question};
use super::reader::{Reader, Reading};
use crate::args::TopOptions;
use crate::explain;
use crate::visible::visible;

/// After so long the screen says that the daemon does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the drawing thread waits for.
enum News {
    Terminal(Event),
    Read(Box<(Status, Reading)>),
    Machine(Box<Topology>),
    /// What was asked about a container.
    Why(String, Vec<String>),
    /// Events of the past: the last, or those before this one.
    Events(Option<String>, PastList),
    /// What was where after an event.
    Map(String, Box<PastMap>),
    /// A question about the past that has no answer, and why.
    Unanswered(Question, String),
    Trouble(String),
    /// A signal, or the terminal has gone.
    End,
}

/// Shows containers until `q` is pressed.
///
/// # Errors
/// The terminal cannot be used.
pub(super) fn run(options: &TopOptions, socket: &Path, reader: Reader) -> anyhow::Result<()> {
    let tokio = Runtime::new()?;
    let (sender, news) = channel();
    let screen = Screen::open().context("cannot use the terminal")?;
    let asking = ask_on(socket.to_owned(), reader, options.delay, sender.clone());
    tokio.spawn(asking);
    tokio.spawn(hear_signals(sender.clone()));
    let keys = sender.clone();
    std::thread::spawn(move || read_terminal(&keys));
    let model = Model::new(options.sort, options.number.unwrap_or(usize::MAX));
    let shown = show(screen, model, &news, |question| {
        tokio.spawn(ask_about(socket.to_owned(), question, sender.clone()));
    });
    // Without waiting for an answer that may never come.
    tokio.shutdown_background();
    shown
}

fn show(
    mut screen: Screen,
    mut model: Model,
    news: &Receiver<News>,
    ask: impl Fn(Asked),
) -> anyhow::Result<()> {
    loop {
        screen.0.draw(|frame| draw(frame, &mut model))?;
        let Ok(first) = news.recv() else { return Ok(()) };
        // What has come meanwhile is drawn together.
        for news in [first].into_iter().chain(news.try_iter()) {
            match learn(&mut model, news) {
                Action::None => {}
                Action::Quit => return Ok(()),
                Action::Explain(name) => ask(Asked::Why(name)),
                Action::Past(question) => ask(Asked::Past(question)),
            }
        }
    }
}

fn learn(model: &mut Model, news: News) -> Action {
    match news {
        News::Terminal(Event::Key(key)) if key.kind != KeyEventKind::Release => {
            return model.key(key);
        }
        News::Terminal(Event::Mouse(mouse)) => return model.mouse(mouse),
        News::Terminal(_) => {}
        News::Read(read) => {
            let (status, reading) = *read;
            model.learn(&status, reading);
        }
        News::Machine(machine) => model.machine = Some(*machine),
        News::Why(name, lines) => model.learn_why(&name, lines),
        News::Events(before, list) => return model.learn_events(before, list),
        News::Map(id, map) => model.past.learn_map(&id, *map),
        News::Unanswered(question, why) => {
            model.past.learn_no_answer(&question);
            model.trouble = Some(why);
        }
        News::Trouble(why) => model.trouble = Some(why),
        News::End => return Action::Quit,
    }
    Action::None
}

/// The terminal in the mode of whole screens; as it was before when this is dropped, also after a panic.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Screen> {
        let screen = Screen(ratatui::try_init()?);
        execute!(stdout(), EnableMouseCapture)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _lost = execute!(stdout(), DisableMouseCapture);
        let _lost = ratatui::try_restore();
    }
}

fn read_terminal(news: &Sender<News>) {
    while let Ok(event) = event::read() {
        if news.send(News::Terminal(event)).is_err() {
            return;
        }
    }
    let _gone = news.send(News::End);
}

async fn hear_signals(news: Sender<News>) {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut hangup)) = signals else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    let _gone = news.send(News::End);
}

/// Asks after each delay, for as long as there is a screen.
async fn ask_on(socket: PathBuf, mut reader: Reader, delay: Duration, news: Sender<News>) {
    let mut known = CpuSet::new();
    loop {
        let found = match timeout(PATIENCE, ask(&socket)).await {
            Ok(Ok((status, audit))) => {
                let cpus = cpus_of(&status);
                if cpus != known {
                    tokio::spawn(ask_machine(socket.clone(), news.clone()));
                    known = cpus;
                }
                let read = tokio::task::spawn_blocking(move || {
                    let reading = reader.read(&status, &audit, Instant::now());
                    (reader, status, reading)
                });
                let Ok((back, status, reading)) = read.await else { return };
                reader = back;
                News::Read(Box::new((status, reading)))
            }
            Ok(Err(error)) => News::Trouble(format!("{error:#}")),
            Err(_) => {
                let socket = socket.display();
                News::Trouble(format!("the daemon at {socket} does not answer; q ends this"))
            }
        };
        if news.send(found).is_err() {
            return;
        }
        tokio::time::sleep(delay).await;
    }
}

async fn ask(socket: &Path) -> anyhow::Result<(Status, AuditView)> {
    let status = query_control(socket, "/api/v1/status").await?;
    Ok((status, query_control(socket, "/api/v1/audit").await?))
}

/// All of the machine.
fn cpus_of(status: &Status) -> CpuSet {
    let cpus = &status.cpus;
    let lists = [&cpus.exclusive, &cpus.shared, &cpus.reserved, &cpus.isolated];
    let sets = lists.into_iter().filter_map(|list| list.parse::<CpuSet>().ok());
    sets.fold(CpuSet::new(), |all, set| all.union(&set))
}

/// Without a machine there is no map, which is no trouble.
async fn ask_machine(socket: PathBuf, news: Sender<News>) {
    let Ok(view) = query_control::<MachineView>(&socket, "/api/v1/machine").await else { return };
    let parsed = tokio::task::spawn_blocking(move || parse_recorded_machine(&view.files)).await;
    if let Ok(Ok(machine)) = parsed {
        let _gone = news.send(News::Machine(Box::new(machine)));
    }
}

/// Where it is and why, then what slows it down.
fn render_why(found: &[Explanation], causes: &[WhyView]) -> String {
    let explained: String = found.iter().map(explain::render).collect();
    let causes: String = causes.iter().map(render_causes).collect();
    format!("{explained}{}", visible(&causes))
}

/// What keys ask of the daemon.
enum Asked {
    Why(String),
    Past(Question),
}

async fn ask_about(socket: PathBuf, asked: Asked, news: Sender<News>) {
    match asked {
        Asked::Why(name) => ask_why(socket, name, news).await,
        Asked::Past(question) => {
            let unanswered = |why| News::Unanswered(question.clone(), why);
            let told = match timeout(PATIENCE, ask_past(&socket, question.clone())).await {
                Ok(Ok(told)) => told,
                Ok(Err(error)) => unanswered(format!("the past: {error}")),
                Err(_) => unanswered("the past: the daemon does not answer".to_owned()),
            };
            let _gone = news.send(told);
        }
    }
}

async fn ask_past(socket: &Path, question: Question) -> Result<News, ControlError> {
    match question {
        Question::Events(before) => {
            let of_query = before.as_ref().map(|id| format!("&before={id}")).unwrap_or_default();
            let path = format!("/api/v1/history?count=200{of_query}");
            Ok(News::Events(before, query_control(socket, &path).await?))
        }
        Question::Map(id) => {
            let path = format!("/api/v1/map?at={id}");
            Ok(News::Map(id, Box::new(query_control(socket, &path).await?)))
        }
    }
}

async fn ask_why(socket: PathBuf, name: String, news: Sender<News>) {
    let encoded = explain::encode(&name);
    let (explain, why) =
        (format!("/api/v1/explain?name={encoded}"), format!("/api/v1/why?name={encoded}"));
    let asked = async {
        let found = query_control::<Vec<Explanation>>(&socket, &explain).await?;
        // What slows it down is an addition, which an older daemon does not have.
        let causes = query_control::<Vec<WhyView>>(&socket, &why).await.unwrap_or_default();
        Ok::<_, ControlError>((found, causes))
    };
    let text = match timeout(PATIENCE, asked).await {
        Ok(Ok((found, _))) if found.is_empty() => "the daemon knows no reasons for it".to_owned(),
        Ok(Ok((found, causes))) => render_why(&found, &causes),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the daemon does not answer".to_owned(),
    };
    let _gone = news.send(News::Why(name, text.lines().map(str::to_owned).collect()));
}
