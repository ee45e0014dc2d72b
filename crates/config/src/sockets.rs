//! Whether every socket has a path of its own. In: a configuration, and where its keys stand. Out: a mistake for each path that has two uses.

use std::path::{Component, Path, PathBuf};

use crate::config::Config;
use crate::yaml::Position;

/// What no single key can tell: two sockets of one path. The runtime and its image service may be one.
pub(super) fn shared_paths(
    config: &Config,
    stands: &[(&'static str, Position)],
) -> Vec<(Position, String)> {
    let place = |key: &str| stands.iter().find(|(name, _)| *name == key).map(|(_, at)| *at);
    let sockets: [(&str, Option<&Path>); 7] = [
        ("socket", Some(&config.socket)),
        ("runtimeSocket", Some(&config.runtime_socket)),
        ("imageSocket", config.image_socket.as_deref()),
        ("controlSocket", Some(&config.control_socket)),
        ("nri.socket", Some(&config.nri_socket)),
        ("kubelet.podsSocket", config.kubelet_pods_socket.as_deref()),
        ("kubelet.podResourcesSocket", config.pod_resources_socket.as_deref()),
    ];
    let mut found = Vec::new();
    for (index, (key, path)) in sockets.iter().enumerate() {
        let Some(path) = path else { continue };
        let is_same = |(other, theirs): &&(&str, Option<&Path>)| {
            let may_be_one = [*other, *key] == ["runtimeSocket", "imageSocket"];
            !may_be_one && theirs.is_some_and(|it| plain(it) == plain(path))
        };
        if let Some((other, _)) = sockets[..index].iter().find(is_same) {
            // The later of both, as far as the file has them; it has at least one, because no two defaults are the same.
            let at = place(key).max(place(other)).unwrap_or_default();
            let path = path.display();
            found.push((
                at,
                format!("`{key}` is `{path}`, which is `{other}` already; expected a path of its own for each socket"),
            ));
        }
    }
    found
}

/// Without doubled slashes and dots; `/var/run` is `/run` (Filesystem Hierarchy Standard 3.0, 5.13).
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    match plain.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => plain,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::parse_config;
    use std::path::Path;

    fn check(text: &str, expected: Expect) {
        let said = match parse_config(Path::new("f"), text) {
            Ok(_) => "ok".to_owned(),
            Err(errors) => errors.to_string(),
        };
        expected.assert_eq(&said);
    }

    #[test]
    fn each_socket_has_a_path_of_its_own() {
        check("imageSocket: /run/containerd/containerd.sock\n", expect!["ok"]);
        check(
            "socket: /run/a.sock\nruntimeSocket: /run/a.sock\ncontrolSocket: /run/a.sock\n",
            expect![[r#"
                f:2:16: `runtimeSocket` is `/run/a.sock`, which is `socket` already; expected a path of its own for each socket
                f:3:16: `controlSocket` is `/run/a.sock`, which is `socket` already; expected a path of its own for each socket"#]],
        );
        check(
            "socket: /var/run//x/../bayplan/control.sock\n",
            expect![
                "f:1:9: `controlSocket` is `/run/bayplan/control.sock`, which is `socket` already; expected a path of its own for each socket"
            ],
        );
        check(
            "imageSocket: unix:///run/bayplan/bayplan.sock\n",
            expect![
                "f:1:14: `imageSocket` is `/run/bayplan/bayplan.sock`, which is `socket` already; expected a path of its own for each socket"
            ],
        );
    }
}
