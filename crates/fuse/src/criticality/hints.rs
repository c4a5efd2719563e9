//! Processes and programs that an operator or a program has called critical while mounted.
//!
//! Relies on the time when a process was started, so that the hint ends with the process and not with its number.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::criticality::rules::glob_matches;

/// Most hints of either kind.
const MOST: usize = 4096;

/// What an operator or a program says. In words: `4711`, `comm:post*`, and with a minus sign before it to take that back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CriticalityHint {
    /// This process is critical.
    Process(u32),
    /// Processes with such a name are.
    Name(String),
    /// This process is not, any more.
    ForgetProcess(u32),
    /// Processes with such a name are not, any more.
    ForgetName(String),
}

impl FromStr for CriticalityHint {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let words = words.trim();
        let (forget, rest) = words.strip_prefix('-').map_or((false, words), |rest| (true, rest));
        if let Some(name) = rest.strip_prefix("comm:").filter(|name| !name.is_empty()) {
            let name = name.to_owned();
            return Ok(if forget { Self::ForgetName(name) } else { Self::Name(name) });
        }
        match rest.parse() {
            Ok(process) if process > 0 => {
                Ok(if forget { Self::ForgetProcess(process) } else { Self::Process(process) })
            }
            _ => Err(format!("{words:?} is no hint: write PID, comm:PATTERN, -PID or -comm:PATTERN")),
        }
    }
}

impl std::fmt::Display for CriticalityHint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(process) => write!(out, "{process}"),
            Self::Name(name) => write!(out, "comm:{name}"),
            Self::ForgetProcess(process) => write!(out, "-{process}"),
            Self::ForgetName(name) => write!(out, "-comm:{name}"),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// With when they were started.
    processes: HashMap<u32, u64>,
    names: Vec<String>,
}

/// The hints in force.
#[derive(Debug, Default)]
pub struct CriticalityHints {
    state: Mutex<State>,
}

impl CriticalityHints {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a hint. One about a process that is not there is of no effect.
    pub fn take(&self, hint: &CriticalityHint) {
        let mut state = self.state();
        match hint {
            CriticalityHint::Process(process) => {
                if state.processes.len() >= MOST {
                    state.processes.retain(|process, start| alive(*process, *start));
                }
                if let Some(identity) = quire_sys::task::identity(*process).filter(|_| state.processes.len() < MOST) {
                    state.processes.insert(*process, identity.start_ticks);
                }
            }
            CriticalityHint::Name(name) if state.names.len() < MOST && !state.names.contains(name) => {
                state.names.push(name.clone());
            }
            CriticalityHint::Name(_) => {}
            CriticalityHint::ForgetProcess(process) => drop(state.processes.remove(process)),
            CriticalityHint::ForgetName(name) => state.names.retain(|known| known != name),
        }
    }

    /// Whether a hint names this process.
    pub fn name(&self, process: u32, start_ticks: u64, comm: &str) -> bool {
        let state = self.state();
        state.processes.get(&process) == Some(&start_ticks) || state.names.iter().any(|name| glob_matches(name, comm))
    }

    /// In words.
    pub fn words(&self) -> Vec<String> {
        let mut state = self.state();
        state.processes.retain(|process, start| alive(*process, *start));
        let mut processes: Vec<u32> = state.processes.keys().copied().collect();
        processes.sort_unstable();
        let processes = processes.into_iter().map(|process| CriticalityHint::Process(process).to_string());
        processes.chain(state.names.iter().map(|name| CriticalityHint::Name(name.clone()).to_string())).collect()
    }
}

fn alive(process: u32, start_ticks: u64) -> bool {
    quire_sys::task::identity(process).is_some_and(|identity| identity.start_ticks == start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_read_as_it_is_written() {
        for words in ["12", "-12", "comm:post*", "-comm:post*"] {
            assert_eq!(words.parse::<CriticalityHint>().unwrap().to_string(), words);
        }
        for words in ["", "-", "0", "comm:", "x"] {
            assert!(words.parse::<CriticalityHint>().unwrap_err().contains("PATTERN"), "{words}");
        }
    }

    #[test]
    fn a_hint_means_one_process_and_not_the_next_with_its_number() {
        let hints = CriticalityHints::default();
        let own = std::process::id();
        let start = quire_sys::task::identity(own).unwrap().start_ticks;
        hints.take(&CriticalityHint::Process(own));
        assert!(hints.name(own, start, "x") && !hints.name(own, start + 1, "x"));
        hints.take(&CriticalityHint::Name("re*".into()));
        assert!(hints.name(1, 1, "redis-server"));
        assert_eq!(hints.words(), [own.to_string(), "comm:re*".to_owned()]);
    }
}
