//! Part `sets`: SADD, SISMEMBER and SINTER by redis-benchmark, and what a member of a set costs in memory.
//!
//! Relies on fresh servers, both idle but for the one that is measured. Sets come as integers and as strings, and in sizes on
//! both sides of the limit above which a server keeps them in a table; each figure says in which encodings they were.

use anyhow::{bail, ensure};

use super::setup::{Candidate, ExperimentSetup, PEER, rate_ratio};
use super::throughput::{P1_NOTE, P1_THREADS};
use crate::memory;
use crate::redis_benchmark::{self, BenchmarkRun, BenchmarkTest, CONNECTIONS, RANDOM};
use crate::report::{BetterDirection, Figure, Report};
use crate::requests;
use crate::resp::{Connection, Value};

/// Requests of a run without pipelining, and of a small one.
const REQUESTS: u64 = 400_000;
const FEW_REQUESTS: u64 = 20_000;
/// A pipelined run has so many times more, or it would be over at once.
const PIPELINED: u64 = 6;
/// Members that a command of a filling brings, and commands that are sent together.
const AT_ONCE: usize = 100;
const BATCH: usize = 16;

/// How members are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberFormat {
    /// `member:` and twelve digits.
    Strings,
    /// 1 and twelve digits: an integer, which redis-benchmark can spell.
    LongInts,
    /// Integers of four bytes.
    Ints,
}

impl MemberFormat {
    fn spell(self, number: u64) -> String {
        match self {
            MemberFormat::Strings => format!("member:{number:012}"),
            MemberFormat::LongInts => format!("1{number:012}"),
            MemberFormat::Ints => (1_000_000 + number).to_string(),
        }
    }

    /// Bytes that a member takes by itself.
    fn bytes(self) -> usize {
        match self {
            MemberFormat::Strings => self.spell(0).len(),
            MemberFormat::LongInts => size_of::<u64>(),
            MemberFormat::Ints => size_of::<u32>(),
        }
    }
}

/// A set that loads read: `count` members, every `step`th number from `first` on.
struct TestSet {
    key: &'static str,
    form: MemberFormat,
    first: u64,
    step: u64,
    count: u64,
}

const fn test_set(key: &'static str, form: MemberFormat, first: u64, step: u64, count: u64) -> TestSet {
    TestSet { key, form, first, step, count }
}

/// The sets of the reading loads. Every second number is a member of the first five, so that half of all look-ups find one.
const FILLED: [TestSet; 9] = [
    test_set("strings:10", MemberFormat::Strings, 0, 2, 10),
    test_set("strings:100", MemberFormat::Strings, 0, 2, 100),
    test_set("strings:10000", MemberFormat::Strings, 0, 2, 10_000),
    test_set("ints:100", MemberFormat::LongInts, 0, 2, 100),
    test_set("ints:10000", MemberFormat::LongInts, 0, 2, 10_000),
    test_set("thirds:100", MemberFormat::Strings, 0, 3, 100),
    test_set("fifths:100", MemberFormat::Strings, 0, 5, 100),
    test_set("upper:10000", MemberFormat::Strings, 19_800, 1, 10_000),
    test_set("int-thirds:100", MemberFormat::LongInts, 0, 3, 100),
];

/// What the numbers in a load's words are below.
#[derive(Clone, Copy)]
enum NumberRange {
    /// So many.
    Below(u64),
    /// One for so many requests: with a number in the key and one in the member, sets of about so many members.
    PerRequests(u64),
}

/// What redis-benchmark sends.
struct Load {
    name: &'static str,
    words: &'static [&'static str],
    numbers: NumberRange,
    /// A request is worth so many.
    weight: u64,
    is_quick: bool,
}

const fn load(name: &'static str, words: &'static [&'static str], numbers: NumberRange, weight: u64) -> Load {
    Load { name, words, numbers, weight, is_quick: false }
}

const fn quick(load: Load) -> Load {
    Load { is_quick: true, ..load }
}

/// Loads that begin without any key.
const ADDING: [Load; 4] = [
    load("sadd_10", &["SADD", "s:__rand_int__", "member:__rand_int__"], NumberRange::PerRequests(10), 1),
    quick(load("sadd_100", &["SADD", "s:__rand_int__", "member:__rand_int__"], NumberRange::PerRequests(100), 1)),
    load("sadd_ints_100", &["SADD", "s:__rand_int__", "1__rand_int__"], NumberRange::PerRequests(100), 1),
    load("sadd_growing", &["SADD", "s", "member:__rand_int__"], NumberRange::PerRequests(1), 1),
];

/// Loads of the filled sets.
const READING: [Load; 9] = [
    load("sismember_10", &["SISMEMBER", "strings:10", "member:__rand_int__"], NumberRange::Below(20), 1),
    load("sismember_100", &["SISMEMBER", "strings:100", "member:__rand_int__"], NumberRange::Below(200), 1),
    quick(load(
        "sismember_10000",
        &["SISMEMBER", "strings:10000", "member:__rand_int__"],
        NumberRange::Below(20_000),
        1,
    )),
    load("sismember_ints_100", &["SISMEMBER", "ints:100", "1__rand_int__"], NumberRange::Below(200), 1),
    load("sismember_ints_10000", &["SISMEMBER", "ints:10000", "1__rand_int__"], NumberRange::Below(20_000), 1),
    quick(load("sinter_10_10000", &["SINTER", "strings:10", "upper:10000", "strings:10000"], NumberRange::Below(1), 2)),
    load("sinter_100_100_100", &["SINTER", "strings:100", "thirds:100", "fifths:100"], NumberRange::Below(1), 8),
    load("sinter_ints_100_100", &["SINTER", "ints:100", "int-thirds:100"], NumberRange::Below(1), 8),
    load("sinter_10000_10000", &["SINTER", "strings:10000", "upper:10000"], NumberRange::Below(1), 200),
];

/// Sets whose memory is measured.
struct SetShape {
    name: &'static str,
    form: MemberFormat,
    members_per_set: u64,
    members: u64,
    is_quick: bool,
}

const fn shape(name: &'static str, form: MemberFormat, members_per_set: u64, members: u64, is_quick: bool) -> SetShape {
    SetShape { name, form, members_per_set, members, is_quick }
}

/// Servers get memory in steps of some MiB, beside which all members of a shape must be much: a small run has half as many.
const SHAPES: [SetShape; 6] = [
    shape("ints_10", MemberFormat::Ints, 10, 8_000_000, false),
    shape("ints_100", MemberFormat::Ints, 100, 8_000_000, false),
    shape("ints_10000", MemberFormat::Ints, 10_000, 2_000_000, false),
    shape("strings_10", MemberFormat::Strings, 10, 2_000_000, false),
    shape("strings_100", MemberFormat::Strings, 100, 2_000_000, true),
    shape("strings_10000", MemberFormat::Strings, 10_000, 2_000_000, true),
];

/// Bytes that a member of a shape costs.
#[derive(Debug)]
struct MemberCost {
    shape: &'static str,
    /// The member's bytes and its part of the key's.
    own_bytes: f64,
    /// Of each program, ours first: its name, the bytes, and the encoding of the sets.
    of: Vec<(String, f64, String)>,
}

/// Rates, and bytes a member.
#[derive(Debug, Default)]
pub struct SetResults {
    ratios: Vec<Figure>,
    costs: Vec<MemberCost>,
}

/// Measures on servers of this part's own.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<SetResults> {
    let mut found = SetResults::default();
    for shape in SHAPES.iter().filter(|shape| shape.is_quick || !setup.quick) {
        found.costs.push(cost(setup, shape)?);
    }
    let mut candidates =
        (0..setup.programs().len()).map(|index| setup.start(index, "sets")).collect::<Result<Vec<_>, _>>()?;
    for load in chosen(&ADDING, setup) {
        rates(setup, &candidates, load, true, &mut found)?;
    }
    for candidate in &mut candidates {
        clear(&mut candidate.control)?;
        for set in &FILLED {
            let numbers = (0..set.count).map(|index| set.first + index * set.step);
            fill(&mut candidate.control, set.form, numbers.map(|number| (set.key.to_owned(), number)))?;
        }
    }
    for load in chosen(&READING, setup) {
        check_replies(&mut candidates, load)?;
        rates(setup, &candidates, load, false, &mut found)?;
    }
    Ok(found)
}

fn chosen<'a>(loads: &'a [Load], setup: &ExperimentSetup) -> impl Iterator<Item = &'a Load> {
    let quick = setup.quick;
    loads.iter().filter(move |load| load.is_quick || !quick)
}

/// Adds the ratios of rates and of bytes a member.
pub fn figures(found: &SetResults, report: &mut Report) {
    report.results.extend(found.ratios.iter().cloned());
    for cost in &found.costs {
        let theirs = cost.of.iter().find(|(name, ..)| name == PEER).map_or(f64::NAN, |(_, bytes, _)| *bytes);
        let ratio = cost.of[0].1 / theirs;
        let mut figure =
            Figure::new(format!("set_memory_{}_ratio", cost.shape), ratio, "x", BetterDirection::Lower).goal(1.0);
        for (name, bytes, _) in &cost.of {
            figure = figure.peer(name, *bytes);
        }
        let encodings: Vec<String> = cost.of.iter().map(|(name, _, encoding)| format!("{name} {encoding}")).collect();
        let note = format!("bytes a member by growth of the set size; {}", encodings.join(", "));
        let bound = cost.own_bytes / theirs;
        report.results.push(figure.note(note).bound("the bytes of members and keys by themselves", bound));
    }
}

/// The ratios of a load, alone and pipelined.
fn rates(
    setup: &ExperimentSetup,
    candidates: &[Candidate],
    load: &Load,
    begins_empty: bool,
    found: &mut SetResults,
) -> anyhow::Result<()> {
    for (pipeline, threads) in [(1, P1_THREADS), (16, 1)] {
        let requests = if setup.quick { FEW_REQUESTS } else { REQUESTS } / load.weight;
        let requests = if pipeline == 1 { requests } else { requests * PIPELINED };
        let keys = match load.numbers {
            NumberRange::Below(keys) => keys,
            NumberRange::PerRequests(count) => requests / count,
        };
        let name = format!("{}_p{pipeline}_ratio", load.name);
        let figure =
            rate_ratio(setup, candidates, &name, &format!("{} at pipeline {pipeline}", load.name), |candidate| {
                let port = candidate.server.port();
                if begins_empty {
                    clear(&mut Connection::open(port)?)?;
                    setup.settle();
                }
                let test = BenchmarkTest::Command(load.words);
                redis_benchmark::requests_per_s(BenchmarkRun {
                    port,
                    test,
                    pipeline,
                    requests,
                    keys,
                    value_bytes: 3,
                    threads,
                    connections: CONNECTIONS,
                })
            })?;
        let figure = figure.goal(1.0);
        found.ratios.push(if pipeline == 1 { figure.note(P1_NOTE) } else { figure });
    }
    Ok(())
}

/// What the tool does not look at: every server answers the load, and all alike.
fn check_replies(candidates: &mut [Candidate], load: &Load) -> anyhow::Result<()> {
    let words: Vec<String> = load.words.iter().map(|word| word.replace(RANDOM, "000000000006")).collect();
    let mut first = None;
    for candidate in candidates {
        let mut reply = ask(&mut candidate.control, &words)?;
        if let Value::Array(members) = &mut reply {
            // A set has no order.
            members.sort_by_key(|member| format!("{member:?}"));
        }
        let expected = first.get_or_insert_with(|| reply.clone());
        ensure!(*expected == reply, "the servers answer {} differently: {expected:?}, {reply:?}", words.join(" "));
    }
    Ok(())
}

/// Fills each program by itself with sets of a shape.
fn cost(setup: &ExperimentSetup, shape: &SetShape) -> anyhow::Result<MemberCost> {
    let mut of = Vec::new();
    let count = if setup.quick { shape.members / 2 } else { shape.members };
    for (index, program) in setup.programs().iter().enumerate() {
        setup.say(&format!("memory of sets, {}: {}", shape.name, program.name));
        let mut candidate = setup.start(index, &format!("sets-{}", shape.name))?;
        let before = memory::proportional_bytes(candidate.server.pid())?;
        let members = (0..count).map(|number| (key_of(number / shape.members_per_set), number));
        fill(&mut candidate.control, shape.form, members)?;
        let after = memory::proportional_bytes(candidate.server.pid())?;
        let bytes = after.saturating_sub(before) as f64 / count as f64;
        of.push((program.name.clone(), bytes, encoding(&mut candidate.control, &key_of(0))?));
        candidate.server.kill();
    }
    let own_bytes = shape.form.bytes() as f64 + key_of(0).len() as f64 / shape.members_per_set as f64;
    Ok(MemberCost { shape: shape.name, own_bytes, of })
}

fn key_of(set: u64) -> String {
    format!("set:{set:012}")
}

/// Adds members to sets, given as pairs of a key and a number.
fn fill(
    control: &mut Connection,
    form: MemberFormat,
    members: impl Iterator<Item = (String, u64)>,
) -> anyhow::Result<()> {
    let mut members = members.peekable();
    let (mut batch, mut commands) = (Vec::new(), 0);
    while let Some((key, number)) = members.next() {
        let mut words = vec!["SADD".to_owned(), key, form.spell(number)];
        while let Some((_, number)) = members.next_if(|(key, _)| words.len() < AT_ONCE + 2 && *key == words[1]) {
            words.push(form.spell(number));
        }
        requests::push_command(&mut batch, &words);
        commands += 1;
        if commands == BATCH || members.peek().is_none() {
            control.send(&batch)?;
            ensure!(control.skip(commands)? == 0, "the server refused an SADD");
            batch.clear();
            commands = 0;
        }
    }
    Ok(())
}

fn clear(control: &mut Connection) -> anyhow::Result<()> {
    ask(control, &["FLUSHALL"]).map(drop)
}

/// How the server keeps the set at `key`.
fn encoding(control: &mut Connection, key: &str) -> anyhow::Result<String> {
    match ask(control, &["OBJECT", "ENCODING", key])? {
        Value::Bulk(Some(name)) => Ok(String::from_utf8_lossy(&name).into_owned()),
        other => bail!("OBJECT ENCODING was answered by {other:?}"),
    }
}

/// A command's reply, which is no error.
fn ask(control: &mut Connection, words: &[impl AsRef<str>]) -> anyhow::Result<Value> {
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_ref().as_bytes()).collect();
    match control.call(&bytes)? {
        Value::Error(text) => bail!("{} was refused: {text}", words[0].as_ref()),
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_bytes_a_member_is_ours_to_the_peer_s_and_names_the_encodings() {
        let of = [("quire", 6.0, "intset"), (PEER, 8.0, "hashtable")];
        let of = of.map(|(name, bytes, encoding)| (name.to_owned(), bytes, encoding.to_owned())).to_vec();
        let mut report = Report::new("server", serde_json::Map::new());
        let cost = MemberCost { shape: "ints_10", own_bytes: 4.0, of };
        figures(&SetResults { ratios: Vec::new(), costs: vec![cost] }, &mut report);
        let figure = &report.results[0];
        assert_eq!(figure.bound.as_ref().unwrap().value, 0.5);
        assert_eq!(
            (figure.name.as_str(), figure.value, figure.reached()),
            ("set_memory_ints_10_ratio", 0.75, Some(true))
        );
        assert!(figure.note.ends_with("quire intset, redis-server hashtable"), "{}", figure.note);
    }

    #[test]
    fn every_load_reads_sets_that_are_filled_in_the_form_it_asks_for() {
        for load in &READING {
            for word in load.words[1..].iter().filter(|word| word.contains(':') && !word.contains(RANDOM)) {
                assert!(FILLED.iter().any(|set| set.key == *word), "{}: {word}", load.name);
            }
            if let [_, key, member] = load.words
                && member.contains(RANDOM)
            {
                let form = FILLED.iter().find(|set| set.key == *key).unwrap().form;
                assert_eq!(form.spell(7), member.replace(RANDOM, "000000000007"), "{}", load.name);
            }
        }
    }

    #[test]
    fn a_small_run_has_a_load_of_each_command_and_a_small_and_a_large_shape() {
        let has = |loads: &[Load], command| loads.iter().any(|load| load.is_quick && load.words[0] == command);
        assert!(has(&ADDING, "SADD") && has(&READING, "SISMEMBER") && has(&READING, "SINTER"));
        let sizes: Vec<u64> = SHAPES.iter().filter(|shape| shape.is_quick).map(|shape| shape.members_per_set).collect();
        assert!(sizes.contains(&100) && sizes.contains(&10_000));
    }
}
