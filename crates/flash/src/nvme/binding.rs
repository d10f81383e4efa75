//! Taking a device from the kernel's driver, and giving it back however this process ends.
//!
//! The device is bound to `vfio-pci` through sysfs. A small shell waits for the end of a pipe that only this process
//! has: when the pipe closes, by a drop or by the death of this process, even by SIGKILL, the shell binds the device back
//! to whichever driver the kernel chooses. It ignores the signals that end this process. Only where all processes of a
//! control group are killed at once does the device stay with `vfio-pci`; the next start takes it from there, or
//! `echo > …/driver_override; echo ADDRESS > …/driver/unbind; echo ADDRESS > /sys/bus/pci/drivers_probe` gives it back.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::device::OpenError;

/// What the shell does. The device may still be held for a moment by who has died.
const GIVE_BACK: &str = r#"
trap '' TERM INT HUP QUIT
cat > /dev/null
device=/sys/bus/pci/devices/$1
echo > "$device/driver_override"
driver=$(basename "$(readlink "$device/driver")" 2> /dev/null)
[ "$driver" = vfio-pci ] && echo "$1" > /sys/bus/pci/drivers/vfio-pci/unbind
echo "$1" > /sys/bus/pci/drivers_probe
"#;

/// The class of an NVMe controller.
const NVME_CLASS: &str = "0x010802";

/// How long drivers may take to come and go.
const WAIT: Duration = Duration::from_secs(10);

/// A device that is bound to `vfio-pci` as long as this lives.
pub struct Binding {
    address: String,
    group: String,
    guardian: Child,
}

impl Binding {
    /// Takes an NVMe controller that nobody uses.
    ///
    /// # Errors
    /// Where there is none at the address, a file system or another holder uses it, or there is no IOMMU.
    pub fn take(address: &str) -> Result<Binding, OpenError> {
        let is_address = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        if !address.chars().all(is_address) || address.len() > 16 {
            return Err(OpenError::WrongKind);
        }
        let device = Path::new("/sys/bus/pci/devices").join(address);
        let class =
            fs::read_to_string(device.join("class")).map_err(OpenError::at("PCI device"))?;
        if class.trim() != NVME_CLASS {
            return Err(OpenError::WrongKind);
        }
        let group = fs::read_link(device.join("iommu_group")).map_err(OpenError::at("IOMMU"))?;
        let group = group
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_taken = driver(&device).is_some_and(|driver| driver == "vfio-pci");
        if !is_taken {
            for disk in disks(&device) {
                // Refused where the disk or a part of it is mounted or held.
                let exclusive = OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_EXCL)
                    .open(&disk);
                match exclusive {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        return Err(OpenError::InUse);
                    }
                    _ => {}
                }
            }
        }
        if !Path::new("/sys/bus/pci/drivers/vfio-pci").exists() {
            let _ = Command::new("modprobe").arg("vfio-pci").status();
        }
        let guardian = Command::new("sh")
            .args(["-c", GIVE_BACK, "sh", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(OpenError::at("sh"))?;
        // From here on, whatever fails gives the device back.
        let binding = Binding {
            address: address.to_owned(),
            group,
            guardian,
        };
        if !is_taken {
            binding.bind(&device)?;
        }
        Ok(binding)
    }

    fn bind(&self, device: &Path) -> Result<(), OpenError> {
        let write = |path: PathBuf, text: &str| fs::write(path, text);
        write(device.join("driver_override"), "vfio-pci").map_err(OpenError::at("override"))?;
        if driver(device).is_some() {
            write(device.join("driver/unbind"), &self.address).map_err(OpenError::at("unbind"))?;
        }
        write("/sys/bus/pci/drivers_probe".into(), &self.address).map_err(OpenError::at("bind"))?;
        let deadline = Instant::now() + WAIT;
        let node = self.node();
        while !node.exists() {
            if Instant::now() > deadline {
                let error = io::ErrorKind::NotFound.into();
                return Err(OpenError::System {
                    what: "VFIO",
                    error,
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Its PCI address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The group by which VFIO knows it.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev/vfio").join(&self.group)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let deadline = Instant::now() + WAIT;
        while matches!(self.guardian.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The driver that a device has.
fn driver(device: &Path) -> Option<String> {
    let link = fs::read_link(device.join("driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// The disks of a controller: `nvme/nvme0/nvme0n1`, or with several paths to one namespace its head elsewhere.
fn disks(device: &Path) -> Vec<PathBuf> {
    let names = |path: PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect::<Vec<_>>()
    };
    let mut disks = Vec::new();
    for controller in names(device.join("nvme")) {
        for name in names(device.join("nvme").join(&controller)) {
            if name.starts_with("nvme") && name.contains('n') {
                disks.push(Path::new("/dev").join(name));
            }
        }
    }
    disks
}
