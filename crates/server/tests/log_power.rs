//! The server on a disk whose power goes at any moment, image and log alike: what was acknowledged is there afterwards,
//! transactions over values of all types are whole, and nothing is there without what came before it.

use quire_device::{MemoryDirectory, PowerCut};
use quire_rng::SplitMix64;

use crate::common::{Client, Running, Value, eventually, request, start_within};

const CLIENTS: usize = 3;
const ROUNDS: u64 = 14;
const VALUE_BYTES: usize = 30_000;

/// Of each type what a round `N` of client `I` adds within its transaction, and what tells how many rounds have been.
const TYPES: [(&str, &str); 11] = [
    ("HSET hI N v", "HLEN hI"),
    ("RPUSH lI N", "LLEN lI"),
    ("SADD sI N", "SCARD sI"),
    ("ZADD zI N mN", "ZCARD zI"),
    ("GEOADD gI N N mN", "ZCARD gI"),
    ("PFADD pI N", "PFCOUNT pI"),
    ("BITFIELD iI INCRBY u32 0 1", "BITFIELD_RO iI GET u32 0"),
    ("XADD xI N-1 f v", "XLEN xI"),
    ("XREADGROUP GROUP g c STREAMS xI >", "XPENDING xI g"),
    ("ZUNIONSTORE uI 2 zI gI", "ZCARD uI"),
    ("COPY lI kI REPLACE", "LLEN kI"),
];

/// A line of the table for a client and a round; other words have no such letters.
fn line_of(text: &str, index: usize, number: u64) -> String {
    let put = |word: &str| match word {
        "N" => number.to_string(),
        "mN" | "N-1" => word.replace('N', &number.to_string()),
        _ if word.len() == 2 && word.ends_with('I') => word.replace('I', &index.to_string()),
        _ => word.to_owned(),
    };
    text.split(' ').map(put).collect::<Vec<_>>().join(" ")
}

/// The number that a reply is or begins with; none where there is no group yet.
fn number_of(reply: &Value) -> u64 {
    match reply {
        Value::Int(number) => u64::try_from(*number).unwrap(),
        Value::Array(items) => number_of(&items[0]),
        Value::Error(_) => 0,
        other => panic!("{other:?}"),
    }
}

/// What clients know.
#[derive(Clone, Default)]
struct Known {
    /// The last round that was acknowledged, by client.
    acknowledged: [u64; CLIENTS],
    /// The last round that was sent.
    sent: [u64; CLIENTS],
}

fn settings(fsync: &str) -> Vec<(&str, &str)> {
    vec![("appendonly", "yes"), ("appendfsync", fsync), ("log-segment-bytes", "1mb"), ("log-max-bytes", "8mb")]
}

/// What is there; each count must be one that the others allow.
fn counts(client: &mut Client, index: usize) -> Option<(u64, u64)> {
    let mut number = |name: &str| match client.try_call(&format!("GET {name}{index}"))? {
        Value::Bulk(bytes) => Some(String::from_utf8(bytes).unwrap().parse::<u64>().unwrap()),
        Value::Null => Some(0),
        other => panic!("{other:?}"),
    };
    let (set, first, second) = (number("w")?, number("a")?, number("b")?);
    assert_eq!(first, second, "half a transaction of client {index}");
    assert!(set == first || set == first + 1, "client {index} has {set} before {first}");
    for (_, asks) in TYPES {
        let found = number_of(&client.try_call(&line_of(asks, index, 0))?);
        assert_eq!(found, first, "half a transaction of client {index}: {asks}");
    }
    Some((set, first))
}

/// Whether a reply is an error, or has one among its parts.
fn is_error(reply: &Value) -> bool {
    match reply {
        Value::Error(_) => true,
        Value::Array(items) => items.iter().any(is_error),
        _ => false,
    }
}

/// One round of a client; true if it is acknowledged.
fn play_round(client: &mut Client, index: usize, number: u64, waits: bool) -> bool {
    let mut lines = vec![
        format!("SET w{index} {number}"),
        "MULTI".to_owned(),
        format!("INCR a{index}"),
        format!("SET v{index}:{} {}", number % 5, "x".repeat(VALUE_BYTES)),
    ];
    lines.extend(TYPES.iter().map(|(adds, _)| line_of(adds, index, number)));
    lines.extend([format!("INCR b{index}"), "EXEC".to_owned()]);
    if waits {
        lines.push("WAITAOF 1 0 0".to_owned());
    }
    client.try_send(lines.iter().flat_map(|line| request(line)).collect::<Vec<_>>())
        && lines.iter().all(|_| client.try_reply().is_some_and(|reply| !is_error(&reply)))
}

/// Writes until the rounds are over or the power is gone.
fn play(server: &Running, known: &mut Known, waits: bool, rng: &mut SplitMix64) {
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let Some((set, done)) = counts(client, index) else { return };
        if set != done && !matches!(client.try_call(&format!("SET w{index} {done}")), Some(Value::Simple(_))) {
            return;
        }
        known.sent[index] = known.sent[index].max(done);
        // An error says that the group is there.
        if client.try_call(&format!("XGROUP CREATE x{index} g 0 MKSTREAM")).is_none() {
            return;
        }
    }
    for _ in 0..ROUNDS {
        for (index, client) in clients.iter_mut().enumerate() {
            let number = match counts(client, index) {
                Some((_, done)) => done + 1,
                None => return,
            };
            known.sent[index] = known.sent[index].max(number);
            if !play_round(client, index, number, waits) {
                return;
            }
            known.acknowledged[index] = number;
        }
        if rng.below(4) == 0 {
            clients[0].try_call(["BGREWRITEAOF", "BGSAVE"][rng.below(2) as usize]);
        }
    }
}

/// All that was acknowledged must be in `found`.
fn check(found: &MemoryDirectory, fsync: &str, known: &Known, what: &str) -> Running {
    let server = start_within(found, &settings(fsync)).unwrap_or_else(|reason| panic!("{what}: {reason}"));
    let mut client = server.client();
    for index in 0..CLIENTS {
        let (set, done) = counts(&mut client, index).unwrap();
        let (least, most) = (known.acknowledged[index], known.sent[index]);
        assert!(done >= least && set <= most, "{what}: client {index} finds {done} to {set} of {least} to {most}");
    }
    server
}

fn cut_again_and_again(fsync: &str) {
    let waits = fsync != "always";
    let rehearsal = MemoryDirectory::new();
    let mut rng = SplitMix64::new(0x5eed);
    play(&start_within(&rehearsal, &settings(fsync)).unwrap(), &mut Known::default(), waits, &mut rng);
    let steps = rehearsal.steps();
    for turn in 0..10 {
        let memory = MemoryDirectory::new();
        let mut known = Known::default();
        memory.power_off_at(rng.below(steps));
        if let Ok(server) = start_within(&memory, &settings(fsync)) {
            play(&server, &mut known, waits, &mut rng);
            // The server still runs: this is the moment at which the power goes, if it has not gone before.
            let seed = rng.below(1 << 30);
            for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(seed)] {
                let what = format!("{fsync}, turn {turn}, {cut:?}");
                let found = memory.after_power_cut(cut);
                let mut known = known.clone();
                drop(check(&found, fsync, &known, &what));
                // Once more from there, to the next cut.
                let found = memory.after_power_cut(cut);
                found.power_off_at(rng.below(steps / 2));
                if let Ok(server) = start_within(&found, &settings(fsync)) {
                    play(&server, &mut known, waits, &mut rng);
                }
                let found = found.after_power_cut(PowerCut::KeepSome(seed + 1));
                drop(check(&found, fsync, &known, &format!("{what}, again")));
            }
        }
    }
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    cut_again_and_again("always");
}

#[test]
fn a_power_cut_loses_nothing_that_a_client_has_waited_for() {
    cut_again_and_again("everysec");
}

#[test]
fn a_power_cut_while_logging_is_switched_on_leads_back_or_forward() {
    let mut rng = SplitMix64::new(7);
    let off: Vec<(&str, &str)> = settings("always").into_iter().filter(|(name, _)| *name != "appendonly").collect();
    for turn in 0..12 {
        let memory = MemoryDirectory::new();
        let server = start_within(&memory, &off).unwrap();
        let mut client = server.client();
        client.text("SET before 1");
        assert_eq!(client.text("SAVE"), "OK");
        memory.power_off_at(memory.steps() + rng.below(40));
        let safe = matches!(client.try_call("CONFIG SET appendonly yes"), Some(Value::Simple(_)))
            && matches!(client.try_call("SET during 2"), Some(Value::Simple(_)))
            && matches!(client.try_call("WAITAOF 1 0 300"), Some(Value::Array(items)) if items[0] == Value::Int(1));
        let cut = [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(turn)][turn as usize % 3];
        let server = start_within(&memory.after_power_cut(cut), &settings("always")).unwrap();
        let mut client = server.client();
        assert_eq!(client.text("GET before"), "1");
        let during = client.text("GET during");
        assert!(during == "2" || !safe && during == "(nil)", "turn {turn}: {during}");
        client.text("SET later 3");
        eventually("it is durable", || client.info("aof_pending_bio_fsync") == "0");
    }
}
