//! `xrun ui`: the server over a real socket, and what it refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::workplace::{Workplace, end, json, skipped, wait_until};

/// A served results directory.
struct Served {
    child: Child,
    port: u16,
    token: String,
}

impl Served {
    fn new(workplace: &Workplace) -> Self {
        let mut child = workplace.spawn(&["ui"]);
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let (_, rest) = address.trim().split_once("http://127.0.0.1:").unwrap_or_else(|| panic!("{address}"));
        let (port, token) = rest.trim_end_matches('/').split_once('/').unwrap();
        Self { port: port.parse().unwrap(), token: token.to_owned(), child }
    }

    fn connect(&self) -> TcpStream {
        let connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connection
    }

    /// Answer to bytes: its status, head and body.
    fn answer(&self, request: &str) -> (u16, String, String) {
        let mut connection = self.connect();
        // The server may answer and close before it has read everything.
        let _ = connection.write_all(request.as_bytes());
        let mut bytes = Vec::new();
        let _ = connection.read_to_end(&mut bytes);
        let answer = String::from_utf8(bytes).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split_whitespace().nth(1).map_or(0, |status| status.parse().unwrap());
        (status, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.answer(&format!("GET /{}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", self.token, self.port))
    }

    /// List in which every run is read: the first one on a busy machine may have read none.
    fn listing(&self) -> Value {
        loop {
            let (status, _, body) = self.get("runs.json");
            assert_eq!(status, 200, "{body}");
            let listing: Value = serde_json::from_str(&body).unwrap();
            if listing["pending"] == 0 {
                return listing;
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn workplace() -> Workplace {
    let workplace = Workplace::ran("trial", "[pipeline.dummy]\n");
    workplace.exits(0, &["trial.toml", "-q", "--name", "other", "-s", "experiment.seed=5"]);
    workplace.exits(0, &["sweep", "trial.toml", "-q", "-s", "training.epochs=1,2"]);
    workplace
}

#[test]
fn runs_sweeps_curves_reports_and_comparisons_are_served() {
    let workplace = workplace();
    let served = Served::new(&workplace);
    let (status, head, page) = served.get("");
    assert_eq!(status, 200);
    assert!(head.contains("connect-src 'self'") && head.contains("no-store") && page.contains("id=\"runs\""), "{head}");
    let listing = served.listing();
    let runs = listing["runs"].as_array().unwrap();
    assert_eq!((runs.len(), listing["sweeps"].as_array().unwrap().len(), &listing["pending"]), (4, 1, &0.into()));
    assert_eq!(runs.iter().filter(|run| run["sweep"].is_string()).count(), 2);
    // A setting that one run alone changes has a value in all: its default.
    let seed = &listing["defaults"]["experiment.seed"];
    let has_section = |run: &Value, name: &str| run["sections"].as_array().unwrap().contains(&name.into());
    let has_both = |run: &Value| has_section(run, "experiment") && has_section(run, "validation");
    assert!(seed.is_u64() && *seed != 5 && runs.iter().all(has_both), "{listing}");
    let of = |experiment: &str| {
        let run = runs.iter().find(|run| run["experiment"] == experiment && run["sweep"].is_null()).unwrap();
        assert_eq!((&run["state"], &run["steps"], &run["better"]), (&"finished".into(), &10.into(), &"higher".into()));
        run["id"].as_str().unwrap()
    };
    let (one, other) = (of("trial"), of("other"));
    let (status, _, curves) = served.get(&format!("curves/{one}.json"));
    let curves: Value = serde_json::from_str(&curves).unwrap();
    let names: Vec<&str> =
        curves["curves"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(status == 200 && names.contains(&"score") && names.contains(&"RSS"), "{names:?}");
    let (status, head, report) = served.get(&format!("report/{one}.html"));
    assert!(status == 200 && report.contains(">finished<") && head.contains("script-src 'sha256-"), "{head}");
    let (status, _, page) = served.get(&format!("compare/{one}+{other}.html"));
    assert!(status == 200 && page.contains("2 runs compared") && page.contains("seed 5"), "{page}");
    let sweep = listing["sweeps"][0]["id"].as_str().unwrap();
    let (status, _, page) = served.get(&format!("sweep/{sweep}.html"));
    assert!(status == 200 && page.contains("training.epochs"), "{page}");
    // Nothing was written by looking.
    assert!(!workplace.path("results/trial/latest/export").exists());
}

#[test]
fn what_is_not_a_get_of_a_listed_run_below_the_token_is_refused() {
    let workplace = workplace();
    let served = Served::new(&workplace);
    let id = served.listing()["runs"][0]["id"].as_str().unwrap().to_owned();
    let request = |method: &str, path: &str, host: &str| {
        served.answer(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).0
    };
    let (own, token) = (format!("127.0.0.1:{}", served.port), &served.token);
    assert_eq!(request("GET", &format!("/{token}/report/{id}.html"), &own), 200);
    assert_eq!(request("GET", &format!("/{}/report/{id}.html", "0".repeat(32)), &own), 404, "another token");
    assert_eq!(request("GET", "/", &own), 404);
    assert_eq!(request("POST", &format!("/{token}/runs.json"), &own), 405);
    assert_eq!(request("GET", &format!("/{token}/runs.json"), &format!("evil.example:{}", served.port)), 421);
    for path in
        ["report/../../../../etc/passwd", "report/%2e%2e%2ftrial.html", "report/.html", "curves/x.json", "trial.toml"]
    {
        assert_eq!(request("GET", &format!("/{token}/{path}"), &own), 404, "{path}");
    }
    assert_eq!(request("GET", &format!("/{token}/compare/{id}.html"), &own), 404, "one run is no comparison");
    let long = format!("GET /{token}/ HTTP/1.1\r\nHost: {own}\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(served.answer(&long).0, 431);
    assert_eq!(served.answer("\u{1}\u{2}\r\n\r\n").0, 400);
    // The port is not reachable from other machines.
    let address = format!("{:?}", served.connect().peer_addr().unwrap());
    assert!(address.starts_with("127.0.0.1:"), "{address}");
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out_for_long() {
    let workplace = workplace();
    let served = Served::new(&workplace);
    // Many more than threads: further connections close the oldest.
    let mut silent: Vec<TcpStream> = (0..200).map(|_| served.connect()).collect();
    assert_eq!(served.get("").0, 200);
    assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0, "it is closed");
    // A head that comes in parts, among connections that end.
    let mut slow = served.connect();
    slow.write_all(format!("GET /{}/ HTTP/1.1\r\nHost: 127.0.", served.token).as_bytes()).unwrap();
    silent.iter().for_each(|connection| drop(connection.shutdown(Shutdown::Both)));
    slow.write_all(format!("0.1:{}\r\n\r\n", served.port).as_bytes()).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:.100}");
}

#[test]
fn a_run_that_goes_on_is_followed() {
    let workplace =
        Workplace::with("live.toml", "[pipeline.dummy]\nsteps_per_epoch = 100000\nstep_microseconds = 5000\n");
    let child = workplace.spawn(&["live.toml", "-q"]);
    let served = Served::new(&workplace);
    let row = || served.listing()["runs"].as_array().unwrap().first().cloned().unwrap_or_default();
    wait_until("a running run", || row()["live"] == true && row()["steps"].as_u64() > Some(3));
    let before = row()["steps"].as_u64().unwrap();
    wait_until("progress", || row()["steps"].as_u64() > Some(before));
    let id = row()["id"].as_str().unwrap().to_owned();
    let (status, _, page) = served.get(&format!("report/{id}.html"));
    assert!(status == 200 && page.contains(">running<"), "{page}");
    end(child);
    wait_until("the end", || row()["state"] == "killed" && row()["live"] == false);
}

#[test]
fn a_hostile_report_gets_no_script_and_no_origin() {
    let workplace = workplace();
    let run = workplace.latest("trial");
    std::fs::remove_file(run.join("metrics.jsonl")).unwrap();
    std::fs::write(run.join("report.html"), "<script>alert(1)</script>").unwrap();
    let served = Served::new(&workplace);
    let listing = served.listing();
    let row =
        listing["runs"].as_array().unwrap().iter().find(|row| row["experiment"] == "trial" && row["sweep"].is_null());
    let (status, head, _) = served.get(&format!("report/{}.html", row.unwrap()["id"].as_str().unwrap()));
    assert_eq!(status, 200);
    let policy = head.lines().find(|line| line.starts_with("Content-Security-Policy:")).unwrap();
    assert!(policy.contains("sandbox;") && !policy.contains("script-src"), "{policy}");
}

#[test]
fn a_browser_shows_the_rows_of_the_page() {
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }) else {
        return skipped("there is no Chromium");
    };
    let workplace = workplace();
    let hostile = workplace.latest("other").join("notes.json");
    let mut notes = json(&workplace.latest("trial").join("manifest.json"));
    notes = serde_json::json!({ "version": notes["version"], "tags": ["<img src=x onerror=alert(1)>"], "notes": [] });
    std::fs::write(hostile, notes.to_string()).unwrap();
    let served = Served::new(&workplace);
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--virtual-time-budget=4000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://127.0.0.1:{}/{}/", served.port, served.token))
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = page.matches("type=\"checkbox\" aria-label=\"curves of ").count();
    assert_eq!(rows, 2, "{page}");
    assert!(page.contains("2 of 4 runs") && page.contains("trial/sweeps/"), "{page}");
    assert!(page.contains(">seed</button>") && page.contains(">epochs</button>"), "settings that differ: {page}");
    assert!(page.contains("&lt;img src=x") && !page.contains("<img"), "{page}");
}
