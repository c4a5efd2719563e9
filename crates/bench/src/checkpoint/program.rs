//! The program that saves itself, compiled in both ways and running.
//!
//! Relies on a C compiler (Rust needs one to link) and on `libquire.so` beside the quire binary. The program's source and the
//! library's header are part of this one, so that the experiment needs no source tree.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::forkers::library as libraries;

const SOURCE: &str = include_str!("saver.c");
/// The library's header.
pub(super) const HEADER: &str = include_str!("../../../capi/include/quire.h");
const LIBRARY: &str = "libquire.so";
/// The name that programs ask the loader for.
const LOADED_NAME: &str = "libquire.so.0";

/// How a program saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveMethod {
    /// The child writes entry by entry with `fwrite`.
    Stdio,
    /// The child dumps memory with `mdc_*` and gives it back.
    Mdc,
}

impl SaveMethod {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdio => "fork",
            Self::Mdc => "mdc_fork",
        }
    }
}

/// A compiled program.
#[derive(Debug, Clone)]
pub struct SaverBinary {
    method: SaveMethod,
    path: PathBuf,
}

/// Where `libquire.so` is.
///
/// # Errors
/// It is not there, with how to get it.
pub(super) fn library() -> anyhow::Result<PathBuf> {
    libraries::find_named(LIBRARY, "QUIRE_LIBRARY").with_context(|| {
        format!("{LIBRARY} is not there: `cargo build --release` puts it beside the quire binary; QUIRE_LIBRARY=FILE names it elsewhere")
    })
}

/// Compiles both programs in `dir`.
///
/// # Errors
/// There is no C compiler, or the library isn't there, with how to get it.
pub fn compile(dir: &Path) -> anyhow::Result<[SaverBinary; 2]> {
    let library = library()?;
    std::fs::write(dir.join("saver.c"), SOURCE)?;
    std::fs::write(dir.join("quire.h"), HEADER)?;
    std::os::unix::fs::symlink(&library, dir.join(LOADED_NAME))?;
    let place = dir.canonicalize()?;
    let binary = |method: SaveMethod| {
        let path = dir.join(method.name());
        let mut command = Command::new("cc");
        command.args(["-O2", "-o"]).arg(&path).arg(dir.join("saver.c"));
        if method == SaveMethod::Mdc {
            command.arg("-DMDC").arg("-I").arg(dir).arg(&library).arg(format!("-Wl,-rpath,{}", place.display()));
        }
        let output = command.arg("-lm").output().context("starting cc (Debian package gcc)")?;
        ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        Ok(SaverBinary { method, path })
    };
    Ok([binary(SaveMethod::Stdio)?, binary(SaveMethod::Mdc)?])
}

/// A running program, which ends when this is dropped.
#[derive(Debug)]
pub struct SaverProcess {
    binary: SaverBinary,
    file: PathBuf,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl SaverProcess {
    /// Starts the program and waits until it has its entries.
    ///
    /// # Errors
    /// When it can't be started or has no memory.
    pub fn start(binary: SaverBinary, dir: &Path, entries: u64, value_bytes: u64, seed: u64) -> anyhow::Result<Self> {
        let file = dir.join(format!("{}.saved", binary.method.name()));
        let mut command = Command::new(&binary.path);
        command.arg("run").arg(&file).args([entries, value_bytes, seed].map(|number| number.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().context("its input is a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let mut saver = Self { binary, file, child, orders, answers };
        ensure!(saver.answer()? == "ready", "the program has not begun");
        Ok(saver)
    }

    /// How it saves.
    pub fn method(&self) -> SaveMethod {
        self.binary.method
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that it saves to.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Has it save under operations, of which `share` are updates; returns when it has: the numbers of its answer.
    ///
    /// # Errors
    /// When it or its child has failed.
    pub fn save(&mut self, ops_per_s: f64, skew: f64, share: f64) -> anyhow::Result<[u64; 6]> {
        writeln!(self.orders, "save {ops_per_s} {skew} {share}")?;
        numbers_of(&self.answer()?, "saved")
    }

    /// Has another process of the program restore the file: the numbers of its answer.
    ///
    /// # Errors
    /// When it fails.
    pub fn restore(&self) -> anyhow::Result<[u64; 3]> {
        let output = Command::new(&self.binary.path).arg("restore").arg(&self.file).output()?;
        ensure!(output.status.success(), "the restore failed: {}", String::from_utf8_lossy(&output.stderr));
        numbers_of(String::from_utf8_lossy(&output.stdout).trim(), "restored")
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the program that saves by {} has ended: see above", self.method().name());
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for SaverProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The numbers after `word`.
fn numbers_of<const COUNT: usize>(line: &str, word: &str) -> anyhow::Result<[u64; COUNT]> {
    let rest = line.strip_prefix(word).with_context(|| format!("{line:?} is no answer"))?;
    let numbers = rest.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    numbers.try_into().map_err(|_| anyhow::anyhow!("{line:?} has other numbers than expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_others_refused() {
        assert_eq!(numbers_of("saved 1 2 3", "saved").unwrap(), [1, 2, 3]);
        assert!(numbers_of::<3>("saved 1 2", "saved").is_err());
        assert!(numbers_of::<1>("restored 1", "saved").is_err());
        assert!(numbers_of::<1>("saved x", "saved").is_err());
    }
}
