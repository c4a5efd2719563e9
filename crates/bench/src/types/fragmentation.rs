//! Part `fragmentation`: resident memory over the bytes of live data, when values of one size are deleted at random and values of
//! another size come in their place, several times.
//!
//! Relies on the same draws for all servers, and on each being looked at when its memory no longer falls. Quire, and the first peer that
//! can do that, are measured with active defragmentation, too: Debian's redis-server can't.

use std::time::Duration;

use anyhow::bail;
use quire_rng::SplitMix64;

use crate::info::ServerInfo;
use crate::memory;
use crate::process::{Server, ServerKind};
use crate::report::{BetterDirection, Figure, Report};
use crate::requests::{self, KEY_BYTES, Values};
use crate::resp::{Connection, Value};
use crate::server::setup::{Candidate, ExperimentSetup};

/// Bytes of keys and values that live when a stage begins to be measured; a small run has fewer.
const LIVE_BYTES: u64 = 512 << 20;
const FEW_LIVE_BYTES: u64 = 48 << 20;
/// Bytes of a value in each stage: every stage after the first deletes values of all sizes before it.
const SIZES: [usize; 5] = [64, 200, 40, 900, 120];
/// Of a hundred keys so many are deleted before a stage, and before memory is looked at for the last time.
const DELETED_PERCENT: u64 = 75;
/// Requests that are sent together.
const BATCH: usize = 64;
/// Memory is looked at so often, until it falls by less than a hundredth, or for so long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_OFTEN: Duration = Duration::from_millis(250);
const LOOKS: u32 = 15;
/// How often it is looked whether defragmentation has come to its end; a server that can move nothing more may never say so.
const DEFRAG_LOOKS: u32 = 30;
/// What the name of a server that defragments ends in.
const DEFRAG: &str = "activedefrag";
/// As in the tests of the peer's own: it begins early, and takes most of a processor.
const DEFRAG_SETTINGS: [&str; 5] = [
    "CONFIG SET active-defrag-threshold-lower 5",
    "CONFIG SET active-defrag-ignore-bytes 2mb",
    "CONFIG SET active-defrag-cycle-max 75",
    "CONFIG SET active-defrag-cycle-min 65",
    "CONFIG SET activedefrag yes",
];

/// Resident bytes for each byte of live data, by stage.
#[derive(Debug)]
pub struct ProgramFragmentation {
    program: String,
    ratios: Vec<(String, f64)>,
}

/// All programs, ours first, then those that defragment, and why no peer does, if so.
#[derive(Debug)]
pub struct FragmentationResults {
    programs: Vec<ProgramFragmentation>,
    no_defrag: Option<String>,
}

impl FragmentationResults {
    fn add_defragmenting(&mut self, program: &str, ratios: Stages) {
        self.programs.push(ProgramFragmentation { program: format!("{program} {DEFRAG}"), ratios });
    }
}

/// Fills and empties each program by itself.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<FragmentationResults> {
    let mut found = FragmentationResults { programs: Vec::new(), no_defrag: None };
    for (index, program) in setup.programs().iter().enumerate() {
        let ratios = measure_one(setup, index, false)?.map_err(anyhow::Error::msg)?;
        found.programs.push(ProgramFragmentation { program: program.name.clone(), ratios });
    }
    found.add_defragmenting(&setup.programs()[0].name, measure_one(setup, 0, true)?.map_err(anyhow::Error::msg)?);
    for (index, program) in setup.programs().iter().enumerate().filter(|(_, one)| one.kind == ServerKind::Redis) {
        match measure_one(setup, index, true)? {
            Ok(ratios) => {
                found.no_defrag = None;
                found.add_defragmenting(&program.name, ratios);
                break;
            }
            Err(reason) => found.no_defrag = Some(format!("{}: {reason}", program.name)),
        }
    }
    Ok(found)
}

type Stages = Vec<(String, f64)>;

/// The stages of one program, or why it can't defragment.
fn measure_one(setup: &ExperimentSetup, index: usize, defragments: bool) -> anyhow::Result<Result<Stages, Refusal>> {
    let name = &setup.programs()[index].name;
    let suffix = if defragments { "-defrag" } else { "" };
    let mut candidate = setup.start(index, &format!("fragmentation{suffix}"))?;
    if defragments && let Some(refused) = switch_on(&mut candidate.control)? {
        candidate.server.kill();
        return Ok(Err(refused));
    }
    let settled = |candidate: &mut Candidate| {
        if defragments {
            await_defrag(setup, &mut candidate.control)?;
        }
        settled_bytes(setup, &candidate.server)
    };
    let live_bytes = if setup.quick { FEW_LIVE_BYTES } else { LIVE_BYTES };
    let (mut data, mut stages) = (LiveData::new(), Vec::new());
    for (stage, size) in SIZES.iter().enumerate() {
        setup.say(&format!("fragmentation of {name}{suffix}, values of {size} bytes"));
        if stage > 0 {
            data.delete(&mut candidate.control)?;
        }
        data.fill(&mut candidate.control, *size, live_bytes)?;
        stages.push((format!("values_{size}"), settled(&mut candidate)? / data.bytes as f64));
    }
    setup.say(&format!("fragmentation of {name}{suffix}, most deleted"));
    data.delete(&mut candidate.control)?;
    stages.push(("most_deleted".to_owned(), settled(&mut candidate)? / data.bytes as f64));
    candidate.server.kill();
    Ok(Ok(stages))
}

/// What a server says that can't defragment.
type Refusal = String;

/// Switches active defragmentation on; what the server says if it can't.
fn switch_on(control: &mut Connection) -> anyhow::Result<Option<Refusal>> {
    for line in DEFRAG_SETTINGS {
        if let Value::Error(text) = control.line(line)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// How long it takes from one look to the next.
fn look_every(setup: &ExperimentSetup) -> Duration {
    if setup.quick { LOOK_OFTEN } else { LOOK_EVERY }
}

/// Waits until the server says that it moves nothing more.
fn await_defrag(setup: &ExperimentSetup, control: &mut Connection) -> anyhow::Result<()> {
    for _ in 0..DEFRAG_LOOKS {
        // It may not have begun yet.
        std::thread::sleep(look_every(setup));
        if ServerInfo::ask(control, "memory")?.number("active_defrag_running")? == 0.0 {
            break;
        }
    }
    Ok(())
}

/// The proportional set size when it no longer falls.
fn settled_bytes(setup: &ExperimentSetup, server: &Server) -> anyhow::Result<f64> {
    let every = look_every(setup);
    let mut least = memory::proportional_bytes(server.pid())? as f64;
    for _ in 0..LOOKS {
        std::thread::sleep(every);
        let now = memory::proportional_bytes(server.pid())? as f64;
        if now > least * 0.99 {
            return Ok(now.min(least));
        }
        least = now;
    }
    Ok(least)
}

/// The keys that a server has, with the bytes of their values.
struct LiveData {
    keys: Vec<(u64, u32)>,
    next_key: u64,
    bytes: u64,
    rng: SplitMix64,
}

impl LiveData {
    fn new() -> Self {
        Self { keys: Vec::new(), next_key: 0, bytes: 0, rng: SplitMix64::new(11) }
    }

    /// Sets new keys until `live_bytes` live.
    fn fill(&mut self, control: &mut Connection, size: usize, live_bytes: u64) -> anyhow::Result<()> {
        let values = Values::new(size, self.next_key);
        while self.bytes < live_bytes {
            let mut batch = Vec::new();
            for _ in 0..BATCH {
                requests::push_set(&mut batch, self.next_key, values.pick(&mut self.rng));
                self.keys.push((self.next_key, size as u32));
                self.next_key += 1;
                self.bytes += (KEY_BYTES + size) as u64;
            }
            send(control, &batch, BATCH)?;
        }
        Ok(())
    }

    /// Deletes most of the keys, drawn at random.
    fn delete(&mut self, control: &mut Connection) -> anyhow::Result<()> {
        let left = self.keys.len() as u64 * (100 - DELETED_PERCENT) / 100;
        while self.keys.len() as u64 > left {
            let (mut batch, mut count) = (Vec::new(), 0);
            while count < BATCH && self.keys.len() as u64 > left {
                let drawn = self.rng.index(self.keys.len());
                let (key, size) = self.keys.swap_remove(drawn);
                self.bytes -= (KEY_BYTES + size as usize) as u64;
                push_del(&mut batch, key);
                count += 1;
            }
            send(control, &batch, count)?;
        }
        Ok(())
    }
}

fn push_del(to: &mut Vec<u8>, key: u64) {
    let mut name = [0; KEY_BYTES];
    requests::write_key(key, &mut name);
    to.extend_from_slice(b"*2\r\n$3\r\nDEL\r\n$16\r\n");
    to.extend_from_slice(&name);
    to.extend_from_slice(b"\r\n");
}

fn send(control: &mut Connection, batch: &[u8], count: usize) -> anyhow::Result<()> {
    control.send(batch)?;
    if control.skip(count)? > 0 {
        bail!("the server refused to set or delete a key");
    }
    Ok(())
}

/// Adds the worst ratios to the peer, without defragmentation and with that of both.
pub fn figures(found: &FragmentationResults, report: &mut Report) {
    let Some((ours, others)) = found.programs.split_first() else { return };
    let (defrag, plain): (Vec<_>, Vec<_>) = found.programs.iter().partition(|one| one.program.ends_with(DEFRAG));
    for (name, programs) in [("fragmentation_vs_redis", plain), ("fragmentation_vs_redis_defrag", defrag)] {
        let figure = match programs[..] {
            [own, peer, ..] => worst_against(name, own, peer),
            _ => Figure::new(name, f64::NAN, "x", BetterDirection::Lower).note(format!(
                "not measured: no program here can: {}",
                found.no_defrag.as_deref().unwrap_or("there is none")
            )),
        };
        report.results.push(figure.goal(1.0));
    }
    for (stage, (name, ratio)) in ours.ratios.iter().enumerate() {
        let mut figure = Figure::new(format!("fragmentation_{name}"), *ratio, "x", BetterDirection::Lower);
        for other in others {
            figure = figure.peer(&other.program, other.ratios[stage].1);
        }
        report
            .info
            .push(figure.bound("keys and values alone", 1.0).note("resident bytes for each byte of keys and values"));
    }
}

/// The stage in which we hold the most in comparison.
fn worst_against(name: &str, ours: &ProgramFragmentation, peer: &ProgramFragmentation) -> Figure {
    let ratios = ours.ratios.iter().zip(&peer.ratios).map(|((stage, own), (_, other))| (stage, own / other, *other));
    let worst = ratios.max_by(|a, b| a.1.total_cmp(&b.1));
    let (stage, ratio, other) =
        worst.map_or(("nothing", f64::NAN, f64::NAN), |(stage, ratio, other)| (stage.as_str(), ratio, other));
    let of_stage = |of: &ProgramFragmentation| {
        of.ratios.iter().find(|(known, _)| known == stage).map_or(f64::NAN, |(_, ratio)| *ratio)
    };
    Figure::new(name, ratio, "x", BetterDirection::Lower)
        .peer(&ours.program, of_stage(ours))
        .peer(&peer.program, of_stage(peer))
        .bound("keys and values alone", 1.0 / other)
        .note(format!("the worst of {} stages: {stage}", ours.ratios.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_server::NullServer;
    use serde_json::Map;

    #[test]
    fn the_same_keys_live_and_die_in_every_server() {
        let server = NullServer::start(b"+OK\r\n").unwrap();
        let play = || {
            let mut control = Connection::open(server.port()).unwrap();
            let mut data = LiveData::new();
            data.fill(&mut control, 40, 100_000).unwrap();
            data.delete(&mut control).unwrap();
            assert!(data.bytes < 27_000 && data.bytes > 23_000, "{}", data.bytes);
            data.fill(&mut control, 200, 100_000).unwrap();
            assert_eq!(data.bytes, data.keys.iter().map(|(_, size)| 16 + u64::from(*size)).sum::<u64>());
            data.keys
        };
        assert_eq!(play(), play());
    }

    fn program(name: &str, ratios: [f64; 2]) -> ProgramFragmentation {
        let stages = ["values_64", "most_deleted"].iter().zip(ratios);
        ProgramFragmentation {
            program: name.into(),
            ratios: stages.map(|(stage, ratio)| ((*stage).to_owned(), ratio)).collect(),
        }
    }

    #[test]
    fn the_worst_stage_counts_and_a_peer_that_can_not_defragment_is_told() {
        let mut found = FragmentationResults {
            programs: vec![
                program("quire", [1.5, 3.0]),
                program("redis-server", [3.0, 4.0]),
                program("quire activedefrag", [1.5, 1.8]),
            ],
            no_defrag: Some("redis-server: DISABLED".into()),
        };
        let of = |found: &FragmentationResults| {
            let mut report = Report::new("types", Map::new());
            figures(found, &mut report);
            report.results
        };
        let told = of(&found);
        assert_eq!((told[0].value, told[0].reached()), (0.75, Some(true)));
        assert!(told[0].note.ends_with("most_deleted") && told[1].value.is_nan(), "{told:?}");
        assert!(told[1].note.contains("redis-server: DISABLED"));
        found.programs.push(program("redis-server activedefrag", [2.0, 1.5]));
        let told = of(&found);
        assert_eq!((told[0].value, told[1].value, told[1].reached()), (0.75, 1.2, Some(false)));
        assert!(told[1].note.ends_with("most_deleted"), "{told:?}");
    }
}
