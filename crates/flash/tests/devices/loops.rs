//! Block devices: loop devices over a file, with sectors of 512 and 4096 bytes, where this kernel and user have them.

use std::path::{Path, PathBuf};
use std::process::Command;

use coua_flash::files::Way;

use crate::files::{Scratch, run};

/// A loop device, detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path, sector_len: usize) -> Result<Loop, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector_len.to_string()])
            .arg(file)
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Loop(PathBuf::from(path)))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn loop_devices() {
    for sector_len in [512, 4096] {
        let file = Scratch::new(&format!("loop-{sector_len}"));
        let made = std::fs::File::create(file.path()).and_then(|it| it.set_len(8 << 20));
        made.expect("a file");
        match Loop::over(file.path(), sector_len) {
            Err(why) => println!("left out: no loop device of {sector_len}: {why}"),
            Ok(device) => {
                for way in [Way::Threads, Way::Best, Way::Polled] {
                    run(&device.0, None, way);
                }
            }
        }
    }
}
