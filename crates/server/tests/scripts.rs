//! Scripts through the wire: their limits, how they are ended, what they leave in the log.

use crate::common::{self, Client, Value, framed, start, start_in};

/// Long enough for a script to be over its time, which is a millisecond in these tests.
const ENDLESS: &str = "while true do end";

fn eval(client: &mut Client, script: &str) -> Value {
    client.words(&[b"EVAL", script.as_bytes(), b"0"])
}

fn begin(client: &mut Client, script: &str) {
    client.send(framed(&[b"EVAL", script.as_bytes(), b"0"]));
}

fn text(value: &Value) -> String {
    value.text()
}

#[test]
fn other_clients_are_told_that_a_script_is_slow_and_may_end_it() {
    let server = start(&[("busy-reply-threshold", "1")]);
    for script in [
        ENDLESS,
        "while true do pcall(function() while true do end end) end",
        "while true do redis.pcall('get', 'x') end",
        "while true do redis.call('get', 'x') end",
    ] {
        let (mut slow, mut other) = (server.client(), server.client());
        begin(&mut slow, script);
        common::eventually("others are refused", || {
            other.text("PING").starts_with("BUSY Redis is busy running a script.")
        });
        assert!(other.text("GET x").starts_with("BUSY"));
        assert!(other.text("EVAL return\u{a0}1 0").starts_with("BUSY"));
        assert_eq!(server.client().text("SCRIPT KILL"), "OK", "also for a client that has just come");
        let reply = text(&slow.reply());
        assert!(reply.starts_with("ERR Script killed by user with SCRIPT KILL."), "{reply}");
        assert_eq!(other.text("PING"), "PONG");
        assert_eq!(other.text("SCRIPT KILL"), "NOTBUSY No scripts in execution right now.");
    }
}

#[test]
fn replies_that_were_put_off_come_while_a_script_of_the_same_turn_runs() {
    let server = start(&[("busy-reply-threshold", "1")]);
    let (mut sleeper, mut first, mut slow, mut killer) =
        (server.client(), server.client(), server.client(), server.client());
    for client in [&mut sleeper, &mut first, &mut slow, &mut killer] {
        assert_eq!(client.text("PING"), "PONG");
    }
    // Both are ready, one after the other, when the loop looks again.
    sleeper.send(common::request("DEBUG SLEEP 0.2"));
    first.send(common::request("ECHO early"));
    begin(&mut slow, ENDLESS);
    assert_eq!(sleeper.reply().text(), "OK");
    assert_eq!(first.reply().text(), "early");
    common::eventually("others are refused", || first.text("PING").starts_with("BUSY"));
    assert_eq!(killer.text("SCRIPT KILL"), "OK");
    assert!(text(&slow.reply()).starts_with("ERR Script killed by user"));
}

#[test]
fn a_script_that_has_written_goes_on_unless_the_server_ends_without_a_save() {
    let mut server = start(&[("busy-reply-threshold", "1")]);
    let (mut slow, mut other) = (server.client(), server.client());
    begin(&mut slow, "redis.call('set', 'x', 1) while true do end");
    common::eventually("others are refused", || other.text("PING").starts_with("BUSY"));
    assert!(other.text("SCRIPT KILL").starts_with("UNKILLABLE "));
    assert!(other.text("SHUTDOWN").starts_with("BUSY "));
    other.send(framed(&[b"SHUTDOWN", b"NOSAVE"]));
    common::eventually("the server ends", || server.ended());
}

#[test]
fn what_a_client_sends_while_a_script_runs_is_not_lost() {
    let server = start(&[("busy-reply-threshold", "1")]);
    let (mut slow, mut other) = (server.client(), server.client());
    begin(&mut slow, ENDLESS);
    common::eventually("others are refused", || other.text("PING").starts_with("BUSY"));
    let request = framed(&[b"SET", b"k", &[b'v'; 100_000]]);
    other.send(&request[..50_000]);
    assert_eq!(server.client().text("SCRIPT KILL"), "OK");
    slow.reply();
    other.send(&request[50_000..]);
    assert_eq!(text(&other.reply()), "OK");
    assert_eq!(other.text("STRLEN k"), "100000");
}

#[test]
fn memory_and_depth_are_bounded_and_the_next_script_runs() {
    let server = start(&[("script-max-memory", "16mb")]);
    let mut client = server.client();
    for script in [
        "return string.rep('x', 1e9)",
        "local t = {} for i = 1, 1e9 do t[i] = 'x' .. i end",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do pcall(function() t[#t + 1] = string.rep('x', 1e6) end) if #t > 1e5 then return 1 end if #t > 10 then error('full') end end",
        "local function f() return 1 + f() end return f()",
        "return cjson.decode(string.rep('[', 1e6))",
        "local t = {} t.t = t return cjson.encode(t)",
    ] {
        assert!(matches!(eval(&mut client, script), Value::Error(_)), "{script}");
        assert_eq!(eval(&mut client, "return 'well'").text(), "well", "after {script}");
    }
    let nested = eval(&mut client, "local t = {} t[1] = t return t");
    assert!(!nested.items().is_empty());
    assert_eq!(client.text("PING"), "PONG");
}

#[test]
fn what_a_script_has_written_is_one_record_of_its_effects() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "no")];
    {
        let server = start_in(dir.path(), &settings);
        let mut client = server.client();
        client.text("RPUSH l a b c");
        let before: u64 = client.info("log_appended_record").parse().unwrap();
        let script = "redis.call('set', 'n', math.random(1000)) redis.call('expire', 'n', 100) redis.call('spop', 'none') \
            redis.call('select', 1) redis.call('incrbyfloat', 'f', '0.1') redis.pcall('lpush', 'n', 1) \
            redis.call('lpop', 'l') error('half way')";
        assert!(text(&eval(&mut client, script)).starts_with("ERR user_script:1: half way script: "));
        let after: u64 = client.info("log_appended_record").parse().unwrap();
        assert_eq!(after, before + 1);
        assert!(matches!(eval(&mut client, "return redis.call('get', 'n')"), Value::Bulk(_)));
        assert_eq!(client.info("log_appended_record").parse::<u64>().unwrap(), after);
        client.text("SET drawn 1");
    }
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    let drawn: u32 = client.text("GET n").parse().unwrap();
    assert!((1..=1000).contains(&drawn));
    assert!((1..=100).contains(&client.call("TTL n").int()));
    assert_eq!(client.call("LRANGE l 0 -1").items().len(), 3, "the list is of database 0, and the script was in 1");
    client.text("SELECT 1");
    assert_eq!(client.text("GET f"), "0.1");
}

#[test]
fn watches_events_and_monitors_see_what_a_script_does() {
    let server = start(&[("notify-keyspace-events", "KEA")]);
    let (mut client, mut listener, mut monitor) = (server.client(), server.client(), server.client());
    listener.call("SUBSCRIBE __keyevent@0__:set");
    monitor.text("MONITOR");
    client.text("WATCH k");
    eval(&mut client, "return redis.call('set', 'k', 1)");
    assert_eq!(listener.reply().items()[2].text(), "k");
    assert!(text(&monitor.reply()).contains("\"WATCH\""));
    assert!(text(&monitor.reply()).contains("\"EVAL\""));
    assert!(text(&monitor.reply()).contains("[0 lua] \"set\" \"k\" \"1\""));
    client.text("MULTI");
    client.text("PING");
    assert_eq!(client.call("EXEC"), Value::Null);
}

#[test]
fn scripts_obey_maxmemory_until_they_have_written() {
    let server = start(&[("maxmemory", "1")]);
    let mut client = server.client();
    let refused = text(&eval(&mut client, "return redis.call('set', 'x', 1)"));
    assert!(refused.starts_with("OOM command not allowed when used memory > 'maxmemory'."), "{refused}");
    assert_eq!(eval(&mut client, "return redis.call('del', 'x')"), Value::Int(0));
    assert_eq!(text(&eval(&mut client, "redis.call('del', 'x') return redis.call('set', 'x', 1)")), "OK");
    assert!(text(&eval(&mut client, "#!lua\nreturn 1")).starts_with("OOM allow-oom flag is not set on the script"));
    assert_eq!(text(&eval(&mut client, "#!lua flags=allow-oom\nreturn redis.call('set', 'x', 1)")), "OK");
    assert_eq!(eval(&mut client, "#!lua flags=no-writes\nreturn 1"), Value::Int(1));
}

#[test]
fn an_error_that_a_script_passes_on_is_counted_once() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("SET s x");
    eval(&mut client, "return redis.call('lpush', 's', 1)");
    assert!(client.text("INFO errorstats").contains("errorstat_WRONGTYPE:count=1\r\n"));
    assert!(client.text("INFO commandstats").contains("cmdstat_lpush:calls=1"));
    assert_eq!(client.info("number_of_cached_scripts"), "1");
    let mut counted = |script: &str| {
        client.call("CONFIG RESETSTAT");
        eval(&mut client, script);
        client.text("INFO errorstats").lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counted("return redis.pcall('lpush', 's', 1)"), ["errorstat_WRONGTYPE:count=1"]);
    assert_eq!(counted("redis.pcall('lpush', 's', 1) return 1"), ["errorstat_WRONGTYPE:count=1"]);
    let both = ["errorstat_MINE:count=1", "errorstat_WRONGTYPE:count=1"];
    assert_eq!(counted("redis.pcall('lpush', 's', 1) return {err = 'MINE x'}"), both);
    assert_eq!(counted("redis.pcall('lpush', 's', 1) error({err = 'MINE x'})"), both);
}

#[test]
fn replies_of_resp3_reach_scripts_that_ask_for_them() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("HSET h f v");
    assert_eq!(text(&eval(&mut client, "redis.setresp(3) return redis.call('hgetall', 'h').map.f")), "v");
    assert_eq!(eval(&mut client, "return #redis.call('hgetall', 'h')"), Value::Int(2));
    assert_eq!(text(&eval(&mut client, "redis.setresp(3) return type(redis.call('get', 'none'))")), "nil");
}

#[test]
fn a_script_that_calls_a_blocking_command_does_not_wait() {
    let server = start(&[("appendonly", "yes")]);
    let mut client = server.client();
    for call in ["'blpop', 'l', 0", "'brpoplpush', 'l', 'm', 0", "'bzpopmin', 'l', 0", "'bzmpop', 0, 1, 'l', 'min'"] {
        assert_eq!(eval(&mut client, &format!("return tostring(redis.call({call}))")).text(), "false", "{call}");
    }
    assert_eq!(eval(&mut client, "return redis.call('wait', 1, 0)"), Value::Int(0));
    for (command, call) in [
        ("XREAD", "'XREAD', 'BLOCK', 0, 'STREAMS', 's', '$'"),
        ("xreadgroup", "'xreadgroup', 'GROUP', 'g', 'c', 'BLOCK', 0, 'STREAMS', 's', '>'"),
    ] {
        let refused = format!("ERR {command} command is not allowed with BLOCK option from scripts");
        assert_eq!(eval(&mut client, &format!("return redis.pcall({call})")).text(), refused);
    }
    client.text("RPUSH l a b");
    assert_eq!(eval(&mut client, "return redis.call('blpop', 'l', 0)[2]").text(), "a");
    assert_eq!(eval(&mut client, "return redis.call('blmove', 'l', 'm', 'left', 'left', 0)").text(), "b");
}

#[test]
fn members_of_a_set_that_a_script_takes_as_they_come_have_an_order() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("SADD s c aa b a aaa");
    let sorted = |client: &mut Client, words: &str| {
        text(&eval(client, &format!("return table.concat(redis.call('sort', 's', {words}), ' ')")))
    };
    assert_eq!(sorted(&mut client, "'by', '_'"), "a aa aaa b c");
    assert_eq!(sorted(&mut client, "'by', '_', 'desc', 'limit', 0, 2"), "c b");
}

#[test]
fn scripts_for_valkey_find_the_library_by_its_name_there() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(eval(&mut client, "return server.call('set', 'k', server.sha1hex(''))").text(), "OK");
    assert!(text(&eval(&mut client, "server.call = 1")).contains("Attempt to modify a readonly table"));
}

#[test]
fn scripts_may_call_commands_of_operators_while_debug_says_so() {
    let server = start(&[]);
    let mut client = server.client();
    let refused = "ERR This Redis command is not allowed from script";
    assert!(text(&eval(&mut client, "return redis.call('debug', 'protocol', 'integer')")).starts_with(refused));
    assert_eq!(client.text("DEBUG SET-DISABLE-DENY-SCRIPTS 1"), "OK");
    assert_eq!(eval(&mut client, "return redis.call('debug', 'protocol', 'integer')"), Value::Int(12345));
    for call in ["'eval', 'return 1', 0", "'multi'", "'save'", "'shutdown'", "'subscribe', 'c'", "'debug', 'reload'"] {
        assert!(text(&eval(&mut client, &format!("return redis.call({call})"))).starts_with("ERR "), "{call}");
    }
    client.text("DEBUG SET-DISABLE-DENY-SCRIPTS 0");
    assert!(text(&eval(&mut client, "return redis.call('debug', 'protocol', 'integer')")).starts_with(refused));
}

#[test]
fn thousands_of_scripts_are_kept_and_values_that_are_too_many_end_only_their_script() {
    let server = start(&[]);
    let mut client = server.client();
    let mut first = String::new();
    for number in 0..8200 {
        let digest = client.words(&[b"SCRIPT", b"LOAD", format!("return {number}").as_bytes()]).text();
        if number == 7 {
            first = digest;
        }
    }
    assert_eq!(client.info("number_of_cached_scripts"), "8200");
    assert_eq!(client.text(&format!("EVALSHA {first} 0")), "7");
    // The last ones leave no place for the error that they are to be told.
    for count in 7600..8000 {
        let script =
            format!("local t = {{}} for i = 1, {count} do t[i] = 'x' .. i end return redis.acl_check_cmd(unpack(t))");
        let reply = eval(&mut client, &script);
        assert!(matches!(reply, Value::Error(_)), "{count}: {reply:?}");
    }
    assert_eq!(eval(&mut client, "return 6"), Value::Int(6));
}

#[test]
fn what_a_slow_script_publishes_to_its_own_client_reaches_no_other_one() {
    let server = start(&[("busy-reply-threshold", "1")]);
    let (mut slow, mut other) = (server.client(), server.client());
    slow.call("HELLO 3");
    slow.call("SUBSCRIBE news");
    begin(&mut slow, "redis.call('publish', 'news', 'mine') while true do end");
    common::eventually("others are refused", || other.text("PING").starts_with("BUSY"));
    assert!(other.text("GET x").starts_with("BUSY"), "nothing else was sent");
    assert_eq!(other.text("SCRIPT KILL"), "OK");
    assert!(text(&slow.reply()).starts_with("ERR Script killed by user"));
    assert_eq!(slow.reply().items()[2], Value::Bulk("mine".into()));
}
