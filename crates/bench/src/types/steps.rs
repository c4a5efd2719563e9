//! Part `steps`: how long a small command waits while a value of millions of elements is created, saved, restored, copied, freed and
//! expires: `quire serve` does each of these in short steps.
//!
//! Relies on one server being loaded at a time. What the machine itself makes a client wait is measured in the same run: by the same
//! client beside an idle server, and beside one that does nothing with what a second client sends.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use super::memory_costs::{ELEMENT_TYPES, ElementType, send_all};
use crate::info::ServerInfo;
use crate::load::small_commands::{Waits, beside_small_commands, longest_pause_ms};
use crate::null_server::NullServer;
use crate::process::{Server, background_save};
use crate::resp::{Connection, Value};
use crate::server::restart::wait_restored;
use crate::server::setup::{Candidate, ExperimentSetup};

/// Elements of a value, and of one of a small run.
const ELEMENTS: u64 = 10_000_000;
const FEW_ELEMENTS: u64 = 100_000;
/// Elements that are sent to the server that does nothing.
const MOST_TO_NULL: u64 = 1_000_000;
/// How long a server is idle, and the empty loop runs.
const IDLE: Duration = Duration::from_secs(3);
const SHORT_IDLE: Duration = Duration::from_millis(300);
/// How often a server is asked whether it is done, and for how long at most.
const POLL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(300);

/// What is done with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Nothing.
    Idle,
    /// Commands that each add an element, pipelined.
    Created,
    /// BGSAVE.
    Saved,
    /// A start on the image, from the first reply on, and a first command on the value.
    Restarted,
    /// COPY.
    Copied,
    /// UNLINK of the copy, until its memory is free.
    Unlinked,
    /// DEL of another copy, until its memory is free.
    Deleted,
    /// A further copy whose time has come, until its memory is free.
    Expired,
}

impl Operation {
    /// All, in the order in which they are done.
    pub const ALL: [Self; 8] = [
        Self::Idle,
        Self::Created,
        Self::Saved,
        Self::Restarted,
        Self::Copied,
        Self::Unlinked,
        Self::Deleted,
        Self::Expired,
    ];

    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Created => "created",
            Self::Saved => "saved",
            Self::Restarted => "restarted",
            Self::Copied => "copied",
            Self::Unlinked => "unlinked",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
        }
    }
}

/// What clients of one server met during one operation, over all rounds.
#[derive(Debug, Clone)]
pub struct OperationWaits {
    /// The server.
    pub program: String,
    /// How long small commands waited.
    pub waits: Waits,
    /// How long the operation took, the longest of the rounds.
    pub took: Duration,
}

/// One operation on values of one type.
#[derive(Debug)]
pub struct StepRow {
    /// The type.
    pub type_name: &'static str,
    /// The operation.
    pub operation: Operation,
    /// Of each program, ours first.
    pub found: Vec<OperationWaits>,
}

/// All operations on all types.
#[derive(Debug)]
pub struct StepResults {
    /// Elements of a value.
    pub elements: u64,
    /// How often all was done.
    pub rounds: usize,
    /// By type and operation.
    pub rows: Vec<StepRow>,
    /// Small commands of a client beside another one's pipelines, where the server does nothing with them.
    pub null: Waits,
    /// The longest time that a loop which does nothing was without a processor.
    pub empty_loop_ms: f64,
}

/// Does everything on servers of this part's own, one at a time.
pub fn measure(setup: &ExperimentSetup, rounds: usize) -> anyhow::Result<StepResults> {
    let elements = if setup.quick { FEW_ELEMENTS } else { ELEMENTS };
    setup.say("small commands beside a server that does nothing");
    let mut found = StepResults {
        elements,
        rounds,
        rows: Vec::new(),
        null: beside_null_server(elements.min(MOST_TO_NULL))?,
        empty_loop_ms: longest_pause_ms(idle_time(setup)),
    };
    let programs = setup.programs().len();
    for round in 0..rounds {
        for (number, kind) in ELEMENT_TYPES.iter().enumerate() {
            for turn in 0..programs {
                // Every other one goes backwards, so that no server is always first.
                let index = if (round + number) % 2 == 0 { turn } else { programs - 1 - turn };
                for (operation, waits) in measure_value(setup, index, kind, elements)? {
                    found.add(kind.name, operation, waits, index == 0);
                }
            }
        }
    }
    Ok(found)
}

impl StepResults {
    /// Adds what a round found; ours go before the others.
    fn add(&mut self, type_name: &'static str, operation: Operation, found: OperationWaits, is_ours: bool) {
        let is_it = |row: &StepRow| row.type_name == type_name && row.operation == operation;
        let place = self.rows.iter().position(is_it).unwrap_or_else(|| {
            self.rows.push(StepRow { type_name, operation, found: Vec::new() });
            self.rows.len() - 1
        });
        let of = &mut self.rows[place].found;
        match of.iter_mut().find(|known| known.program == found.program) {
            Some(known) => {
                known.waits.merge(&found.waits);
                known.took = known.took.max(found.took);
            }
            None if is_ours => of.insert(0, found),
            None => of.push(found),
        }
    }
}

fn idle_time(setup: &ExperimentSetup) -> Duration {
    if setup.quick { SHORT_IDLE } else { IDLE }
}

fn beside_null_server(elements: u64) -> anyhow::Result<Waits> {
    let server = NullServer::start(b"+OK\r\n")?;
    let mut control = Connection::open(server.port())?;
    // Of a type whose commands hold no asterisk, by which that server counts them.
    let kind = &ELEMENT_TYPES[0];
    let (.., waits) = beside_small_commands(server.port(), || create(&mut control, kind, elements))?;
    Ok(waits)
}

/// All operations on a value in one program.
fn measure_value(
    setup: &ExperimentSetup,
    index: usize,
    kind: &ElementType,
    elements: u64,
) -> anyhow::Result<Vec<(Operation, OperationWaits)>> {
    let mut candidate = setup.start(index, &format!("steps-{}", kind.name))?;
    let program = candidate.server.name().to_owned();
    let mut found = Vec::new();
    for operation in Operation::ALL {
        setup.say(&format!("a {} of {elements} elements, {}: {program}", kind.name, operation.name()));
        match operation {
            Operation::Restarted => restart(&mut candidate)?,
            Operation::Deleted | Operation::Expired => copy(&mut candidate.control)?,
            _ => {}
        }
        setup.settle();
        let port = candidate.server.port();
        let work = || match operation {
            Operation::Idle => {
                std::thread::sleep(idle_time(setup));
                Ok(())
            }
            Operation::Created => create(&mut candidate.control, kind, elements),
            Operation::Restarted => first_command(&mut candidate, kind),
            other => change(&mut candidate.control, other),
        };
        let ((), took, waits) = beside_small_commands(port, work)?;
        found.push((operation, OperationWaits { program: program.clone(), waits, took }));
    }
    let dir = candidate.server.dir().to_owned();
    candidate.server.kill();
    std::fs::remove_dir_all(dir)?;
    Ok(found)
}

fn create(control: &mut Connection, kind: &ElementType, elements: u64) -> anyhow::Result<()> {
    send_all(control, (0..elements).map(|number| (kind.add)("large", number)))
}

fn change(control: &mut Connection, operation: Operation) -> anyhow::Result<()> {
    match operation {
        Operation::Saved => background_save(control, POLL).map(drop),
        Operation::Copied => copy(control),
        Operation::Unlinked => succeed(control, "UNLINK other").and_then(|()| wait_freed(control)),
        Operation::Deleted => succeed(control, "DEL other").and_then(|()| wait_freed(control)),
        Operation::Expired => {
            succeed(control, "PEXPIRE other 1")?;
            // EXISTS would delete it itself; the value and the small key are left.
            wait_until("the copy's time has come", || Ok(control.line("DBSIZE")? == Value::Int(2)))?;
            wait_freed(control)
        }
        Operation::Idle | Operation::Created | Operation::Restarted => bail!("{operation:?} is done elsewhere"),
    }
}

fn copy(control: &mut Connection) -> anyhow::Result<()> {
    succeed(control, "COPY large other")
}

/// Sends a command whose reply must be 1.
fn succeed(control: &mut Connection, line: &str) -> anyhow::Result<()> {
    let reply = control.line(line)?;
    ensure!(reply == Value::Int(1), "{line} was answered with {reply:?}");
    Ok(())
}

/// Waits until the server has freed what it frees in the background.
fn wait_freed(control: &mut Connection) -> anyhow::Result<()> {
    wait_until("the memory is free", || {
        Ok(ServerInfo::ask(control, "memory")?.number("lazyfree_pending_objects")? == 0.0)
    })
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_so()? {
        ensure!(began.elapsed() < PATIENCE, "after {} s it is not so: {what}", PATIENCE.as_secs());
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Ends the server and starts it on its image, until it replies.
fn restart(candidate: &mut Candidate) -> anyhow::Result<()> {
    let (program, port) = (candidate.server.program().clone(), candidate.server.port());
    let dir = candidate.server.dir().to_owned();
    candidate.server.end();
    candidate.server = Server::start(&program, port, &dir)?;
    candidate.control = candidate.server.ready()?;
    Ok(())
}

/// A read of the value, and what is left of the restore.
fn first_command(candidate: &mut Candidate, kind: &ElementType) -> anyhow::Result<()> {
    let reply = candidate.control.line(kind.read)?;
    ensure!(!matches!(reply, Value::Error(_) | Value::Bulk(None)), "{} was answered with {reply:?}", kind.read);
    wait_restored(&mut candidate.control, candidate.server.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(program: &str) -> OperationWaits {
        let server = NullServer::start(b"+OK\r\n").unwrap();
        let ((), took, waits) = beside_small_commands(server.port(), || Ok(())).unwrap();
        OperationWaits { program: program.into(), waits, took }
    }

    #[test]
    fn rounds_are_taken_together_by_type_and_operation_with_ours_first() {
        let mut found =
            StepResults { elements: 1, rounds: 2, rows: Vec::new(), null: waits("null").waits, empty_loop_ms: 0.0 };
        let first = waits("quire");
        found.add("set", Operation::Saved, waits("redis-server"), false);
        found.add("set", Operation::Saved, first.clone(), true);
        found.add("set", Operation::Copied, waits("quire"), true);
        let second = waits("quire");
        found.add("set", Operation::Saved, second.clone(), true);
        assert_eq!(found.rows.len(), 2);
        let of = &found.rows[0].found;
        assert_eq!((of[0].program.as_str(), of[1].program.as_str()), ("quire", "redis-server"));
        assert_eq!(of[0].waits.commands(), first.waits.commands() + second.waits.commands());
        assert_eq!(of[0].took, first.took.max(second.took));
    }

    #[test]
    fn what_the_server_does_not_do_is_an_error() {
        let server = NullServer::start(b":0\r\n").unwrap();
        let mut control = Connection::open(server.port()).unwrap();
        assert!(copy(&mut control).unwrap_err().to_string().contains("COPY large other was answered with Int(0)"));
        assert!(change(&mut control, Operation::Idle).is_err());
    }
}
