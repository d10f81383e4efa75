//! A real Prometheus that scrapes coua, and what is in `packaging/monitoring`.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::under_test::{LIMIT, coua};
use super::{Context, Outcome};
use crate::commands::{program, read, root, run, target};
use crate::server::{Server, connect, free_port};

/// Whether promtool finds nothing wrong with series, alerts and dashboard, and Prometheus has an answer to each question.
pub(crate) fn monitoring(context: &Context) -> Result<Outcome> {
    let folder = root().join("packaging/monitoring");
    run(program("promtool")
        .args(["check", "rules"])
        .arg(folder.join("alerts.yml")))?;
    run(program("promtool")
        .args(["test", "rules"])
        .arg(folder.join("alerts.test.yml")))?;

    let (metrics, port) = (free_port()?, free_port()?);
    let address = format!("127.0.0.1:{metrics}");
    let server = Server::start(
        &coua(context)?,
        &["-m", "64", "-t", "2", "--metrics", &address],
    )?;
    let series =
        read(program("curl").args(["--silent", "--fail", &format!("http://{address}/metrics")]))?;
    let mut check = program("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = check.stdin.take().context("a pipe")?;
    writeln!(input, "{series}")?;
    drop(input);
    ensure!(
        check.wait()?.success(),
        "promtool complains about the series"
    );

    let data = target().join("clients/prometheus");
    let _ = fs::remove_dir_all(&data);
    fs::create_dir_all(&data)?;
    let settings = data.join("prometheus.yml");
    fs::write(
        &settings,
        format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: ['{}']\nscrape_configs:\n  \
             - job_name: coua\n    static_configs:\n      - targets: ['{address}']\n",
            folder.join("alerts.yml").display()
        ),
    )?;
    let mut command = program("prometheus");
    command
        .arg(format!("--config.file={}", settings.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            data.join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--log.level=error");
    // It accepts connections some time before it answers questions.
    let ready = format!("http://127.0.0.1:{port}/-/ready");
    let is_ready = || read(program("curl").args(["--silent", "--fail", &ready])).is_ok();
    let prometheus = Server::start_as(&mut command, port, is_ready)?;
    let questions = questions(&fs::read_to_string(folder.join("grafana.json"))?)?;
    ensure!(
        questions.len() > 10,
        "the dashboard asks {} questions",
        questions.len()
    );
    let until = Instant::now() + LIMIT;
    for question in &questions {
        // Of --net there is nothing here to tell.
        let is_empty = question.contains("coua_net_");
        loop {
            load(server.port)?;
            let answers = ask(port, question)?;
            if is_empty || !answers.is_empty() {
                break;
            }
            ensure!(
                Instant::now() < until,
                "Prometheus has no answer to {question}"
            );
            thread::sleep(Duration::from_millis(500));
        }
    }
    let alerts = ask(port, "ALERTS{alertstate=\"firing\",severity=\"critical\"}")?;
    ensure!(alerts.is_empty(), "alerts fire: {alerts:?}");
    prometheus.stop()?;
    server.stop()?;
    Ok(Outcome::Passed)
}

/// What the dashboard asks, with its variables filled in.
fn questions(dashboard: &str) -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(dashboard)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let questions = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    let filled = questions.map(|question| {
        question
            .replace("$job", "coua")
            .replace("$instance", ".*")
            .replace("$__rate_interval", "10s")
    });
    Ok(filled.collect())
}

/// The samples that Prometheus has at this moment.
fn ask(port: u16, question: &str) -> Result<Vec<Value>> {
    let answer = read(program("curl").args([
        "--silent",
        "--get",
        &format!("http://127.0.0.1:{port}/api/v1/query"),
        "--data-urlencode",
        &format!("query={question}"),
    ]))?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(answer["status"] == "success", "{question}: {answer}");
    let samples = answer["data"]["result"].as_array().context("samples")?;
    Ok(samples.clone())
}

/// Requests of each kind.
fn load(port: u16) -> Result<()> {
    let mut stream = connect(port).context("the server accepts connections")?;
    stream.write_all(b"set a 0 0 1\r\nx\r\nget a\r\nget b\r\ntouch a 0\r\nquit\r\n")?;
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(())
}
