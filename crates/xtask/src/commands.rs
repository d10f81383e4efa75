//! Running other programs, and the paths of the repository.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("crates/xtask lies two folders down")
        .to_owned()
}

/// Where cargo builds: `CARGO_TARGET_DIR`, or `target`.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |named| root().join(named))
}

/// A program, to be run in the root of the repository.
pub(crate) fn program(name: impl AsRef<Path>) -> Command {
    let mut command = Command::new(name.as_ref());
    command.current_dir(root());
    command
}

/// The cargo that runs this chore.
pub(crate) fn cargo() -> Command {
    program(env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from))
}

/// The cargo of another tool chain, by way of rustup.
pub(crate) fn cargo_of(tool_chain: &str) -> Command {
    let mut command = program("cargo");
    command
        .arg(format!("+{tool_chain}"))
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Prints the command and runs it. An error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("  $ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("{} cannot be run", shown(command)))?;
    ensure!(status.success(), "{}: {status}", shown(command));
    Ok(())
}

/// As [`run`], but stops the command if it takes longer than `limit`.
pub(crate) fn run_within(limit: Duration, command: &Command) -> Result<()> {
    let seconds = limit.as_secs().to_string();
    run(&mut under(
        "timeout",
        &["--kill-after=10", &seconds],
        command,
    ))
}

/// The same command, run by a wrapper with its own arguments.
pub(crate) fn under(wrapper: &str, words: &[&str], command: &Command) -> Command {
    let mut wrapped = program(wrapper);
    wrapped.args(words);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}

/// Runs the command and returns its standard output. If it fails, the error has its standard error.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{} cannot be run", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{}: {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether the command can be run and succeeds; nothing is printed.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Whether a program of this name is in `PATH`.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn shown(command: &Command) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!(
                "{}={:?}",
                name.to_string_lossy(),
                value.to_string_lossy()
            ));
        }
    }
    words.push(command.get_program().to_string_lossy().into_owned());
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
