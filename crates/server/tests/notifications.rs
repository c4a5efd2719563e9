//! Keyspace notifications: each command's changes are told by the names that Redis gives them, and keys that expire are told, too.

use crate::common::{self, Client, Value, eventually, start};

/// The messages up to the next `end`, as `event key` where the channel tells the event.
fn told(listener: &mut Client, admin: &mut Client) -> Vec<String> {
    admin.call("PUBLISH __end__ x");
    let mut told = Vec::new();
    loop {
        let message = listener.reply();
        let channel = message.items()[2].text();
        if channel == "__end__" {
            return told;
        }
        let event = channel.strip_prefix("__keyevent@0__:").unwrap_or(&channel);
        told.push(format!("{event} {}", message.items()[3].text()));
    }
}

fn listener(server: &common::Running) -> Client {
    let mut client = server.client();
    client.call("PSUBSCRIBE __*");
    client
}

/// Commands in their order, and what each of them tells.
const CASES: &[(&str, &str)] = &[
    ("XADD st 1-1 a 1", "xadd st"),
    ("XADD st MAXLEN 1 2-1 a 1", "xadd st,xtrim st"),
    ("XADD st MAXLEN 5 3-1 a 1", "xadd st"),
    ("XADD none NOMKSTREAM 1 a 1", ""),
    ("XTRIM st MAXLEN 2", ""),
    ("XTRIM st MAXLEN 1", "xtrim st"),
    ("XDEL st 3-1 9", "xdel st"),
    ("XDEL st 9", ""),
    ("XSETID st 9", "xsetid st"),
    ("XADD st 10 a 1", "xadd st"),
    ("XGROUP CREATE st g 0 MKSTREAM", "xgroup-create st"),
    ("XGROUP CREATECONSUMER st g c", "xgroup-createconsumer st"),
    ("XGROUP CREATECONSUMER st g c", ""),
    ("XREADGROUP GROUP g c STREAMS st >", ""),
    ("XREADGROUP GROUP g d STREAMS st >", "xgroup-createconsumer st"),
    ("XREADGROUP GROUP g d STREAMS st 0", ""),
    ("XCLAIM st g d 0 10", ""),
    ("XCLAIM st g e 0 10", "xgroup-createconsumer st"),
    ("XAUTOCLAIM st g f 0 0", "xgroup-createconsumer st"),
    ("XACK st g 10", ""),
    ("XGROUP SETID st g 0", "xgroup-setid st"),
    ("XGROUP DELCONSUMER st g c", "xgroup-delconsumer st"),
    ("XGROUP DELCONSUMER st g c", ""),
    ("XGROUP DESTROY st g", "xgroup-destroy st"),
    ("DEL st", "del st"),
    ("SET a 1", "set a"),
    ("SET a 1 EX 100", "set a,expire a"),
    ("SETEX b 100 x", "set b,expire b"),
    ("GET a", ""),
    ("INCR a", "incrby a"),
    ("APPEND a x", "append a"),
    ("SETRANGE a 2 z", "setrange a"),
    ("SETBIT bits 3 1", "setbit bits"),
    ("BITOP AND c bits a", "set c"),
    ("BITOP AND c none", "del c"),
    ("MSET d 1 e 2", "set d,set e"),
    ("GETDEL d", "del d"),
    ("GETEX e EX 100", "expire e"),
    ("GETEX e PERSIST", "persist e"),
    ("GETEX e", ""),
    ("INCRBYFLOAT e 0.5", "incrbyfloat e"),
    ("DEL a b none", "del a,del b"),
    ("EXPIRE e 100", "expire e"),
    ("PERSIST e", "persist e"),
    ("PERSIST e", ""),
    ("EXPIRE e 0", "del e"),
    ("HSET h x 1 y 2", "hset h"),
    ("HINCRBY h x 1", "hincrby h"),
    ("HINCRBYFLOAT h x 1.5", "hincrbyfloat h"),
    ("HDEL h x", "hdel h"),
    ("HEXPIRE h 100 FIELDS 2 x y", "hexpire h"),
    ("HEXPIRE h 50 GT FIELDS 1 y", ""),
    ("HPERSIST h FIELDS 2 y none", "hpersist h"),
    ("HPERSIST h FIELDS 1 y", ""),
    ("HSET h z 1", "hset h"),
    ("HPEXPIRE h 0 FIELDS 1 z", "hdel h"),
    ("HEXPIREAT h 1 FIELDS 1 y", "hdel h,del h"),
    ("HSET h y 2", "hset h"),
    ("HDEL h y", "hdel h,del h"),
    ("SADD s 1 2 3", "sadd s"),
    ("SADD s 1", ""),
    ("SMOVE s t 1", "srem s,sadd t"),
    ("SMOVE t s 1", "srem t,del t,sadd s"),
    ("SINTERSTORE u s s", "sinterstore u"),
    ("SINTERSTORE u s none", "del u"),
    ("SUNIONSTORE u s", "sunionstore u"),
    ("SDIFFSTORE u s none", "sdiffstore u"),
    ("SPOP u 3", "spop u,del u"),
    ("SREM s 1 2", "srem s"),
    ("RPUSH l 1 2 3 4 5", "rpush l"),
    ("LPUSHX l 0", "lpush l"),
    ("LPUSHX none 0", ""),
    ("LINSERT l BEFORE 1 x", "linsert l"),
    ("LSET l 0 y", "lset l"),
    ("LREM l 0 x", "lrem l"),
    ("LTRIM l 1 3", "ltrim l"),
    ("LMOVE l m LEFT RIGHT", "rpush m,lpop l"),
    ("RPOPLPUSH m m", "lpush m,rpop m"),
    ("RPOPLPUSH m l", "lpush l,rpop m,del m"),
    ("LMPOP 2 none l RIGHT", "rpop l"),
    ("RPUSH RIGHT 1 2 3", "rpush RIGHT"),
    ("LMPOP 2 none RIGHT LEFT", "lpop RIGHT"),
    ("BLMPOP 0 1 RIGHT LEFT COUNT 9", "lpop RIGHT,del RIGHT"),
    ("BLPOP l 0", "lpop l"),
    ("LPOP l", "lpop l,del l"),
    ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h", "zadd z"),
    ("ZADD z 1 a", ""),
    ("ZADD z XX CH INCR 1 a", "zincr z"),
    ("ZINCRBY z -1 a", "zincr z"),
    ("ZREM z a none", "zrem z"),
    ("ZREMRANGEBYRANK z 0 0", "zremrangebyrank z"),
    ("ZREMRANGEBYSCORE z 100 200", ""),
    ("ZREMRANGEBYSCORE z 3 3", "zremrangebyscore z"),
    ("ZREMRANGEBYLEX z [d (e", "zremrangebylex z"),
    ("ZPOPMIN z 1", "zpopmin z"),
    ("BZPOPMAX none z 0", "zpopmax z"),
    ("ZRANGESTORE MAX z 0 -1", "zrangestore MAX"),
    ("ZUNIONSTORE w 1 z", "zunionstore w"),
    ("ZINTERSTORE w 2 z none", "del w"),
    ("ZDIFFSTORE w 1 z", "zdiffstore w"),
    ("ZMPOP 2 none MAX MIN", "zpopmin MAX"),
    ("BZMPOP 0 2 none MAX MAX COUNT 9", "zpopmax MAX,del MAX"),
    ("ZREM z f g", "zrem z,del z"),
    ("UNLINK w", "del w"),
    ("SET a 1", "set a"),
    ("RENAME a b", "rename_from a,rename_to b"),
    ("COPY b c", "copy_to c"),
    ("RENAMENX b c", ""),
    ("UNLINK b c", "del b,del c"),
    ("SET a 1", "set a"),
    ("FLUSHALL", ""),
];

#[test]
fn what_each_command_does_has_the_name_that_redis_gives_it() {
    let server = start(&[("notify-keyspace-events", "EA")]);
    let (mut listener, mut client) = (listener(&server), server.client());
    for (line, events) in CASES {
        let reply = client.call(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        assert_eq!(told(&mut listener, &mut client).join(","), *events, "{line}");
    }
    client.call("SET a 1");
    client.call("MOVE a 3");
    let messages = told(&mut listener, &mut client);
    assert_eq!(messages, ["set a", "move_from a", "__keyevent@3__:move_to a"]);
}

#[test]
fn new_keys_are_told_before_what_has_made_them_if_that_is_asked_for() {
    let server = start(&[("notify-keyspace-events", "EAn")]);
    let (mut listener, mut client) = (listener(&server), server.client());
    for (line, events) in [
        ("SET a 1", "new a,set a"),
        ("SET a 2", "set a"),
        ("MSET a 1 b 1 c 1", "set a,new b,set b,new c,set c"),
        ("INCR n", "new n,incrby n"),
        ("APPEND t x", "new t,append t"),
        ("HSET h f v", "new h,hset h"),
        ("HSET h g v", "hset h"),
        ("SADD s 1 2", "new s,sadd s"),
        ("SMOVE s s2 1", "srem s,new s2,sadd s2"),
        ("RPUSH l 1 2", "new l,rpush l"),
        ("LMOVE l l2 LEFT LEFT", "new l2,lpush l2,lpop l"),
        ("ZADD z 1 a", "new z,zadd z"),
        ("XADD x MAXLEN 1 1-1 a 1", "new x,xadd x"),
        ("XGROUP CREATE x2 g $ MKSTREAM", "new x2,xgroup-create x2"),
        ("PFADD p a", "new p,pfadd p"),
        ("GEOADD geo 1 1 a", "new geo,zadd geo"),
        ("SETBIT bits 3 1", "new bits,setbit bits"),
        ("BITOP NOT bits2 bits", "new bits2,set bits2"),
        ("SUNIONSTORE s3 s", "new s3,sunionstore s3"),
        ("SUNIONSTORE s3 s s2", "sunionstore s3"),
        ("ZUNIONSTORE z2 1 z", "new z2,zunionstore z2"),
        ("SORT l STORE l3", "new l3,sortstore l3"),
        ("COPY a copy", "new copy,copy_to copy"),
        ("COPY b copy REPLACE", "new copy,copy_to copy"),
        ("RENAME a renamed", "new renamed,rename_from a,rename_to renamed"),
        ("RENAME b renamed", "new renamed,rename_from b,rename_to renamed"),
        ("DEL renamed", "del renamed"),
        ("GET renamed", ""),
    ] {
        let reply = client.call(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        assert_eq!(told(&mut listener, &mut client).join(","), events, "{line}");
    }
    client.call("MOVE c 3");
    let messages = told(&mut listener, &mut client);
    assert_eq!(messages, ["__keyevent@3__:new c", "move_from c", "__keyevent@3__:move_to c"]);
    client.call("CONFIG SET notify-keyspace-events EA");
    client.call("SET later 1");
    assert_eq!(told(&mut listener, &mut client), ["set later"]);
}

#[test]
fn a_key_that_takes_the_place_of_one_that_has_expired_is_told_to_be_new_after_that() {
    let server = start(&[("notify-keyspace-events", "EAn")]);
    let (mut listener, mut client) = (listener(&server), server.client());
    // Expired keys stay until a command meets them.
    client.call("DEBUG PAUSE-CRON 1");
    client.call("MSET a 1 b 1 c 1");
    for (line, db, target, events) in [
        ("RENAME a to", 0, "to", "expired to,new to,rename_from a,rename_to to"),
        ("RENAMENX b to2", 0, "to2", "expired to2,new to2,rename_from b,rename_to to2"),
        ("MOVE c 3", 3, "c", "__keyevent@3__:expired c,__keyevent@3__:new c,move_from c,__keyevent@3__:move_to c"),
    ] {
        client.call(&format!("SELECT {db}"));
        client.call(&format!("PSETEX {target} 1 x"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.call("SELECT 0");
        told(&mut listener, &mut client);
        assert!(!matches!(client.call(line), Value::Error(_)), "{line}");
        assert_eq!(told(&mut listener, &mut client).join(","), events, "{line}");
    }
}

#[test]
fn keys_that_expire_are_told_with_and_without_a_command_that_meets_them() {
    let server = start(&[]);
    let (mut listener, mut client) = (listener(&server), server.client());
    client.call("SET quiet 1");
    assert!(told(&mut listener, &mut client).is_empty(), "none is told unless that is asked for");
    assert_eq!(client.text("CONFIG SET notify-keyspace-events Kx"), "OK");
    assert_eq!(client.call("CONFIG GET notify-keyspace-events").items()[1].text(), "xK");
    client.call("PSETEX a 1 x");
    let first = listener.reply();
    assert_eq!((first.items()[2].text(), first.items()[3].text()), ("__keyspace@0__:a".into(), "expired".into()));
    client.call("DEBUG PAUSE-CRON 1");
    client.call("PSETEX b 1 x");
    eventually("it is gone", || client.text("EXISTS b") == "0");
    assert_eq!(told(&mut listener, &mut client), ["__keyspace@0__:b expired"]);
    assert!(matches!(client.call("CONFIG SET notify-keyspace-events Kq"), Value::Error(_)));
}

/// Commands in their order, and of which keys they tell that they are not there, where that is asked for. Those that look at a key to
/// change it tell none, as in Redis.
const MISSES: &[(&str, &str)] = &[
    ("GET none", "keymiss none"),
    ("MGET none other", "keymiss none,keymiss other"),
    ("STRLEN none", "keymiss none"),
    ("EXISTS none none", "keymiss none,keymiss none"),
    ("TTL none", "keymiss none"),
    ("PEXPIRETIME none", "keymiss none"),
    ("TYPE none", "keymiss none"),
    ("TOUCH none", "keymiss none"),
    ("DUMP none", "keymiss none"),
    ("COPY none other", "keymiss none"),
    ("OBJECT ENCODING none", ""),
    ("MEMORY USAGE none", ""),
    ("WATCH none", ""),
    ("UNWATCH", ""),
    ("SCAN 0", ""),
    ("DEL none", ""),
    ("EXPIRE none 100", ""),
    ("PERSIST none", ""),
    ("GETDEL none", "keymiss none"),
    ("GETEX none EX 100", "keymiss none"),
    ("GETSET a 1", "keymiss a,set a"),
    ("SET b 1 GET", "keymiss b,set b"),
    ("SET c 1 NX", "set c"),
    ("SETNX d 1", "set d"),
    ("BITCOUNT none", "keymiss none"),
    ("BITOP OR e none a", "keymiss none,set e"),
    ("BITFIELD none GET u8 0", "keymiss none"),
    ("HGET none f", "keymiss none"),
    ("HMGET none f g", "keymiss none"),
    ("HDEL none f", ""),
    ("SISMEMBER none m", "keymiss none"),
    ("SUNIONSTORE f none other", "keymiss none,keymiss other"),
    ("SPOP none", ""),
    ("SMOVE none other m", ""),
    ("LLEN none", "keymiss none"),
    ("LPOP none", ""),
    ("LMOVE none other LEFT LEFT", ""),
    ("RPOPLPUSH none other", ""),
    ("RPUSH l 1 2", "rpush l"),
    ("SORT none", "keymiss none"),
    ("SORT l BY w_* GET v_*->f GET #", "keymiss w_1,keymiss w_2,keymiss v_1,keymiss v_2"),
    ("ZSCORE none m", "keymiss none"),
    ("ZUNION 2 none other", "keymiss none,keymiss other"),
    ("ZRANGESTORE g none 0 -1", "keymiss none"),
    ("ZPOPMIN none", ""),
    ("GEOPOS none m", "keymiss none"),
    ("PFADD p x", "pfadd p"),
    ("PFCOUNT none", "keymiss none"),
    ("PFMERGE q none p", "keymiss q,keymiss none,pfadd q"),
    ("XLEN none", "keymiss none"),
    ("XREAD STREAMS none 0", "keymiss none,keymiss none"),
    ("XACK none g 1-1", "keymiss none"),
    ("XTRIM none MAXLEN 1", ""),
];

#[test]
fn reads_of_keys_that_are_not_there_are_told_if_that_is_asked_for() {
    let server = start(&[("notify-keyspace-events", "EAm")]);
    let (mut listener, mut client) = (listener(&server), server.client());
    assert_eq!(client.call("CONFIG GET notify-keyspace-events").items()[1].text(), "AEm");
    for (line, events) in MISSES {
        let reply = client.call(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        assert_eq!(told(&mut listener, &mut client).join(","), *events, "{line}");
    }
    client.words(&[b"EVAL", b"redis.call('get', 'none') redis.call('set', 'y', 1)", b"0"]);
    assert_eq!(told(&mut listener, &mut client), ["keymiss none", "set y"]);
    for line in ["MULTI", "GET none", "LLEN other", "EXEC"] {
        client.call(line);
    }
    assert_eq!(told(&mut listener, &mut client), ["keymiss none", "keymiss other"]);
    // `A` does not stand for this class.
    client.call("CONFIG SET notify-keyspace-events EA");
    client.call("GET none");
    client.call("CONFIG SET notify-keyspace-events m");
    client.call("GET none");
    client.call("CONFIG SET notify-keyspace-events Km");
    client.call("SELECT 3");
    client.call("GET none");
    assert_eq!(told(&mut listener, &mut client), ["__keyspace@3__:none keymiss"]);
}

#[test]
fn a_key_that_a_read_finds_expired_is_told_to_be_that_and_then_missed() {
    let server = start(&[("notify-keyspace-events", "EAm")]);
    let (mut listener, mut client) = (listener(&server), server.client());
    client.call("DEBUG PAUSE-CRON 1");
    client.call("PSETEX a 1 x");
    std::thread::sleep(std::time::Duration::from_millis(20));
    told(&mut listener, &mut client);
    client.call("MGET none a b");
    assert_eq!(told(&mut listener, &mut client), ["keymiss none", "expired a", "keymiss a", "keymiss b"]);
}

#[test]
fn a_client_that_waits_for_keys_has_missed_them_once() {
    let server = start(&[("notify-keyspace-events", "EAm")]);
    let (mut listener, mut client, mut waiting) = (listener(&server), server.client(), server.client());
    waiting.send("XREAD BLOCK 0 STREAMS a b 0 0\r\n");
    eventually("it waits", || client.info("blocked_clients") == "1");
    assert_eq!(told(&mut listener, &mut client), ["keymiss a", "keymiss b", "keymiss a", "keymiss b"]);
    client.call("XADD b 1-1 f v");
    assert_eq!(waiting.reply().items().len(), 1);
    assert_eq!(told(&mut listener, &mut client), ["xadd b"]);
}

#[test]
fn misses_of_a_command_that_looks_for_very_many_keys_are_told_all_and_in_their_order() {
    let server = start(&[("notify-keyspace-events", "EAm")]);
    let (mut listener, mut client) = (listener(&server), server.client());
    let numbers: Vec<String> = (0..10_000).map(|number| format!(" {number}")).collect();
    client.call(&format!("RPUSH l{}", numbers.concat()));
    client.call("SORT l BY w_* GET v_* STORE sorted");
    let told = told(&mut listener, &mut client);
    assert_eq!(told.len(), 1 + 10_000 + 10_000 + 1);
    assert!(told[1..10_001].iter().enumerate().all(|(number, one)| *one == format!("keymiss w_{number}")));
    assert!(told[10_001..20_001].iter().all(|one| one.starts_with("keymiss v_")));
    assert_eq!(told[20_001], "sortstore sorted");
}
