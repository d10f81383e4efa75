//! Chromium without a window, spoken to in its debugging protocol: JSON over two pipes, with a zero
//! behind each message.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A browser, and the page that is open last. Dropping it ends it.
pub(crate) struct Browser {
    child: Child,
    folder: PathBuf,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    asked: u64,
    complaints: Vec<String>,
    requested: Vec<String>,
}

impl Browser {
    /// Starts one; `None` where there is none.
    pub(crate) fn start() -> Option<Browser> {
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|program| {
                let mut command = Command::new(program);
                let command = command
                    .arg("--version")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            })?;
        let folder = std::env::temp_dir().join(format!("coua-browser-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let pipe = |name: &str| {
            let path = folder.join(name);
            let _ = fs::remove_file(&path);
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a pipe");
            // For both directions, so that nobody waits for the other end.
            let file = File::options().read(true).write(true).open(&path);
            (path, file.expect("a pipe"))
        };
        let (into, to) = pipe("into");
        let (out, from) = pipe("out");
        // Descriptors 3 and 4 are those that it looks at.
        let script = "exec \"$0\" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --user-data-dir=\"$1\" --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, program]);
        command.arg(folder.join("profile")).arg(into).arg(out);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let (tell, hear) = channel();
        thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        Some(Browser {
            child,
            folder,
            to,
            from: hear,
            session: None,
            asked: 0,
            complaints: Vec::new(),
            requested: Vec::new(),
        })
    }

    /// Opens a page of this width for somebody who likes a colour scheme.
    pub(crate) fn open(&mut self, url: &str, scheme: &str, width: u32) {
        self.session = None;
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", target);
        self.session = Some(session["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Runtime.enable", "Log.enable", "Network.enable"] {
            self.call(domain, json!({}));
        }
        let size =
            json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The text that an expression of the page is.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let answer = self.call("Runtime.evaluate", json!({ "expression": expression }));
        let value = &answer["result"]["value"];
        value
            .as_str()
            .unwrap_or_else(|| panic!("{expression}: {answer}"))
            .to_owned()
    }

    /// Waits until a condition of the page holds, and does something meanwhile.
    pub(crate) fn wait_until(&mut self, what: &str, condition: &str, mut meanwhile: impl FnMut()) {
        let deadline = Instant::now() + PATIENCE;
        let is_so = format!("String(typeof samples !== 'undefined' && !!({condition}))");
        while self.text(&is_so) != "true" {
            assert!(
                Instant::now() < deadline,
                "{what}: not in {PATIENCE:?}: {:?}",
                self.complaints
            );
            meanwhile();
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What pages and the browser have complained about.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// What pages have asked for.
    pub(crate) fn requested(&self) -> &[String] {
        &self.requested
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = format!("{message}\0");
        self.to.write_all(text.as_bytes()).expect("it reads");
        loop {
            let message = self.from.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|_| panic!("{method}: no answer in {PATIENCE:?}"));
            if message["id"] == self.asked {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") => {
                self.complaints.push(event["params"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = event["params"]["request"]["url"].as_str();
                self.requested.push(url.unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
