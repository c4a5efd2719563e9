//! The arguments of `quire measure`: those of the slides' tool, and a few more.
//!
//! Relies on clap.

use std::path::PathBuf;
use std::str::FromStr;

use quire_snapshot::{Mechanism, UnknownMechanism};

const HELP: &str = "\
What is measured: cut a snapshot, update the memory while it is open, drop it, update again, cut the next one. So the \
figures are those of the tenth snapshot of a running program, not of the first one of an idle one; two cuts are made \
before the first that counts. Updates follow a Zipf law, a million a second, one for each page while a snapshot is open and \
as many after it.

Examples:
  quire measure -m all -s 2048 -p             the table of all mechanisms, 2 GiB
  quire measure -m all -s 2048 -p --thp       the same on huge pages
  quire measure -m scoot -s 2048 -p -x db -t  one cut with the proof: frames are shared before a write, not after
  quire measure -m fork -s 1024 -p -x snap    until the first byte of the snapshot can be read
  quire measure -m scoot -s 2048 -p --flat-out  with no time between cuts
  quire measure -m uffd -s 512 -p --thp --coverage
                                              how many pages were copied ahead, and how many of them needlessly";

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct MeasureArgs {
    /// scoot, uffd, fork, mmapcopy, memcpy, barrier, or all
    #[arg(short = 'm', long = "mechanism", value_name = "MECHANISM")]
    pub which: MechanismSelection,
    /// Size of the range in MiB
    #[arg(short = 's', long = "size", value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub mib: u64,
    /// Populate all pages when the range is allocated
    #[arg(short = 'p', long)]
    pub populate: bool,
    /// One cut, and step by step the proof that it is a snapshot
    #[arg(short = 't', long = "single-shot")]
    pub single_shot: bool,
    /// Measure until the writer can go on (db) or until the snapshot can be read (snap)
    #[arg(short = 'x', long = "until", value_name = "POINT", default_value = "db")]
    pub until: StopPoint,
    /// Every cut on a line of its own
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Ask for huge pages; without this the range has none
    #[arg(long)]
    pub thp: bool,
    /// What coverage-based copying did: pages copied ahead, needed, unneeded
    #[arg(long)]
    pub coverage: bool,
    /// Update as fast as memory takes it, so that the next cut finds the upkeep of the last one undone
    #[arg(long)]
    pub flat_out: bool,
    /// Cuts that are counted
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: u32,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// One mechanism or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MechanismSelection {
    /// All, in a table.
    All,
    /// This one.
    One(Mechanism),
}

impl FromStr for MechanismSelection {
    type Err = UnknownMechanism;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        if word == "all" { Ok(Self::All) } else { word.parse().map(Self::One) }
    }
}

impl MechanismSelection {
    /// The mechanisms.
    pub fn mechanisms(self) -> Vec<Mechanism> {
        match self {
            Self::All => Mechanism::ALL.to_vec(),
            Self::One(mechanism) => vec![mechanism],
        }
    }
}

/// When the clock stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StopPoint {
    /// The writer can go on.
    Db,
    /// The first byte of the first, the middle and the last page of the snapshot was read.
    Snap,
}

impl StopPoint {
    /// In a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Db => "until the writer can go on",
            Self::Snap => "until the snapshot can be read",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, Command, FromArgMatches};

    fn parse(words: &str) -> Result<MeasureArgs, clap::Error> {
        let command = MeasureArgs::augment_args(Command::new("measure"));
        MeasureArgs::from_arg_matches(&command.try_get_matches_from(words.split(' '))?)
    }

    #[test]
    fn the_line_of_the_slides_is_understood() {
        let args = parse("measure -m scoot -s 2048 -p -x db -t").unwrap();
        assert_eq!(
            (args.which, args.mib, args.until),
            (MechanismSelection::One(Mechanism::Scoot), 2048, StopPoint::Db)
        );
        assert!(args.populate && args.single_shot && !args.verbose);
        assert_eq!(parse("measure -m all").unwrap().which.mechanisms().len(), 6);
    }

    #[test]
    fn a_mechanism_that_does_not_exist_is_answered_with_those_that_do() {
        assert!(parse("measure -m spoon").unwrap_err().to_string().contains("scoot"));
        assert!(parse("measure -m all -s 0").is_err());
        assert!(parse("measure").is_err());
    }
}
