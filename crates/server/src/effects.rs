//! What a command has done, in the words that the log is told, and that replicas will be.
//!
//! A command gives a reply, events and effects. Its effect is the command as it came, unless the handler says otherwise: what
//! depends on chance, on the clock or on how floating-point numbers are added is told by its result (an instant instead of a
//! time to live, the sum instead of the summand, the members that were drawn), or on an encoding (ranks instead of a range of
//! members), and a command that failed midway by what it had done before. So a replay of the effects gives the same data, whatever
//! its clock, its seed and its limits of encodings.
//!
//! Relies on `log_writer`, which is told; knows no particular command.

use quire_store::Store;

use crate::args::Args;
use crate::log_writer::LogWriter;

/// Room for the words of an effect that is kept between commands.
const KEPT_WORDS: usize = 256;
/// Room for bytes of words that no request has.
const KEPT_BYTES: usize = 4096;

/// A word of an effect.
#[derive(Clone, Copy, Debug)]
pub enum EffectWord<'w> {
    /// The word of the request at this index.
    Arg(usize),
    /// Other bytes.
    Bytes(&'w [u8]),
    /// A number, in decimal digits.
    Int(i64),
}

/// What the handler of the command that is running has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum EffectSource {
    /// Nothing: what a command that writes has changed is told as the command came.
    #[default]
    Nothing,
    /// It has changed data, though its specification doesn't say that it writes.
    AsItCame,
    /// It is told in the words that were given.
    Instead,
}

/// Where a word of an effect is.
#[derive(Clone, Copy, Debug)]
enum RecordedWord {
    /// The word of the request at this index.
    Arg(usize),
    /// These of the effect's own bytes.
    Own { start: usize, end: usize },
}

/// The effect of the command that is running.
#[derive(Debug, Default)]
pub struct Effects {
    said: EffectSource,
    words: Vec<RecordedWord>,
    /// Where each command but the first begins among the words.
    further: Vec<usize>,
    bytes: Vec<u8>,
}

impl Effects {
    /// The effect is these words; what is said last holds.
    pub fn say(&mut self, words: &[EffectWord<'_>]) {
        self.clear();
        self.said = EffectSource::Instead;
        words.iter().for_each(|word| self.push(*word));
    }

    /// A further command follows what was said before: one command has done the work of several.
    pub fn say_also(&mut self, words: &[EffectWord<'_>]) {
        if self.said != EffectSource::Instead {
            return self.say(words);
        }
        self.further.push(self.words.len());
        words.iter().for_each(|word| self.push(*word));
    }

    /// The command has changed data, and its effect is its own words, though its specification doesn't say that it writes.
    pub fn say_as_it_came(&mut self) {
        self.clear();
        self.said = EffectSource::AsItCame;
    }

    fn push(&mut self, word: EffectWord<'_>) {
        let start = self.bytes.len();
        match word {
            EffectWord::Arg(index) => return self.words.push(RecordedWord::Arg(index)),
            EffectWord::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            EffectWord::Int(number) => self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        }
        self.words.push(RecordedWord::Own { start, end: self.bytes.len() });
    }

    /// Tells the log what a command has done, after keys that have expired meanwhile.
    #[inline]
    pub fn tell(&mut self, log: &mut LogWriter, store: &mut Store, done: ExecutedCommand<'_>) {
        if self.said == EffectSource::Nothing {
            log.note(store, done.writes, done.changed && done.writes, done.db, done.args.iter());
        } else {
            self.tell_said(log, store, done);
        }
    }

    fn tell_said(&mut self, log: &mut LogWriter, store: &mut Store, done: ExecutedCommand<'_>) {
        let writes = done.writes || done.changed;
        if self.said == EffectSource::AsItCame {
            log.note(store, writes, done.changed, done.db, done.args.iter());
        } else {
            // All go into one record: a replay does all of them or none.
            let mut start = 0;
            for &end in self.further.iter().chain([&self.words.len()]) {
                let words = self.words[start..end].iter().map(|word| match *word {
                    RecordedWord::Arg(index) => done.args.at(index),
                    RecordedWord::Own { start, end } => &self.bytes[start..end],
                });
                log.note(store, writes, done.changed, done.db, words);
                start = end;
            }
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.said = EffectSource::Nothing;
        self.words.clear();
        self.words.shrink_to(KEPT_WORDS);
        self.further.clear();
        self.further.shrink_to(KEPT_WORDS);
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
    }
}

/// A command that was run.
#[derive(Clone, Copy, Debug)]
pub struct ExecutedCommand<'a> {
    /// Its specification says that it writes.
    pub writes: bool,
    /// It has changed something.
    pub changed: bool,
    /// The database that it was run on.
    pub db: u8,
    /// The request.
    pub args: Args<'a>,
}

#[cfg(test)]
mod tests {
    mod hashes;
    mod hyperloglogs;
    mod streams;
    mod zsets;

    use std::sync::Arc;

    use proptest::prelude::*;
    use quire_device::{Directory, MemoryDirectory};
    use quire_store::{DbId, EncodingLimits, StoreConfig, hash, zset};
    use quire_wal::{BaseImage, LogIdentity, Recovery};

    use super::*;
    use crate::acl::Login;
    use crate::args::ArgRange;
    use crate::client::Client;
    use crate::config::Config;
    use crate::ctx::Ctx;
    use crate::dispatch;
    use crate::registry::Registry;
    use crate::replay::Replayer;
    use crate::resp::Reply;
    use crate::specs;
    use crate::state::ServerState;

    const HOUR_MS: i64 = 3_600_000;
    const START_MS: i64 = 1_000_000 * HOUR_MS;
    const KEYS: [&str; 23] = [
        "a", "b", "c", "h", "i", "j", "t", "u", "v", "l", "q", "r", "z", "y", "x", "o", "p", "n", "d", "e", "g", "w",
        "ww",
    ];

    /// A server without sockets whose clock is moved by hand.
    struct Logging {
        registry: Registry,
        store: Store,
        state: ServerState,
        client: Client,
        directory: Arc<dyn Directory>,
    }

    impl Logging {
        fn new() -> Self {
            let mut store = Store::create(StoreConfig { seed: Some(1), ..StoreConfig::default() }).unwrap();
            store.set_noting_expired(true);
            store.set_now_ms(START_MS);
            let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::new());
            let config = Config { enable_debug_command: "yes".to_owned(), ..Config::default() };
            let identity = LogIdentity { dataset: store.dataset(), base_epoch: 1, in_force: true };
            let mut state = ServerState::new(config);
            state.log_writer = Some(Box::new(LogWriter::start(&directory, &state.config, identity, 1, None).unwrap()));
            let mut client = Client::new(1, String::new(), String::new(), 0);
            client.login = Login::unrestricted();
            Self { registry: Registry::build(specs::ALL), store, state, client, directory }
        }

        /// Runs a request, or sets the limit of sparse HyperLogLogs: CONFIG SET would see that no log is asked for, and end it. Or searches for what has expired.
        fn run(&mut self, line: &str) {
            if line == "expire-step" {
                self.store.expire_step(9).unwrap();
                return;
            }
            if let Some(limit) = line.strip_prefix("hll-sparse-max-bytes ") {
                self.state.config.hll_sparse_max_bytes = limit.parse().unwrap();
                return;
            }
            let mut ranges = Vec::new();
            for word in line.split(' ') {
                let start = word.as_ptr() as usize - line.as_ptr() as usize;
                ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
            }
            let args = Args::new(line.as_bytes(), &ranges);
            let found = self.registry.find(args.at(0)).map(|command| command.id);
            let (store, server, client) = (&mut self.store, &mut self.state, &mut self.client);
            let mut reply = Reply::default();
            dispatch::run(&self.registry, found, &mut Ctx { store, server, client, args, reply: &mut reply });
        }

        fn wait_ms(&mut self, ms: i64) {
            let now_ms = self.store.now_ms() + ms;
            self.store.set_now_ms(now_ms);
        }

        /// Ends the log; what is in it can be read then.
        fn end(&mut self) -> Recovery {
            self.state.log_writer.take().unwrap().finish().unwrap();
            let base = BaseImage { dataset: self.store.dataset(), epoch: 1, position: 0 };
            Recovery::open(&*self.directory, base).unwrap()
        }

        /// Ends the log, and returns what comes of replaying it with another seed, and a clock that is so far back.
        fn replayed(&mut self, back_ms: i64, limits: EncodingLimits) -> Store {
            let mut copy = Store::create(StoreConfig { seed: Some(2), limits, ..StoreConfig::default() }).unwrap();
            let mut player = Replayer::new(&self.registry, &Config::default(), &mut copy);
            let base = BaseImage { dataset: self.store.dataset(), epoch: 1, position: 0 };
            if let Some(log_writer) = self.state.log_writer.take() {
                log_writer.finish().unwrap();
            }
            let mut recovery = Recovery::open(&*self.directory, base).unwrap();
            while let Some(record) = recovery.next_record().unwrap() {
                player.play_at(&record, record.now_ms().unwrap() - back_ms).unwrap();
            }
            copy
        }

        /// The commands in the log.
        fn logged(&mut self) -> Vec<String> {
            let (mut lines, mut words) = (Vec::new(), Vec::new());
            let mut recovery = self.end();
            while let Some(record) = recovery.next_record().unwrap() {
                let mut commands = record.commands();
                while commands.next_into(&mut words).unwrap().is_some() {
                    let words = words.iter().map(|word| String::from_utf8_lossy(&record.body()[word.clone()]));
                    lines.push(words.collect::<Vec<_>>().join(" "));
                }
            }
            lines
        }
    }

    /// Runs a request on a server with a value of each type; the log then has this effect of it.
    fn assert_logged(line: &str, effect: &str) {
        let before = [
            "MSET b 1 c 1",
            "SET f 0.1",
            "SADD t x y",
            "RPUSH l x y",
            "ZADD z 0.1 x 2 y",
            &format!("SET a 0 PXAT {}", START_MS + 7000),
        ];
        assert_logged_after(&before, line, effect);
    }

    /// The same after other requests.
    fn assert_logged_after(before: &[&str], line: &str, effect: &str) {
        let mut server = Logging::new();
        before.iter().for_each(|line| server.run(line));
        let logged_before = {
            let mut other = Logging::new();
            before.iter().for_each(|line| other.run(line));
            other.logged().len()
        };
        server.run(line);
        assert_eq!(server.logged()[logged_before..].join("; "), effect, "{line}");
    }

    #[test]
    fn a_command_may_have_the_effect_of_several_in_one_record() {
        let mut server = Logging::new();
        server.state.effects.say(&[EffectWord::Bytes(b"SET"), EffectWord::Arg(1), EffectWord::Int(7)]);
        server.state.effects.say_also(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(2)]);
        let (line, ranges) = ("X a b", [(0, 1), (2, 1), (4, 1)].map(|(start, len)| ArgRange { start, len }));
        let args = Args::new(line.as_bytes(), &ranges);
        let done = ExecutedCommand { writes: true, changed: true, db: 0, args };
        let log_writer = server.state.log_writer.as_mut().unwrap();
        server.state.effects.tell(log_writer, &mut server.store, done);
        log_writer.seal();
        server.state.effects.tell(log_writer, &mut server.store, ExecutedCommand { changed: false, ..done });
        let mut recovery = server.end();
        let record = recovery.next_record().unwrap().unwrap();
        let (mut commands, mut words, mut lines) = (record.commands(), Vec::new(), Vec::new());
        while commands.next_into(&mut words).unwrap().is_some() {
            let words = words.iter().map(|word| String::from_utf8_lossy(&record.body()[word.clone()]));
            lines.push(words.collect::<Vec<_>>().join(" "));
        }
        assert_eq!(lines, ["SET a 7", "DEL b"]);
        assert!(recovery.next_record().unwrap().is_none());
    }

    #[test]
    fn what_depends_on_the_clock_or_on_floats_is_logged_by_its_result() {
        let later = |ms: i64| START_MS + ms;
        for (line, effect) in [
            ("SET a 1", "SET a 1".to_owned()),
            ("set a 1 keepttl GET", "set a 1 keepttl GET".to_owned()),
            ("SET a 2 EX 10 XX GET", format!("SET a 2 PXAT {}", later(10_000))),
            ("SET a 2 NX PX 10", String::new()),
            ("SETEX a 10 x", format!("SET a x PXAT {}", later(10_000))),
            ("PSETEX a 10 x", format!("SET a x PXAT {}", later(10))),
            ("EXPIRE a 10 GT", format!("PEXPIREAT a {}", later(10_000))),
            ("EXPIRE a 5 GT", String::new()),
            ("PEXPIRE a 10", format!("PEXPIREAT a {}", later(10))),
            ("EXPIRE b 0", "DEL b".to_owned()),
            ("GETEX a EX 1", format!("PEXPIREAT a {}", later(1000))),
            ("GETEX a PERSIST", "GETEX a PERSIST".to_owned()),
            ("GETEX c PXAT 1", "DEL c".to_owned()),
            ("INCRBYFLOAT f 0.2", "SET f 0.3 KEEPTTL".to_owned()),
            ("HINCRBYFLOAT h x 0.5", "HSET h x 0.5".to_owned()),
            ("INCRBYFLOAT b x", String::new()),
            ("DEBUG POPULATE 2 k", "DEBUG POPULATE 2 k".to_owned()),
            ("INCR n", "INCR n".to_owned()),
            ("SPOP t 0", String::new()),
            ("SPOP t 2", "DEL t".to_owned()),
            ("SPOP t 1000", "DEL t".to_owned()),
            ("SPOP none 3", String::new()),
            ("LPOP l", "LPOP l".to_owned()),
            ("LPOP l 0", String::new()),
            ("LTRIM l 0 -1", String::new()),
            ("LTRIM l 1 0", "LTRIM l 1 0".to_owned()),
            ("LMOVE l l LEFT LEFT", "LMOVE l l LEFT LEFT".to_owned()),
            ("LMPOP 2 none l LEFT", "LMPOP 2 none l LEFT".to_owned()),
            ("LREM l 0 none", String::new()),
            ("BLPOP none l 0", "LPOP l".to_owned()),
            ("brpop l l 5", "RPOP l".to_owned()),
            ("BLPOP none 0", String::new()),
            ("BLMOVE l q LEFT right 0", "LMOVE l q LEFT right".to_owned()),
            ("BRPOPLPUSH l q 0", "RPOPLPUSH l q".to_owned()),
            ("BLMPOP 0 2 none l RIGHT COUNT 5", "RPOP l 5".to_owned()),
            ("BLMPOP 0 1 l LEFT", "LPOP l 1".to_owned()),
            ("LPUSHX none x", String::new()),
            ("BITFIELD b INCRBY u8 0 1 GET u8 8", "BITFIELD b INCRBY u8 0 1 GET u8 8".to_owned()),
            ("BITFIELD b GET u8 0", String::new()),
            ("PFADD p x y", "PFADD p x y".to_owned()),
            ("PFCOUNT none", String::new()),
            ("SORT l ALPHA DESC STORE q", "SORT l ALPHA DESC STORE q".to_owned()),
            ("SORT l ALPHA", String::new()),
        ] {
            assert_logged(line, &effect);
        }
    }

    /// Requests, in which a word of these stands for a random one: hll a key of HyperLogLogs, geo one of places, k a key, h a key of hashes, t a key of sets, l a key of
    /// lists, z a key of sorted sets, stream a key of streams, m a field, member or element, n a number, p a small one, f a fraction, s and ms times to live, at an instant.
    const LINES: &[&str] = &[
        "SET k n",
        "SET k f",
        "SET k n EX s",
        "SET k n PX ms NX",
        "SET k n PX ms GET",
        "SET k n KEEPTTL",
        "SET k n PXAT at",
        "SETEX k s n",
        "PSETEX k ms n",
        "SETNX k n",
        "MSET k n k f",
        "MSETNX k n k n",
        "GETSET k n",
        "GETDEL k",
        "GETEX k EX s",
        "GETEX k PX ms",
        "GETEX k PXAT at",
        "GETEX k PERSIST",
        "GET k",
        "APPEND k n",
        "SETRANGE k n n",
        "INCRBYFLOAT k f",
        "INCRBY k n",
        "SETBIT k n 1",
        "BITOP XOR k k k",
        "HSET h m n m f",
        "HSETNX h m n",
        "HINCRBYFLOAT h m f",
        "HINCRBY h m n",
        "HDEL h m m",
        "HGETALL h",
        "HEXPIRE h s FIELDS 2 m m",
        "HPEXPIRE h ms FIELDS 1 m",
        "HPEXPIRE h ms GT FIELDS 2 m m",
        "HPEXPIREAT h at NX FIELDS 1 m",
        "HPERSIST h FIELDS 2 m m",
        "HTTL h FIELDS 1 m",
        "expire-step",
        "EXPIRE k s",
        "EXPIRE h s NX",
        "PEXPIRE k ms",
        "PEXPIRE h ms GT",
        "PEXPIRE k ms LT",
        "PEXPIREAT k at",
        "PERSIST k",
        "TTL h",
        "EXISTS k",
        "DEL k h",
        "UNLINK k",
        "RENAME k k",
        "RENAMENX h h",
        "COPY k k REPLACE",
        "COPY h h",
        "MOVE k 1",
        "SADD t m m n",
        "SADD t n n n n",
        "SADD t n m",
        "SREM t m m n",
        "SPOP t",
        "SPOP t p",
        "SPOP t p",
        "SMOVE t t m",
        "SUNIONSTORE t t t",
        "SINTERSTORE t t t",
        "SDIFFSTORE t t t",
        "SRANDMEMBER t p",
        "SINTERCARD 2 t t",
        "EXPIRE t s",
        "COPY t t REPLACE",
        "SMEMBERS t",
        "RPUSH l m n m",
        "LPUSH l n m n",
        "RPUSHX l n",
        "LPOP l",
        "RPOP l p",
        "LSET l p n",
        "LINSERT l BEFORE m n",
        "LREM l p m",
        "LTRIM l p 40",
        "LMOVE l l LEFT RIGHT",
        "RPOPLPUSH l l",
        "LMPOP 2 l l RIGHT COUNT 2",
        "PEXPIRE l ms",
        "COPY l l REPLACE",
        "RENAME l l",
        "LRANGE l 0 p",
        "ZADD z n m f m",
        "ZADD z GT n m n m",
        "ZADD z XX INCR f m",
        "ZINCRBY z f m",
        "ZINCRBY z f m",
        "ZREM z m m",
        "ZPOPMIN z",
        "ZPOPMAX z p",
        "ZMPOP 2 z z MIN COUNT 2",
        "ZREMRANGEBYRANK z p 40",
        "ZREMRANGEBYSCORE z n 1000",
        "ZREMRANGEBYLEX z - [field1",
        "ZRANGESTORE z z [field1 (field4 BYLEX",
        "ZADD z -0 m",
        "ZUNIONSTORE z 2 z t WEIGHTS f 2",
        "ZINTERSTORE z 2 z z AGGREGATE MAX",
        "ZDIFFSTORE z 2 z t",
        "ZRANGESTORE z z 0 p",
        "ZRANDMEMBER z p",
        "EXPIRE z s",
        "COPY z z REPLACE",
        "PFADD hll m n m",
        "PFADD hll n n n n n n",
        "PFCOUNT hll",
        "PFCOUNT hll hll",
        "PFMERGE hll hll",
        "PFMERGE hll",
        "PFDEBUG TODENSE hll",
        "PFDEBUG GETREG hll",
        "hll-sparse-max-bytes n",
        "EXPIRE hll s",
        "GEOADD geo p f m f p m",
        "GEOADD geo NX CH p p m",
        "GEOADD z f p m",
        "GEOSEARCHSTORE geo geo FROMLONLAT p p BYRADIUS n km STOREDIST",
        "GEOSEARCHSTORE geo z FROMMEMBER m BYBOX n n km COUNT 2",
        "GEORADIUS z p p n km STORE geo",
        "BITFIELD k SET u7 n n INCRBY i9 n n",
        "BITFIELD k OVERFLOW FAIL INCRBY u8 p n",
        "SORT l STORE l",
        "SORT t BY nosort STORE l",
        "SORT t BY none* ALPHA DESC STORE l",
        "SORT z ALPHA GET # GET h->m STORE l",
        "RPUSH l h h",
        "SORT l ALPHA GET *->field1 STORE l",
        "XADD stream * m n",
        "XADD stream * m n m f",
        "XADD stream MAXLEN ~ p * m n",
        "XADD stream MAXLEN p * m n",
        "XADD stream NOMKSTREAM n-* m n",
        "XTRIM stream MAXLEN p",
        "XDEL stream n-0",
        "XGROUP CREATE stream g 0 MKSTREAM",
        "XGROUP CREATE stream m $ MKSTREAM",
        "XGROUP DESTROY stream m",
        "XGROUP CREATECONSUMER stream g m",
        "XGROUP DELCONSUMER stream g m",
        "XREADGROUP GROUP g m COUNT p STREAMS stream >",
        "XREADGROUP GROUP g m STREAMS stream >",
        "XREADGROUP GROUP m m NOACK STREAMS stream >",
        "XREADGROUP GROUP g m STREAMS stream 0",
        "XCLAIM stream g m 0 n-0 FORCE",
        "XAUTOCLAIM stream g m 0 0 COUNT 2",
        "XAUTOCLAIM stream g m ms 0 JUSTID",
        "XACK stream g n-0",
        "PEXPIRE stream ms",
        "COPY stream stream REPLACE",
    ];

    prop_compose! {
        fn request()(
            line in prop::sample::select(LINES),
            numbers in prop::collection::vec(0..1000i64, 8),
            wait_ms in prop_oneof![Just(0), 0..40i64, Just(2000)],
        ) -> (String, i64) {
            let word = |(word, number): (&str, &i64)| match word {
                "k" => KEYS[*number as usize % 3].to_owned(),
                "h" => KEYS[3 + *number as usize % 3].to_owned(),
                "t" => KEYS[6 + *number as usize % 3].to_owned(),
                "l" => KEYS[9 + *number as usize % 3].to_owned(),
                "z" => KEYS[12 + *number as usize % 3].to_owned(),
                "hll" => KEYS[15 + *number as usize % 3].to_owned(),
                "geo" => KEYS[18 + *number as usize % 3].to_owned(),
                "stream" => KEYS[21 + *number as usize % 2].to_owned(),
                "p" => (number % 4).to_string(),
                "m" => format!("field{}", number % 5),
                "n" => number.to_string(),
                "f" => format!("{}.{number}e-2", number % 7),
                "s" => (number % 3 - 1).to_string(),
                "ms" => (number % 90 - 10).to_string(),
                "at" => (START_MS + number * 3).to_string(),
                fixed => fixed.to_owned(),
            };
            let words: Vec<String> = line.split(' ').zip(numbers.iter().cycle()).map(word).collect();
            (words.join(" "), wait_ms)
        }
    }

    fn expiries(store: &mut Store) -> Vec<Option<Option<i64>>> {
        // At this time nothing has expired.
        store.set_now_ms(0);
        let both = (0..2).flat_map(|db| KEYS.map(|key| (DbId(db), key)));
        both.map(|(db, key)| store.expiry(db, key.as_bytes()).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn effects_done_again_with_another_seed_and_clock_give_the_same_data(
            requests in prop::collection::vec(request(), 1..120),
            hours_back in 0..50i64,
        ) {
            let mut server = Logging::new();
            for (line, wait_ms) in &requests {
                server.wait_ms(*wait_ms);
                server.run(line);
            }
            // Keys that have expired since the last write are told of when the turn ends.
            server.state.log_writer.as_mut().unwrap().note_expired(&mut server.store);
            let digest = server.store.digest().unwrap();
            let known = expiries(&mut server.store);
            let known_fields = hashes::field_expiries(&mut server.store);
            let known_groups = streams::groups(&mut server.store);
            let large =
                EncodingLimits::default().with(&zset::MAX_PACKED_MEMBERS, 0).with(&hash::MAX_PACKED_FIELDS, 0);
            for (back_ms, limits) in [(hours_back * HOUR_MS, EncodingLimits::default()), (START_MS, large)] {
                let mut copy = server.replayed(back_ms, limits);
                prop_assert_eq!(copy.digest().unwrap(), digest, "{:?}", requests);
                prop_assert_eq!(&expiries(&mut copy), &known, "{:?}", requests);
                prop_assert_eq!(&hashes::field_expiries(&mut copy), &known_fields, "{:?}", requests);
                prop_assert_eq!(&streams::groups(&mut copy), &known_groups, "{:?}", requests);
            }
        }
    }
}
