//! The configurations of the paper's figures, for the mechanisms that copy by coverage, and fork beside them.
//!
//! Relies on nothing but names.

use quire_snapshot::{Mechanism, OriginOptions, Precopy};

use crate::measure::candidate::PageKind;

/// A mechanism and how it is told to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Which regions are copied whole.
    pub precopy: Precopy,
    /// What the range is made of.
    pub kind: PageKind,
}

/// The paper's CoW: fork over pages of 4 KiB.
pub const FORK: Configuration =
    Configuration { mechanism: Mechanism::Fork, precopy: Precopy::None, kind: PageKind::Small };
/// The paper's CoW-THP.
pub const FORK_THP: Configuration = Configuration { kind: PageKind::Huge, ..FORK };

const THRESHOLDS: [u8; 6] = [70, 75, 80, 85, 90, 95];

impl Configuration {
    const fn ours(mechanism: Mechanism, precopy: Precopy) -> Self {
        Self { mechanism, precopy, kind: PageKind::Huge }
    }

    /// As the paper names them, after the mechanism.
    pub fn name(self) -> String {
        match (self.mechanism, self.precopy) {
            (Mechanism::Fork, _) if self.kind == PageKind::Huge => "fork_thp".into(),
            (Mechanism::Fork, _) => "fork".into(),
            (mechanism, Precopy::None) => format!("{mechanism}_none"),
            (mechanism, Precopy::Threshold(percent)) => format!("{mechanism}_{percent}"),
            (mechanism, Precopy::All) => format!("{mechanism}_all"),
            (mechanism, Precopy::Adaptive) => format!("{mechanism}_adaptive"),
        }
    }

    /// Whether it is one of the peers.
    pub fn is_fork(self) -> bool {
        self.mechanism == Mechanism::Fork
    }

    /// What the mechanism is told for a range of `bytes`: it keeps no more memory warm than a small part of that.
    pub fn options(self, bytes: usize) -> OriginOptions {
        let options = OriginOptions::default();
        OriginOptions { precopy: self.precopy, keep_bytes: options.keep_bytes.min(bytes / 32), ..options }
    }

    /// Ours: all of them, or the few that a quick run and the largest size have time for.
    pub fn ours_all(only_central: bool) -> Vec<Self> {
        let thresholds = if only_central { &[80][..] } else { &THRESHOLDS };
        let mut all = Vec::new();
        for mechanism in [Mechanism::Barrier, Mechanism::Uffd] {
            all.push(Self::ours(mechanism, Precopy::None));
            all.extend(thresholds.iter().map(|&percent| Self::ours(mechanism, Precopy::Threshold(percent))));
            if !only_central || mechanism == Mechanism::Uffd {
                all.push(Self::ours(mechanism, Precopy::All));
            }
            all.push(Self::ours(mechanism, Precopy::Adaptive));
        }
        all.push(Self::ours(Mechanism::Scoot, Precopy::None));
        if !only_central {
            all.push(Self::ours(Mechanism::Scoot, Precopy::Threshold(80)));
        }
        all.push(Self::ours(Mechanism::Scoot, Precopy::Adaptive));
        all
    }

    /// The names of all, forks included.
    pub fn names() -> Vec<String> {
        [FORK, FORK_THP].into_iter().chain(Self::ours_all(false)).map(Self::name).collect()
    }

    /// The order of trials: ours, with both forks before, between and after them; the few with forks before and after.
    pub fn schedule(only_central: bool) -> Vec<Self> {
        let ours = Self::ours_all(only_central);
        let (first, second) = ours.split_at(ours.len() / 2);
        let forks = [FORK, FORK_THP];
        let between = if only_central { &[][..] } else { &forks };
        [&forks, first, between, second, &forks].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_the_papers_after_the_mechanism() {
        let names: Vec<String> = Configuration::ours_all(false).into_iter().map(Configuration::name).collect();
        for name in ["barrier_none", "barrier_70", "barrier_95", "uffd_all", "uffd_adaptive", "scoot_adaptive"] {
            assert!(names.iter().any(|other| other == name), "{name} of {names:?}");
        }
        assert_eq!((FORK.name(), FORK_THP.name()), ("fork".into(), "fork_thp".into()));
    }

    #[test]
    fn forks_are_tried_first_in_between_and_last() {
        let schedule = Configuration::schedule(false);
        let forks: Vec<usize> = (0..schedule.len()).filter(|&index| schedule[index] == FORK).collect();
        assert_eq!((forks.len(), forks[0], forks[2]), (3, 0, schedule.len() - 2));
    }
}
