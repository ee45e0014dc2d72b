//! A browser without a window, driven by WebDriver (<https://www.w3.org/TR/webdriver2/>): JSON over HTTP to chromedriver, which is a process of
//! its own. Only the handful of commands that the test needs.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Far beyond anything that the test waits for.
const STUCK: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

/// A browser; it ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Debian's chromium, as root without its sandbox.
    pub(crate) fn start() -> Browser {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver is there (apt install chromium chromium-driver)");
        let port = port_of(&mut driver);
        let mut browser = Browser { driver, port, session: String::new() };
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,1000",
        ]});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            // The agent's certificate is its own.
            "acceptInsecureCerts": true,
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let answer = browser.post("/session", &wanted);
        browser.session = answer["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, &body.to_string())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
            self.port
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let (head, body) = read_answer(&mut BufReader::new(stream));
        let json: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{head}\n{body}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {json}");
        json["value"].clone()
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.post(&format!("/session/{}/{name}", self.session), body)
    }

    /// Opens a page.
    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({"url": url}));
    }

    /// What a script gives.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script until it gives something that is neither false nor nothing.
    pub(crate) fn wait_for(&self, script: &str) -> Value {
        self.wait_until(script, script, |it| *it != Value::Null && *it != Value::Bool(false))
    }

    /// Runs a script until it gives something for which this holds; `what` is what is waited for.
    pub(crate) fn wait_until(
        &self,
        script: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.run(script);
            if holds(&found) {
                return found;
            }
            assert!(begun.elapsed() < STUCK, "never: {what}\n{found:#}");
            std::thread::sleep(POLL);
        }
    }

    /// A command of the browser's own protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) {
        self.command("goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
    }

    /// Messages of a log since the last time: `browser` or `performance`.
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        self.command("se/log", &json!({"type": kind})).as_array().cloned().unwrap_or_default()
    }

    /// What can be seen, as PNG in base64.
    pub(crate) fn screenshot(&self) -> String {
        let path = format!("/session/{}/screenshot", self.session);
        self.ask("GET", &path, "").as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.ask("DELETE", &format!("/session/{}", self.session), "");
        }
        let _gone = self.driver.kill();
        let _gone = self.driver.wait();
    }
}

/// Head and body. The driver may keep the connection open, so the length counts.
fn read_answer(from: &mut impl BufRead) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(from.read_line(&mut head).unwrap() > 0, "the answer ends within its head: {head}");
    }
    let lengths = head.lines().filter_map(|line| line.split_once(':'));
    let length = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map(|(_, length)| length.trim().parse().unwrap()).next().unwrap();
    let mut body = vec![0; length];
    from.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// The port that the driver has chosen, which it prints.
fn port_of(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let said = lines.by_ref().map_while(Result::ok);
    let port = said
        .filter_map(|line| line.rsplit_once("on port ")?.1.trim_end_matches('.').parse().ok())
        // The first line repeats what was asked for.
        .find(|port| *port != 0);
    // What it prints later has to go somewhere.
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("chromedriver names its port")
}
