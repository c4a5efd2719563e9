//! The two servers: redis-server as it is, and redis-server with the preload library, filled alike.
//!
//! Relies on both idling while the other is loaded, so that both can be kept for the whole run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{ForkersArgs, library};
use crate::load::closed_loop;
use crate::process::{Program, Server, ServerKind, find_on_path};
use crate::resp::Connection;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CandidateKind {
    /// redis-server as it is.
    Plain,
    /// With the library.
    Preloaded,
}

/// One server.
#[derive(Debug)]
pub struct Candidate {
    /// Which it is.
    pub kind: CandidateKind,
    /// Its process.
    pub server: Server,
    /// The connection that orders saves.
    pub control: Connection,
}

/// What the experiment runs on.
#[derive(Debug)]
pub struct ForkersScale {
    /// Keys in each server.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Rounds.
    pub rounds: usize,
    /// Saves of each server in a round.
    pub saves: usize,
    /// Saves before the first round, from which coverage is learned.
    pub warm_ups: usize,
}

impl ForkersScale {
    /// The scale that `args` asks for.
    pub fn new(args: &ForkersArgs) -> Self {
        Self {
            keys: args.keys.unwrap_or(args.common.pick(1_000_000, 110_000)).max(1000),
            value_bytes: args.value_bytes,
            rounds: args.common.rounds(6, 3),
            saves: args.common.pick(2, 1),
            warm_ups: 2,
        }
    }

    /// Bytes of keys and values of one server.
    pub fn data_bytes(&self) -> u64 {
        self.keys * (self.value_bytes as u64 + 16)
    }
}

/// Finds redis-server and the library.
///
/// # Errors
/// When one of them isn't there, with how to get it.
pub fn find() -> anyhow::Result<(PathBuf, PathBuf)> {
    let redis =
        find_on_path("redis-server").context("redis-server is not on the PATH (Debian package redis-server)")?;
    let library =
        library::find().with_context(|| format!("{} is not there: {}", library::NAME, library::HOW_TO_BUILD))?;
    Ok((redis, library))
}

/// Starts both servers and fills them.
///
/// # Errors
/// When one can't be started or filled.
pub fn start(
    args: &ForkersArgs,
    scale: &ForkersScale,
    dir: &Path,
    say: impl Fn(&str),
) -> anyhow::Result<[Candidate; 2]> {
    let (redis, library) = find()?;
    let preload: [(&str, OsString); 2] = [("LD_PRELOAD", library.into()), ("QUIRE_PRELOAD_LOG", "1".into())];
    let start = |kind, name: &str, port, environment: &[(&str, OsString)]| -> anyhow::Result<Candidate> {
        say(&format!("filling {name} with {} keys", scale.keys));
        let program = Program { name: name.to_owned(), kind: ServerKind::Redis, binary: redis.clone() };
        let mut server = Server::start_with(&program, port, &dir.join(name), environment)?;
        let mut control = server.ready()?;
        // The values are random: compressing them in vain would be most of what a save does.
        control.line("CONFIG SET rdbcompression no")?;
        closed_loop::fill(port, 0..scale.keys, scale.value_bytes, 2)?;
        Ok(Candidate { kind, server, control })
    };
    Ok([
        start(CandidateKind::Plain, "plain", args.port, &[])?,
        start(CandidateKind::Preloaded, "preloaded", args.port + 1, &preload)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::parse;

    #[test]
    fn the_small_run_is_smaller() {
        let scale = |words: &str| ForkersScale::new(&parse::<ForkersArgs>(words));
        let (quick, full) = (scale("--quick"), scale(""));
        assert!(quick.data_bytes() < full.data_bytes() && quick.rounds < full.rounds);
        assert_eq!(scale("--keys 5000 --rounds 1").keys, 5000);
    }
}
