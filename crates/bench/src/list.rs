//! The experiments that there are.
//!
//! Relies on nothing but them. It is the only list: the commands of `quire bench`, `quire bench list` and the documents of
//! results are made from it.

use clap::{ArgMatches, Command};

use crate::experiment::{self, Experiment};

/// An entry of the list.
#[derive(Debug)]
pub struct ExperimentEntry {
    /// The experiment's name.
    pub name: &'static str,
    /// What it sets beside what.
    pub about: &'static str,
    /// Its command, with its own options.
    pub command: fn() -> Command,
    /// Runs it, prints its table and writes what was asked for.
    pub run: fn(&ArgMatches) -> anyhow::Result<()>,
}

/// All experiments.
pub const EXPERIMENTS: &[ExperimentEntry] = &[
    entry::<crate::server::ServerArgs>(),
    entry::<crate::types::TypesArgs>(),
    entry::<crate::forkers::ForkersArgs>(),
    entry::<crate::snapshot::SnapshotArgs>(),
    entry::<crate::ccow::CcowArgs>(),
    entry::<crate::fastmap::FastmapArgs>(),
    entry::<crate::wcache::WcacheArgs>(),
    entry::<crate::checkpoint::CheckpointArgs>(),
    entry::<crate::clone::CloneArgs>(),
    entry::<crate::dbio::DbioArgs>(),
    entry::<crate::zread::ZreadArgs>(),
];

const fn entry<E: Experiment>() -> ExperimentEntry {
    ExperimentEntry { name: E::NAME, about: E::ABOUT, command: experiment::command::<E>, run: experiment::run::<E> }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_s_help_has_its_own_options_and_no_other_s() {
        let help = |name: &str| {
            let entry = EXPERIMENTS.iter().find(|entry| entry.name == name).unwrap();
            (entry.command)().render_long_help().to_string()
        };
        for (name, own, others) in [
            ("server", ["--valkey", "--rate", "--plot"], ["--skews", "--warehouses", "--policies"]),
            ("fastmap", ["--sizes", "--parts", "--plot"], ["--keys", "--warehouses", "--rate"]),
            ("forkers", ["--keys", "--value-bytes", "--port"], ["--plot", "--skews", "--parts"]),
            ("ccow", ["--skews", "--sizes", "--rounds"], ["--keys", "--port", "--valkey"]),
            ("wcache", ["--policies", "--terminals", "--slow-iops"], ["--skews", "--rate", "--valkey"]),
            ("snapshot", ["--sizes", "--parts", "--quick"], ["--plot", "--keys", "--port"]),
            ("clone", ["--keys", "--seconds", "--rate"], ["--plot", "--mib", "--valkey"]),
            ("dbio", ["--pools", "--values", "--plot"], ["--keys", "--sizes", "--rate"]),
            ("zread", ["--parts", "--file", "--plot"], ["--keys", "--skews", "--rate"]),
            ("checkpoint", ["--mib", "--value-bytes", "--plot"], ["--keys", "--skews", "--valkey"]),
        ] {
            let help = help(name);
            assert!(own.iter().all(|option| help.contains(option)), "{name}: {help}");
            assert!(
                EXPERIMENTS.iter().all(|other| other.name == name || !help.contains(&format!("({}", other.name))),
                "{name}: {help}"
            );
            assert!(!others.iter().any(|option| help.contains(option)), "{name}: {help}");
        }
    }

    /// What a small run of an experiment cannot tell.
    fn beyond<E: Experiment>() -> Vec<&'static str> {
        crate::experiment::tests::parse::<E>("--quick").beyond_quick().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_document_of_results_lists_what_a_small_run_leaves_out() {
        let document = include_str!("../../../docs/results/README.md");
        let list = document.split("## What a quick run leaves out").nth(1).unwrap().split("\n## ").next().unwrap();
        for (experiment, names) in [
            ("server", beyond::<crate::server::ServerArgs>()),
            ("types", beyond::<crate::types::TypesArgs>()),
            ("forkers", beyond::<crate::forkers::ForkersArgs>()),
            ("snapshot", beyond::<crate::snapshot::SnapshotArgs>()),
            ("ccow", beyond::<crate::ccow::CcowArgs>()),
            ("fastmap", beyond::<crate::fastmap::FastmapArgs>()),
            ("wcache", beyond::<crate::wcache::WcacheArgs>()),
            ("checkpoint", beyond::<crate::checkpoint::CheckpointArgs>()),
            ("clone", beyond::<crate::clone::CloneArgs>()),
            ("dbio", beyond::<crate::dbio::DbioArgs>()),
            ("zread", beyond::<crate::zread::ZreadArgs>()),
        ] {
            let row = list.lines().find(|line| line.starts_with(&format!("| `{experiment}` |"))).unwrap();
            for name in names {
                assert!(row.contains(&format!("`{name}")), "{experiment}: {name} is not in {row}");
            }
        }
    }

    #[test]
    fn every_experiment_is_defined_soundly_and_named_once() {
        for (index, entry) in EXPERIMENTS.iter().enumerate() {
            (entry.command)().debug_assert();
            assert!(EXPERIMENTS[..index].iter().all(|other| other.name != entry.name));
            assert!(!entry.about.is_empty() && entry.about.len() < 110, "{}", entry.about);
        }
    }

    #[test]
    fn an_experiment_that_draws_nothing_refuses_to_plot() {
        let matches =
            experiment::command::<crate::snapshot::SnapshotArgs>().get_matches_from(["snapshot", "--plot", "x"]);
        assert!(
            experiment::run::<crate::snapshot::SnapshotArgs>(&matches)
                .unwrap_err()
                .to_string()
                .contains("leave --plot out")
        );
    }

    #[test]
    fn an_unknown_part_is_refused_with_those_that_there_are() {
        for (name, known) in
            [("server", "restart"), ("fastmap", "contention"), ("wcache", "mount"), ("snapshot", "uffd")]
        {
            let entry = EXPERIMENTS.iter().find(|entry| entry.name == name).unwrap();
            let refused = (entry.command)().try_get_matches_from([name, "--parts", "no-such-part"]).unwrap_err();
            assert!(refused.to_string().contains(known), "{refused}");
        }
    }
}
