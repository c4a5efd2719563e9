//! Block devices over files, and file systems on them, taken down in the order in which they were built up.
//!
//! Relies on root, `losetup`, `mkfs.ext4` and `mount`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command; what it printed, or what went wrong.
pub fn command(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device.
pub struct Loop {
    pub device: PathBuf,
}

impl Loop {
    pub fn over(file: &Path) -> Result<Self, String> {
        let device = command("losetup", &["--find", "--show", &file.display().to_string()])?;
        Ok(Self { device: device.into() })
    }

    fn text(&self) -> String {
        self.device.display().to_string()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = command("losetup", &["-d", &self.text()]);
    }
}

/// A mounted file system.
pub struct FileSystem {
    point: PathBuf,
}

impl FileSystem {
    pub fn on(disk: &Loop, point: &Path) -> Result<Self, String> {
        command("mount", &["-t", "ext4", "-o", "noatime", &disk.text(), &point.display().to_string()])?;
        Ok(Self { point: point.to_owned() })
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if command("umount", &[&self.point.display().to_string()]).is_err() {
            let _ = command("umount", &["-l", &self.point.display().to_string()]);
        }
    }
}

/// The bytes of an ext4 file system with nothing on it.
pub fn empty_file_system(scratch: &Path, bytes: u64) -> Result<Vec<u8>, String> {
    let image = scratch.join("empty");
    let told = |error: std::io::Error| error.to_string();
    std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).map_err(told)?;
    let features = ["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    command("mkfs.ext4", &[&features[..], &[&image.display().to_string()]].concat())?;
    std::fs::read(&image).map_err(told)
}
