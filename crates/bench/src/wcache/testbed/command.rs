//! Other people's programs: run to their end, with what they complained of in the error.
//!
//! Relies on them being on the PATH, or in one of the directories for administrators that a user's PATH leaves out.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::process::find_on_path;

/// Where programs lie that only root needs.
const ADMIN_DIRS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The program called `name`.
///
/// # Errors
/// When there is none; says which Debian package has it.
pub fn program(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    let admin = || ADMIN_DIRS.iter().map(|dir| PathBuf::from(dir).join(name)).find(|path| path.is_file());
    find_on_path(name).or_else(admin).with_context(|| format!("{name} is missing (Debian package {package})"))
}

/// Runs `command` to its end; what it wrote to standard output.
///
/// # Errors
/// When it can't be started or ends badly.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = complaint.lines().rev().take(4).collect();
        let told: Vec<&str> = last.into_iter().rev().collect();
        bail!("{name} ended with {}: {}", output.status, told.join("; "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_told() {
        assert_eq!(run(Command::new("echo").arg("yes")).unwrap(), "yes\n");
        let failed = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert!(failed.contains("why") && failed.contains('3'), "{failed}");
        assert!(program("no-such-program", "none").unwrap_err().to_string().contains("package none"));
    }
}
