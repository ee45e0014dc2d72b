//! The files of the page, in the program itself, and the headers under which a browser may use them.
//!
//! The policy allows what this listener serves and nothing else: no other host, no script or style inside the document, no frame
//! around it. So a name of a container that looks like HTML stays text, also if a script had a mistake.

use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const INDEX: &str = include_str!("page/index.html");

/// Name, type and text.
const FILES: [(&str, &str, &str); 11] = [
    ("app.js", SCRIPT, include_str!("page/app.js")),
    ("box.js", SCRIPT, include_str!("page/box.js")),
    ("cpus.js", SCRIPT, include_str!("page/cpus.js")),
    ("detail.js", SCRIPT, include_str!("page/detail.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("overlay.js", SCRIPT, include_str!("page/overlay.js")),
    ("palette.js", SCRIPT, include_str!("page/palette.js")),
    ("table.js", SCRIPT, include_str!("page/table.js")),
    ("time.js", SCRIPT, include_str!("page/time.js")),
    ("style.css", STYLE, include_str!("page/style.css")),
    ("icon.svg", PICTURE, include_str!("page/icon.svg")),
];

/// The document.
pub(crate) async fn page() -> Response {
    answer(HTML, INDEX)
}

/// A file that the document names.
pub(crate) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, form, text)) => answer(form, text),
        None => (StatusCode::NOT_FOUND, "the map has no such file\n").into_response(),
    }
}

fn answer(form: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, form)], HEADERS, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All scripts together.
    const SCRIPT_BYTES_MAX: usize = 60 * 1024;

    #[test]
    fn scripts_are_small() {
        let scripts = FILES.iter().filter(|(_, form, _)| *form == SCRIPT);
        let bytes: usize = scripts.map(|(_, _, text)| text.len()).sum();
        assert!(bytes < SCRIPT_BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn files_name_only_files_that_are_there_and_no_other_host() {
        for (name, _, text) in FILES.into_iter().chain([("index.html", HTML, INDEX)]) {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{name}");
            for unsafe_way in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=",
            ] {
                assert!(!text.contains(unsafe_way), "{name}: {unsafe_way}");
            }
            let imports = text.split("from \"./").skip(1).filter_map(|it| it.split('"').next());
            let links = text.split("=\"/map/").skip(1).filter_map(|it| it.split('"').next());
            for file in imports.chain(links) {
                assert!(FILES.iter().any(|(known, ..)| *known == file), "{name} names {file}");
            }
        }
    }
}
