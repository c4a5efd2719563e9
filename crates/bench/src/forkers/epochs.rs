//! What the preload library tells of each child, read from the server's log.
//!
//! Relies on the line that `quire-preload` prints at `QUIRE_PRELOAD_LOG=1`:
//! `… pages: N present, N copied by the program, N precopied, N needed, N unneeded …; N ms of processor time …`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// One child's line, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EpochLine {
    /// Pages of the program.
    pub present: f64,
    /// Copied by the program itself.
    pub own: f64,
    /// Copied ahead.
    pub precopied: f64,
    /// Of these, needed, by estimate.
    pub needed: f64,
    /// Of these, not needed, by estimate.
    pub unneeded: f64,
    /// Processor time that the library's thread took, in milliseconds.
    pub processor_ms: f64,
}

/// The last `rounds` times `unmeasured` + `saves` epochs in the log of a server, without the unmeasured ones. The line of an
/// epoch comes when the library is done with what it does after a child's end, so a moment is waited for it.
///
/// # Errors
/// When the log can't be read, or says that the library is not active.
pub fn last(log: &Path, rounds: usize, unmeasured: usize, saves: usize) -> anyhow::Result<Vec<EpochLine>> {
    std::thread::sleep(Duration::from_millis(500));
    let all = read(log)?;
    let of_rounds = &all[all.len().saturating_sub(rounds * (unmeasured + saves))..];
    Ok(of_rounds.chunks(unmeasured + saves).flat_map(|round| round.iter().skip(unmeasured)).copied().collect())
}

fn read(log: &Path) -> anyhow::Result<Vec<EpochLine>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    if let Some(line) = text.lines().find(|line| line.contains("quire-preload: not active")) {
        anyhow::bail!("the preload library can't work here: {line}");
    }
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<EpochLine> {
    let rest = line.split_once("quire-preload: epoch ")?.1;
    let before = |words: &str| rest.split_once(words)?.0.rsplit(' ').next()?.parse::<f64>().ok();
    Some(EpochLine {
        present: before(" present,")?,
        own: before(" copied by the program,")?,
        precopied: before(" precopied,")?,
        needed: before(" needed,")?,
        unneeded: before(" unneeded ")?,
        processor_ms: before(" ms of processor time")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_line_is_understood() {
        let line = "quire-preload: epoch 3: child 77 lived 1.250 s; pages: 100 present, 7 copied by the program, 60 precopied, \
                    50 needed, 10 unneeded (estimated); 1 of 2 regions, threshold 80 %; 12 ms of processor time; seen at its end";
        let expected =
            EpochLine { present: 100.0, own: 7.0, precopied: 60.0, needed: 50.0, unneeded: 10.0, processor_ms: 12.0 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("quire-preload: active in redis-server (pid 1): …"), None);
    }

    #[test]
    fn a_library_that_is_not_active_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("server.log");
        std::fs::write(&log, "x\nquire-preload: not active in redis-server (pid 1): no pagemap\n").unwrap();
        assert!(last(&log, 1, 1, 1).unwrap_err().to_string().contains("no pagemap"));
    }
}
