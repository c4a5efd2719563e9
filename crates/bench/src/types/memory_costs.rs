//! Part `memory`: bytes that an element costs, in many small values and in a few large ones, by the growth of the process.
//!
//! Relies on fresh servers, each filled by itself.

use anyhow::ensure;

use super::{of_peer, summary};
use crate::memory;
use crate::report::{BetterDirection, Figure, Report};
use crate::requests;
use crate::resp::Connection;
use crate::server::setup::ExperimentSetup;

/// Commands that are sent together.
const BATCH: usize = 256;
/// Elements of a shape; a small run has fewer. A process grows by huge pages of 2 MiB, which are 0.4 bytes for each of so many.
const ELEMENTS: u64 = 5_000_000;
const FEW_ELEMENTS: u64 = 100_000;
/// Elements of a small value; a large one has a quarter of all.
const SMALL: u64 = 16;

/// A type: how an element is added, and read.
pub struct ElementType {
    /// Its name.
    pub name: &'static str,
    /// The command that adds element `n` to the value at a key.
    pub add: fn(key: &str, n: u64) -> Vec<String>,
    /// A command that reads an element of the value at the key `large`.
    pub read: &'static str,
}

fn command(words: &[&str], last: &[String]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(last.iter().cloned()).collect()
}

/// All types that have elements.
pub const ELEMENT_TYPES: [ElementType; 5] = [
    ElementType {
        name: "list",
        add: |key, n| command(&["RPUSH", key], &[format!("element:{n:08}")]),
        read: "LINDEX large -1",
    },
    ElementType {
        name: "set",
        add: |key, n| command(&["SADD", key], &[format!("member:{n:08}")]),
        read: "SISMEMBER large member:00000007",
    },
    ElementType {
        name: "zset",
        add: |key, n| command(&["ZADD", key], &[n.to_string(), format!("member:{n:08}")]),
        read: "ZSCORE large member:00000007",
    },
    ElementType {
        name: "hash",
        add: |key, n| command(&["HSET", key], &[format!("field:{n:08}"), format!("value:{n:08}")]),
        read: "HGET large field:00000007",
    },
    ElementType {
        name: "stream",
        add: |key, n| command(&["XADD", key, "*", "field"], &[format!("value:{n:08}")]),
        read: "XREVRANGE large + - COUNT 1",
    },
];

/// Bytes an element of each program, ours first, by shape.
pub type MemoryResults = Vec<(String, Vec<(String, f64)>)>;

/// Fills each program by itself.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<MemoryResults> {
    let count = if setup.quick { FEW_ELEMENTS } else { ELEMENTS };
    let mut found = Vec::new();
    for kind in &ELEMENT_TYPES {
        for (size, elements) in [("small", SMALL), ("large", count / 4)] {
            let shape = format!("{}_{size}", kind.name);
            let mut of = Vec::new();
            for (index, program) in setup.programs().iter().enumerate() {
                setup.say(&format!("memory of {shape}: {}", program.name));
                let mut candidate = setup.start(index, &format!("memory-{shape}"))?;
                let before = memory::proportional_bytes(candidate.server.pid())?;
                let commands = (0..count).map(|n| (kind.add)(&format!("key:{:08}", n / elements), n % elements));
                send_all(&mut candidate.control, commands)?;
                let after = memory::proportional_bytes(candidate.server.pid())?;
                of.push((program.name.clone(), after.saturating_sub(before) as f64 / count as f64));
                candidate.server.kill();
            }
            found.push((shape, of));
        }
    }
    Ok(found)
}

/// Sends commands in batches; none may be refused.
pub fn send_all(control: &mut Connection, commands: impl Iterator<Item = Vec<String>>) -> anyhow::Result<()> {
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let (mut batch, mut count) = (Vec::new(), 0);
        for words in commands.by_ref().take(BATCH) {
            requests::push_command(&mut batch, &words);
            count += 1;
        }
        control.send(&batch)?;
        ensure!(control.skip(count)? == 0, "the server refused a command that fills it");
    }
    Ok(())
}

/// Adds the ratios of bytes an element.
pub fn figures(found: &MemoryResults, report: &mut Report) {
    let ratio = |of: &[(String, f64)]| of[0].1 / of_peer(of);
    let ratios: Vec<(String, f64)> = found.iter().map(|(shape, of)| (shape.clone(), ratio(of))).collect();
    let [mean, worst] = summary("types_memory", BetterDirection::Lower, &ratios);
    report.results.push(mean.goal(0.75));
    report.results.push(worst.goal(1.0));
    for (shape, of) in found {
        let mut figure = Figure::new(format!("{shape}_memory_ratio"), ratio(of), "x", BetterDirection::Lower);
        for (name, bytes) in of {
            figure = figure.peer(name, *bytes);
        }
        report.info.push(figure.note("bytes an element by growth of the set size"));
    }
}
