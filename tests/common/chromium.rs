//! Chromium, headless, controlled over the pipes of its DevTools protocol; and axe-core in its pages.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser with one page.
pub struct Chromium {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    _profile: TempDir,
}

impl Chromium {
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The protocol is on descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null",
                "sh",
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Chromium is needed: ci/install-deps --tests");
        let mut browser = Chromium {
            requests: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            session: None,
            sent: 0,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", &json!({}));
        browser
    }

    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "Chromium ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let mut request = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests
            .write_all(request.to_string().as_bytes())
            .unwrap();
        self.requests.write_all(&[0]).unwrap();
        self.requests.flush().unwrap();
        loop {
            let answer = self.message();
            if answer["id"] == json!(self.sent) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Opens a file in a window of `width` pixels, with the given colour scheme.
    pub fn open(&mut self, file: &Path, width: u32, scheme: &str) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media);
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        self.call(
            "Page.navigate",
            &json!({ "url": format!("file://{}", file.display()) }),
        );
        while self.evaluate("document.readyState") != json!("complete") {}
    }

    /// Evaluates an expression in the page, also where the page's policy forbids scripts.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let request =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &request);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// Unfolds everything that is folded.
    pub fn unfold(&mut self) {
        self.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)");
    }

    /// Returns by how many pixels the page is wider than the window.
    pub fn overhang(&mut self) -> i64 {
        let root = "document.documentElement";
        let width = self.evaluate(&format!("{root}.scrollWidth - {root}.clientWidth"));
        width.as_i64().unwrap()
    }

    /// Returns what axe-core finds wrong with the page, one line a rule.
    pub fn violations(&mut self) -> Vec<String> {
        self.evaluate(axe());
        let found = self.evaluate(
            "axe.run(document, { resultTypes: ['violations'] }).then(found => found.violations.map(\
             rule => `${rule.id}: ${rule.help}: ${rule.nodes.map(node => node.html).join(' ')}`))",
        );
        let lines = found.as_array().unwrap().iter();
        lines
            .map(|line| line.as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of axe-core.
fn axe() -> &'static str {
    static AXE: OnceLock<String> = OnceLock::new();
    AXE.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/axe");
        let output = Command::new(script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let file = String::from_utf8(output.stdout).unwrap();
        // An expression whose value can be handed over.
        std::fs::read_to_string(file.trim()).unwrap() + ";0"
    })
}

/// Asserts that a page has no violation that axe-core finds, and that it does not scroll sideways: in the light and in the dark, on a phone and on a wide screen.
pub fn assert_accessible(browser: &mut Chromium, file: &Path) {
    for (width, scheme) in [(1200, "light"), (360, "dark")] {
        browser.open(file, width, scheme);
        browser.unfold();
        let place = format!("{}, {width} pixels, {scheme}", file.display());
        assert_eq!(browser.overhang(), 0, "{place}");
        assert_eq!(browser.violations(), [""; 0], "{place}");
    }
}
