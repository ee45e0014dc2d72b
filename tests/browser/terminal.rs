//! `bayplan top` in a terminal that is one to every program: tmux, in several sizes. In: a node. Out: screens as they are kept in `screens`, but for the time;
//! `UPDATE_EXPECT=1` rewrites them.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use expect_test::expect_file;

use crate::node::Node;
use crate::{MACHINE, populate};

/// Far beyond anything that the test waits for.
const STUCK: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(400);

/// A terminal with one program; it ends when this is dropped.
struct Terminal {
    server: String,
    size: (usize, usize),
}

impl Terminal {
    /// Starts `bayplan top` on this control socket, with this configuration.
    fn start(size: (usize, usize), socket: &Path, config: &Path) -> Terminal {
        let server = format!("bayplan-test-{}-{}x{}", std::process::id(), size.0, size.1);
        let terminal = Terminal { server, size };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let program = env!("CARGO_BIN_EXE_bayplan-under-test");
        let command = format!(
            "BAYPLAN_CONFIG={} {program} top --delay 1 --control {}",
            config.display(),
            socket.display()
        );
        let started = terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            &command,
        ]);
        assert!(started.status.success(), "tmux: {}", String::from_utf8_lossy(&started.stderr));
        terminal
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.server]).args(args);
        tmux.output().expect("tmux is there (apt install tmux)")
    }

    /// What can be seen.
    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// Waits for a screen that has all of these and not that, and stays as it is. Gives it without times.
    fn wait_for(&self, there: &[&str], absent: Option<&str>) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            let is_wanted = there.iter().all(|it| screen.contains(it))
                && absent.is_none_or(|it| !screen.contains(it));
            std::thread::sleep(POLL);
            if is_wanted && without_times(&screen) == without_times(&self.screen()) {
                let is_wide = screen.lines().any(|it| it.chars().count() > self.size.0);
                assert!(!is_wide && screen.lines().count() <= self.size.1, "{screen}");
                return without_times(&screen);
            }
            assert!(begun.elapsed() < STUCK, "never {there:?} in\n{screen}");
        }
    }

    /// Types keys.
    fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// Waits until the program has ended, and with it the terminal.
    fn wait_for_end(&self) {
        let begun = Instant::now();
        while self.tmux(&["has-session"]).status.success() {
            assert!(begun.elapsed() < STUCK, "it goes on:\n{}", self.screen());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Dates and times, such as `2026-11-28T09:07:34Z`, are none here.
fn without_times(screen: &str) -> String {
    let is_time = |text: &str| {
        let form = text.bytes().map(|it| if it.is_ascii_digit() { b'0' } else { it });
        form.eq(*b"0000-00-00T00:00:00Z")
    };
    let mut text = screen.to_owned();
    let found = (0..screen.len()).filter(|at| screen.get(*at..at + 20).is_some_and(is_time));
    for at in found {
        text.replace_range(at..at + 20, "YYYY-MM-DDThh:mm:ssZ");
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// What is seen at first, about a container, in the past, and of the keys.
fn screens(size: (usize, usize), socket: &Path, config: &Path) -> String {
    let terminal = Terminal::start(size, socket, config);
    let first = terminal.wait_for(&["CONTAINER", "default/web/app", "q quit"], None);
    let mut screens = vec![first];
    for (key, there, absent) in [
        ("Enter", "placed in", None),
        ("Escape", "default/web/app", Some("placed in")),
        ("[", "THE PAST", None),
        ("l", "default/web/app", Some("THE PAST")),
        ("?", "an event back", None),
    ] {
        terminal.press(key);
        let screen = terminal.wait_for(&[there, "q quit"], absent);
        if !matches!(key, "Escape" | "l") {
            screens.push(screen);
        }
    }
    terminal.press("?");
    terminal.press("q");
    terminal.wait_for_end();
    let width = "=".repeat(size.0);
    screens.join(&format!("{width}\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn top_in_a_terminal_of_four_sizes() {
    let mut node = Node::start(MACHINE, |config| config.has_probes = false).await;
    populate(&mut node).await;
    let socket = node.control_socket();
    // What this host does is not the node's.
    let (root, config) = (node.host_root(), node.host_root().join("top.yaml"));
    std::fs::write(&config, format!("hostRoot: {}\n", root.display())).unwrap();
    for (size, expected) in [
        ((200, 50), expect_file!["screens/200x50.txt"]),
        ((80, 24), expect_file!["screens/80x24.txt"]),
        ((60, 20), expect_file!["screens/60x20.txt"]),
        // The map is left out where it would take more than half.
        ((60, 15), expect_file!["screens/60x15.txt"]),
    ] {
        expected.assert_eq(&screens(size, &socket, &config));
    }
    node.stop().await;
}
