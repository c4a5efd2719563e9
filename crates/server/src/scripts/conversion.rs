//! What a script returns, as a reply. The other way, from the reply of a command to a value of the script, is `quire-lua`'s.

use quire_lua::mlua::{self, Table, Value};

use crate::resp::{Protocol, Reply};

/// Tables within tables that a reply may have: what is deeper is an error, as it takes the stack.
const DEEPEST: usize = 200;
/// Elements that a table may have for one element of a reply at least. The memory of the interpreter doesn't bound a reply whose
/// elements are the same table over and over.
const MOST_REPLY_BYTES: usize = 1 << 30;

/// How deep a value lies within others, and the protocol that the script has chosen (`redis.setresp`).
#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    script: Protocol,
}

impl Level {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

/// Writes what a script has returned. Its booleans are booleans to a client only if the script has chosen RESP3.
pub fn write_reply(reply: &mut Reply, value: &Value, script: Protocol) -> mlua::Result<()> {
    write(reply, value, Level { depth: 0, script })
}

/// Whether what a script has returned is the error of a command, which was counted when the command failed.
pub fn is_counted_error(value: &Value) -> bool {
    let Value::Table(table) = value else { return false };
    matches!(table.raw_get::<Value>("err"), Ok(Value::String(_)))
        && table.raw_get::<bool>("ignore_error_stats_update").unwrap_or(false)
}

fn write(reply: &mut Reply, value: &Value, level: Level) -> mlua::Result<()> {
    match value {
        Value::String(string) => reply.bulk(&string.as_bytes()),
        Value::Integer(number) => reply.int(*number),
        Value::Number(number) => reply.int(integer(*number)),
        Value::Boolean(value) if level.script == Protocol::Resp3 => reply.boolean(*value),
        Value::Boolean(true) => reply.int(1),
        Value::Table(_) if level.depth > DEEPEST => reply.error("ERR reached lua stack limit"),
        Value::Table(_) if reply.len() > MOST_REPLY_BYTES => reply.error("ERR the reply of the script is too large"),
        Value::Table(table) => write_table(reply, table, level)?,
        _ => reply.null(),
    }
    Ok(())
}

/// As in C: what is out of range is the least number.
fn integer(number: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) { number as i64 } else { i64::MIN }
}

/// Bytes of a line, which ends where one does.
fn line_of(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

fn write_line(reply: &mut Reply, kind: &[u8], line: &[u8]) {
    reply.raw(kind);
    reply.raw(line);
    reply.raw(b"\r\n");
}

fn write_table(reply: &mut Reply, table: &Table, level: Level) -> mlua::Result<()> {
    if let Value::String(line) = table.raw_get("err")? {
        write_line(reply, b"-", &line_of(without_line_end(&line.as_bytes())));
    } else if let Value::String(line) = table.raw_get("ok")? {
        write_line(reply, b"+", &line_of(&line.as_bytes()));
    } else if let Some(number) = number_in(table, "double")? {
        reply.double(number);
    } else if let Value::Table(map) = table.raw_get("map")? {
        let mark = reply.begin_array();
        let mut pairs = 0;
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write(reply, &key, level.deeper())?;
            write(reply, &value, level.deeper())?;
            pairs += 1;
        }
        reply.end_map(mark, pairs);
    } else if let Value::Table(set) = table.raw_get("set")? {
        let mark = reply.begin_array();
        let mut length = 0;
        for pair in set.pairs::<Value, Value>() {
            write(reply, &pair?.0, level.deeper())?;
            length += 1;
        }
        reply.end_set(mark, length);
    } else if let Value::String(digits) = table.raw_get("big_number")? {
        reply.bignum(&String::from_utf8_lossy(&line_of(&digits.as_bytes())));
    } else if let Some((format, text)) = verbatim_in(table)? {
        let format = format!("{:<3}", format.to_string_lossy().chars().take(3).collect::<String>());
        reply.verbatim(&format, &text.as_bytes());
    } else {
        write_list(reply, table, level)?;
    }
    Ok(())
}

/// An error without the ends of lines that it ends in: it is one line.
pub fn without_line_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &line[..end]
}

fn number_in(table: &Table, name: &str) -> mlua::Result<Option<f64>> {
    Ok(match table.raw_get(name)? {
        Value::Number(number) => Some(number),
        Value::Integer(number) => Some(number as f64),
        _ => None,
    })
}

fn verbatim_in(table: &Table) -> mlua::Result<Option<(mlua::String, mlua::String)>> {
    let Value::Table(verbatim) = table.raw_get("verbatim_string")? else { return Ok(None) };
    match (verbatim.raw_get("format")?, verbatim.raw_get("string")?) {
        (Value::String(format), Value::String(text)) => Ok(Some((format, text))),
        _ => Ok(None),
    }
}

fn write_list(reply: &mut Reply, table: &Table, level: Level) -> mlua::Result<()> {
    let mark = reply.begin_array();
    let mut length = 0;
    loop {
        let value: Value = table.raw_get(length + 1)?;
        if value.is_nil() || reply.overflowed() {
            break;
        }
        write(reply, &value, level.deeper())?;
        length += 1;
    }
    reply.end_array(mark, length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use quire_lua::Interpreter;

    use super::*;

    fn returned(protocol: Protocol, source: &str) -> String {
        returned_by(protocol, protocol, source)
    }

    /// What a script of one protocol returns to a client of another one.
    fn returned_by(script: Protocol, protocol: Protocol, source: &str) -> String {
        let interpreter = Interpreter::new(64 << 20).unwrap();
        let function = interpreter.compile("x", source.as_bytes()).unwrap();
        let value: Value = function.call(()).unwrap();
        let mut reply = Reply::new(protocol);
        write_reply(&mut reply, &value, script).unwrap();
        String::from_utf8(reply.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn what_a_script_returns_is_a_reply_of_either_protocol() {
        for (source, two, three) in [
            ("return 3.99", ":3\r\n", ":3\r\n"),
            ("return 1e20", ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            ("return 'a'", "$1\r\na\r\n", "$1\r\na\r\n"),
            ("return true", ":1\r\n", "#t\r\n"),
            ("return false", "$-1\r\n", "#f\r\n"),
            ("return nil", "$-1\r\n", "_\r\n"),
            (
                "return {1, 'a', {2}, nil, 3}",
                "*3\r\n:1\r\n$1\r\na\r\n*1\r\n:2\r\n",
                "*3\r\n:1\r\n$1\r\na\r\n*1\r\n:2\r\n",
            ),
            ("return {ok = 'a\\r\\nb'}", "+a  b\r\n", "+a  b\r\n"),
            ("return {err = 'MY x\\n'}", "-MY x\r\n", "-MY x\r\n"),
            ("return {double = 1.5}", "$3\r\n1.5\r\n", ",1.5\r\n"),
            ("return {map = {a = 1}}", "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"),
            ("return {set = {a = true}}", "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"),
            ("return {big_number = '123'}", "$3\r\n123\r\n", "(123\r\n"),
            ("return {verbatim_string = {format = 'txt', string = 'a'}}", "$1\r\na\r\n", "=5\r\ntxt:a\r\n"),
            ("return function() end", "$-1\r\n", "_\r\n"),
        ] {
            assert_eq!(returned(Protocol::Resp2, source), two, "{source}");
            assert_eq!(returned(Protocol::Resp3, source), three, "{source}");
        }
    }

    #[test]
    fn booleans_are_numbers_and_nulls_unless_the_script_has_chosen_resp3() {
        for (source, plain, chosen) in
            [("return true", ":1\r\n", ":1\r\n"), ("return {false}", "*1\r\n_\r\n", "*1\r\n:0\r\n")]
        {
            assert_eq!(returned_by(Protocol::Resp2, Protocol::Resp3, source), plain, "{source}");
            assert_eq!(returned_by(Protocol::Resp3, Protocol::Resp2, source), chosen, "{source}");
        }
    }

    #[test]
    fn a_table_within_itself_gives_an_error_and_no_endless_reply() {
        let text = returned(Protocol::Resp2, "local t = {} t[1] = t return t");
        assert!(text.ends_with("-ERR reached lua stack limit\r\n"), "{text}");
    }
}
