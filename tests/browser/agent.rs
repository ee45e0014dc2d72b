//! The map by the agent, for a browser that logs in. In: an agent as a process beside a daemon, and an API server that knows two tokens. Out: a form, the page over TLS,
//! and the form again when the session is over. With a real API server, and without a browser: `tests/cluster/metrics.rs`.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::driver::Browser;
use crate::node::Node;
use crate::seen::{choose, wait};
use crate::{MACHINE, PAINTED, check_logs, has_row, keep, populate};

/// Its user may see the map; that of `other` may not.
const TOKEN: &str = "on-call";

/// What the API server says of tokens and rights; of all else it has nothing.
fn review(path: &str, asked: &Value) -> Option<Value> {
    match path.rsplit('/').next()? {
        "tokenreviews" => Some(match asked["spec"]["token"].as_str()? {
            token @ (TOKEN | "other") => {
                json!({"authenticated": true, "user": {"username": token}})
            }
            _ => json!({"error": "invalid bearer token"}),
        }),
        "subjectaccessreviews" => {
            let is_map = asked["spec"]["nonResourceAttributes"]["path"] == "/map";
            Some(json!({"allowed": is_map && asked["spec"]["user"] == TOKEN}))
        }
        _ => None,
    }
}

/// Answers one request; `None`: the client is gone.
async fn answer(stream: &mut BufReader<TcpStream>) -> Option<()> {
    let (mut line, mut first, mut length) = (String::new(), String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if first.is_empty() {
            first.clone_from(&line);
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let path = first.split([' ', '?']).nth(1)?;
    let mut object: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, json) = match review(path, &object) {
        Some(status) => {
            object["status"] = status;
            ("201 Created", object)
        }
        None => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
            ("404 Not Found", status)
        }
    };
    let text = json.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all(format!("{head}{text}").as_bytes()).await.ok()
}

/// Where it listens.
async fn start_api() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while answer(&mut stream).await.is_some() {}
            });
        }
    });
    address
}

/// An agent; it ends when this is dropped.
struct Agent {
    process: Child,
    address: SocketAddr,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

impl Agent {
    async fn start(node: &Node) -> Agent {
        let api = start_api().await;
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let file = node.host_root().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{api}")}}],
            "users": [{"name": "c", "user": {"token": "agent"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
        command.args(["agent", "--node", "n1", "--start-within", "0s", "--map", "--metrics"]);
        command.arg(address.to_string()).arg("--control").arg(node.control_socket());
        command.env("KUBECONFIG", file).env("BAYPLAN_CONFIG", "/dev/null");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut agent = Agent { process: command.spawn().unwrap(), address };
        while TcpStream::connect(address).await.is_err() {
            let ended = agent.process.try_wait().unwrap();
            assert!(ended.is_none(), "the agent has ended: {ended:?}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        agent
    }
}

/// Sends the form, and waits for what then is in the document.
fn log_in(browser: &Browser, token: &str, expected: &str) {
    browser.run(&format!(
        "document.querySelector('[name=token]').value = '{token}'; document.querySelector('form button').click()"
    ));
    let text = "return document.body?.innerText ?? ''";
    browser.wait_until(text, expected, |it| it.as_str().unwrap().contains(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_logs_in_at_the_agent() {
    let mut node = Node::start(MACHINE, |config| config.metrics_address = None).await;
    populate(&mut node).await;
    let agent = Agent::start(&node).await;
    let origin = format!("https://localhost:{}", agent.address.port());
    let browser = Browser::start();
    browser.open(&format!("{origin}/map"));
    browser.wait_for("return document.querySelector('form [name=token]') !== null");
    log_in(&browser, "forged", "the map is for bearer tokens of the cluster");
    log_in(&browser, "other", "other may not get /map");
    // Refusals are in the log as such.
    browser.log("browser");
    log_in(&browser, TOKEN, "Colour CPUs by");
    browser.wait_for(PAINTED);
    browser.wait_for(&has_row("default/web/app"));
    node.launch("late", 2).await;
    browser.wait_for(&has_row("default/late/app"));
    choose(&browser, "default/web/app");
    browser.wait_for("return document.querySelector('.why')?.textContent.includes('placed in')");
    wait(&browser, "the pane", |it| it.text("detail") == "default/web/app");
    assert_eq!(browser.run("return document.cookie"), "", "no script has the session");
    keep(&browser, "10-agent");
    check_logs(&browser, &origin);
    // Without its session the page asks for a token at the next change.
    browser.devtools("Network.clearBrowserCookies", &json!({}));
    node.launch("later", 2).await;
    browser.wait_for("return document.querySelector('form [name=token]') !== null");
    log_in(&browser, TOKEN, "Colour CPUs by");
    browser.wait_for(&has_row("default/later/app"));
    drop(browser);
    drop(agent);
    node.stop().await;
}
