//! `bayplan top` in a terminal that is one to every program: tmux, at three sizes. Screens are left in `target/browser` as text.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Far beyond anything that the test waits for.
const STUCK: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// A terminal with one program; it ends when this is dropped.
pub(crate) struct Terminal {
    server: String,
    size: (usize, usize),
}

impl Terminal {
    /// Starts `bayplan top` on this control socket.
    pub(crate) fn start(size: (usize, usize), socket: &std::path::Path) -> Terminal {
        let server = format!("bayplan-test-{}-{}x{}", std::process::id(), size.0, size.1);
        let terminal = Terminal { server, size };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let program = env!("CARGO_BIN_EXE_bayplan-under-test");
        let command = format!("{program} top --delay 1 --control {}", socket.display());
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
        tmux.args(["-L", &self.server]).args(args).env("BAYPLAN_CONFIG", "/dev/null");
        tmux.output().expect("tmux is there (apt install tmux)")
    }

    /// What can be seen.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// Waits for a screen that has all of these.
    pub(crate) fn wait_for(&self, there: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if there.iter().all(|it| screen.contains(it)) {
                let is_wide = screen.lines().any(|it| it.chars().count() > self.size.0);
                assert!(!is_wide && screen.lines().count() <= self.size.1, "{screen}");
                return screen;
            }
            assert!(begun.elapsed() < STUCK, "never {there:?} in\n{screen}");
            std::thread::sleep(POLL);
        }
    }

    /// Types keys.
    pub(crate) fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// Waits until the program has ended, and with it the terminal.
    pub(crate) fn wait_for_end(&self) {
        let begun = Instant::now();
        while self.tmux(&["has-session"]).status.success() {
            assert!(begun.elapsed() < STUCK, "it goes on:\n{}", self.screen());
            std::thread::sleep(POLL);
        }
    }

    /// Leaves what can be seen beside the pictures of the page.
    pub(crate) fn keep(&self) {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/browser");
        std::fs::create_dir_all(&dir).unwrap();
        let (width, height) = self.size;
        std::fs::write(dir.join(format!("top-{width}x{height}.txt")), self.screen()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
