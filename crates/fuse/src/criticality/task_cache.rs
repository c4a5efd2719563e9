//! What was found out about threads that make requests, and for how long it holds.
//!
//! Relies on numbers of threads not being given away within [`TRUSTED`]; after that the time when the thread was started is
//! compared. Titles change, so rules are asked again after [`RULED`].

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quire_sys::task;

use crate::criticality::rules::{CriticalityDecision, CriticalityRules, TaskAttributes, TaskField};

/// How long a number is taken for the same thread without asking.
const TRUSTED: Duration = Duration::from_millis(100);
/// How long what the rules said holds.
const RULED: Duration = Duration::from_secs(1);
/// Most threads remembered.
const MOST: usize = 4096;

/// What is known of a thread.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Its process.
    pub process: u32,
    /// When that was started.
    pub start_ticks: u64,
    /// Name of the process.
    pub comm: String,
    /// What the rules say.
    pub by_rule: Option<CriticalityDecision>,
}

struct CachedTask {
    facts: TaskInfo,
    thread_start_ticks: u64,
    checked: Instant,
    ruled: Instant,
}

/// What is known of threads, by number.
#[derive(Default)]
pub struct TaskCache {
    threads: Mutex<HashMap<u32, CachedTask>>,
}

impl TaskCache {
    fn threads(&self) -> MutexGuard<'_, HashMap<u32, CachedTask>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a thread, found out if need be. `None` if it is gone.
    pub fn facts(&self, thread: u32, rules: &CriticalityRules) -> Option<TaskInfo> {
        if let Some(known) = self.threads().get(&thread)
            && known.checked.elapsed() < TRUSTED
        {
            return Some(known.facts.clone());
        }
        let identity = task::identity(thread)?;
        let now = Instant::now();
        if let Some(known) = self.threads().get_mut(&thread)
            && known.thread_start_ticks == identity.start_ticks
            && known.ruled.elapsed() < RULED
        {
            known.checked = now;
            return Some(known.facts.clone());
        }
        let facts = find(thread, &identity, rules)?;
        let mut threads = self.threads();
        if threads.len() >= MOST {
            threads.retain(|_, known| known.checked.elapsed() < RULED);
        }
        if threads.len() >= MOST {
            threads.clear();
        }
        let thread_start_ticks = identity.start_ticks;
        threads.insert(thread, CachedTask { facts: facts.clone(), thread_start_ticks, checked: now, ruled: now });
        Some(facts)
    }

    /// What was last known of a thread, without asking.
    pub fn remembered(&self, thread: u32) -> Option<TaskInfo> {
        self.threads().get(&thread).map(|known| known.facts.clone())
    }
}

fn find(thread: u32, identity: &task::TaskIdentity, rules: &CriticalityRules) -> Option<TaskInfo> {
    let process = task::process_of(thread)?;
    let leader = if process == thread { identity.clone() } else { task::identity(process)? };
    let (thread, comm) = (&identity.name, &leader.name);
    let mut task = ProcAttributes { process, parent: leader.parent, thread, comm, texts: HashMap::new() };
    let by_rule = rules.verdict(&mut task);
    Some(TaskInfo { process, start_ticks: leader.start_ticks, comm: leader.name, by_rule })
}

/// Asks the system for what a rule looks at, when it does, and once.
struct ProcAttributes<'a> {
    process: u32,
    parent: u32,
    thread: &'a str,
    comm: &'a str,
    texts: HashMap<TaskField, String>,
}

impl TaskAttributes for ProcAttributes<'_> {
    fn text(&mut self, field: TaskField) -> &str {
        let process = self.process;
        self.texts.entry(field).or_insert_with(|| match field {
            TaskField::Comm => self.comm.to_owned(),
            TaskField::Thread => self.thread.to_owned(),
            TaskField::Title => task::title_of(process).unwrap_or_default(),
            TaskField::Exe => task::program_of(process).map(|path| path.display().to_string()).unwrap_or_default(),
            TaskField::Uid => task::user_of(process).map(|uid| uid.to_string()).unwrap_or_default(),
        })
    }

    fn is_main(&mut self) -> bool {
        let program = task::program_of(self.process);
        program.is_none() || program != task::program_of(self.parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_process() {
        let own = std::process::id();
        let rules = CriticalityRules::parse("critical thread=looked-at").unwrap();
        let known = TaskCache::default();
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("looked-at".into()).spawn(move || {
            send.send(quire_sys::thread::current().raw().cast_unsigned()).unwrap();
            let _ = ended.recv();
        });
        let number = receive.recv().unwrap();
        let facts = known.facts(number, &rules).unwrap();
        assert_eq!((facts.process, facts.by_rule), (own, Some(CriticalityDecision::Critical)));
        assert_eq!(known.facts(own, &rules).unwrap().by_rule, None);
        assert!(known.remembered(number).is_some() && known.facts(u32::MAX >> 1, &rules).is_none());
        drop(end);
        thread.unwrap().join().unwrap();
    }
}
