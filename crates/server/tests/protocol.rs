//! The wire protocol over real sockets: both request forms, both reply protocols, pieces of any size, and what is refused.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Client, Value, framed, request, start};

#[test]
fn inline_commands_are_understood_with_quotes_and_escapes() {
    let server = start(&[]);
    let mut client = server.client();
    client.send("PING\r\nset k \"a\\x41 b\"\n  get   k  \r\n\r\n\r\nstrlen k\r\n");
    assert_eq!(client.reply(), Value::Simple("PONG".into()));
    assert_eq!(client.reply(), Value::Simple("OK".into()));
    assert_eq!(client.reply(), Value::Bulk(b"aA b".to_vec()));
    assert_eq!(client.reply(), Value::Int(4));
}

#[test]
fn a_pipeline_finds_its_keys_though_a_command_in_it_replaces_all_data() {
    let server = start(&[]);
    let mut client = server.client();
    let script = "return redis.call('get', KEYS[1])";
    let words: &[&[&str]] = &[
        &["SET", "k", "1"],
        &["DEBUG", "RELOAD"],
        &["GET", "k"],
        &["MULTI"],
        &["SET", "k", "2"],
        &["GET", "k"],
        &["EXEC"],
        &["EVAL", script, "1", "k"],
        &["FLUSHALL"],
        &["SET", "k", "3"],
        &["RENAME", "k", "l"],
        &["GET", "k"],
        &["GET", "l"],
    ];
    let requests: Vec<Vec<u8>> =
        words.iter().map(|words| framed(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())).collect();
    client.send(requests.concat());
    client.send("get \"l\"\r\n");
    let replies: Vec<Value> = (0..=words.len()).map(|_| client.reply()).collect();
    let texts = |range: std::ops::Range<usize>| replies[range].iter().map(Value::text).collect::<Vec<_>>();
    assert_eq!(texts(0..6), ["OK", "OK", "1", "OK", "QUEUED", "QUEUED"]);
    assert_eq!(replies[6].items().iter().map(Value::text).collect::<Vec<_>>(), ["OK", "2"]);
    assert_eq!(texts(7..14), ["2", "OK", "OK", "OK", "(nil)", "3", "3"]);
}

#[test]
fn the_protocol_can_be_changed_both_ways() {
    let server = start(&[]);
    let mut client = server.client();
    let Value::Array(two) = client.call("HELLO 2") else { panic!("a flat map") };
    assert_eq!((two.len(), two[0].text()), (14, "server".into()));
    let Value::Map(three) = client.call("HELLO 3 SETNAME me") else { panic!("a map") };
    let field = |name: &str| three.iter().find(|(key, _)| key.text() == name).unwrap().1.clone();
    assert_eq!(
        (field("proto"), field("mode").text(), field("modules")),
        (Value::Int(3), "standalone".into(), Value::Array(vec![]))
    );
    assert_eq!(client.call("GET none"), Value::Null);
    assert_eq!(client.text("CLIENT GETNAME"), "me");
    assert!(matches!(client.call("INFO server"), Value::Verbatim(_)));
    assert!(matches!(client.call("CONFIG GET port"), Value::Map(_)));
    assert_eq!(client.text("HELLO 4"), "NOPROTO unsupported protocol version");
    assert_eq!(client.text("HELLO x"), "ERR Protocol version is not an integer or out of range");
    assert_eq!(client.text("HELLO 3 FOO"), "ERR Syntax error in HELLO option 'FOO'");
    assert_eq!(client.text("RESET"), "RESET");
    assert!(matches!(client.call("CONFIG GET port"), Value::Array(_)));
    assert_eq!(client.call("CLIENT GETNAME"), Value::Null);
}

#[test]
fn requests_may_come_byte_by_byte() {
    let server = start(&[]);
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut client = Client::over(stream);
    let mut bytes = framed(&[b"SET", b"key", b"with\r\nline"]);
    bytes.extend(b"get key\r\n");
    bytes.extend(framed(&[b"GET", b"key"]));
    for byte in bytes {
        writer.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(client.reply(), Value::Simple("OK".into()));
    for _ in 0..2 {
        assert_eq!(client.reply(), Value::Bulk(b"with\r\nline".to_vec()));
    }
}

#[test]
fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let server = start(&[]);
    for piece in [1 << 20, 4099, 61] {
        let mut client = server.client();
        let mut bytes = Vec::new();
        for number in 0..2000 {
            bytes.extend(request(&format!("SET key:{number} value:{number}")));
            bytes.extend(request(&format!("GET key:{number}")));
            bytes.extend(format!("STRLEN key:{number}\r\n").bytes());
        }
        for part in bytes.chunks(piece) {
            client.send(part);
        }
        for number in 0..2000 {
            let value = format!("value:{number}");
            assert_eq!(client.text_of_reply(), "OK");
            assert_eq!(client.text_of_reply(), value);
            assert_eq!(client.reply(), Value::Int(value.len() as i64));
        }
    }
}

#[test]
fn what_is_not_the_protocol_is_named_and_ends_the_connection() {
    let server = start(&[]);
    let long = [b'a'; 70_000];
    let mut long_count = b"*".to_vec();
    long_count.extend([b'1'; 70_000]);
    let cases: &[(&[u8], &str)] = &[
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$abc\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*abc\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*2\r\n$4\r\nPING\r\n+x\r\n", "expected '$', got '+'"),
        (b"set \"a\r\n", "unbalanced quotes in request"),
        (&long, "too big inline request"),
        (&long_count, "too big mbulk count string"),
    ];
    for (bytes, reason) in cases {
        let mut client = server.client();
        // What came before the fault is still run.
        client.send(b"PING\r\n");
        client.try_send(bytes);
        client.try_send(b"\r\nPING\r\n");
        assert_eq!(client.text_of_reply(), "PONG");
        assert_eq!(client.text_of_reply(), format!("ERR Protocol error: {reason}"));
        assert_eq!(client.try_reply(), None);
    }
    assert_eq!(server.client().text("PING"), "PONG");
}

#[test]
fn empty_and_negative_counts_are_nothing() {
    let server = start(&[]);
    let mut client = server.client();
    client.send("*0\r\n*-1\r\n*-100\r\n\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(client.text_of_reply(), "PONG");
}

#[test]
fn errors_say_what_was_wrong() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.text("NOSUCH a b"), "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ");
    assert_eq!(client.text("GET"), "ERR wrong number of arguments for 'get' command");
    assert_eq!(client.text("CONFIG"), "ERR wrong number of arguments for 'config' command");
    assert_eq!(client.text("CONFIG GET"), "ERR wrong number of arguments for 'config|get' command");
    assert_eq!(client.text("CONFIG NOSUCH"), "ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.");
    let Value::Error(line) = client.words(&[b"no\r\nsuch", b"\xff\xfe"]) else { panic!("an error") };
    assert!(line.starts_with("ERR unknown command 'no  such'"), "{line}");
    assert_eq!(client.words(&[b""]).text(), "ERR unknown command '', with args beginning with: ");
}

#[test]
fn a_large_value_comes_back_as_it_was_sent() {
    let server = start(&[]);
    let mut client = server.client();
    let value: Vec<u8> = (0..40_000_000u32).map(|number| (number ^ number >> 8) as u8).collect();
    assert_eq!(client.words(&[b"SET", b"big", &value]).text(), "OK");
    assert_eq!(client.call("STRLEN big"), Value::Int(40_000_000));
    let Value::Bulk(back) = client.call("GET big") else { panic!("a value") };
    assert!(back == value);
}

#[test]
fn a_web_page_cannot_make_a_browser_run_commands() {
    let server = start(&[]);
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET hacked 1\r\n");
    client.closed();
    assert_eq!(server.client().call("EXISTS hacked"), Value::Int(0));
}

impl Client {
    fn text_of_reply(&mut self) -> String {
        self.reply().text()
    }
}
