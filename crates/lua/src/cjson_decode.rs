//! Reads JSON as lua-cjson does, its leniencies (numbers of `strtod`) and its messages included.

use mlua::{IntoLua, Lua, Value};

use crate::cjson_settings::Settings;
use crate::raise::Raise;

/// Deeper data is refused whatever the settings say, since each level takes room on the stack.
const DEEPEST: i64 = 5000;

/// A piece of the text.
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(what) => what,
        }
    }
}

/// The value of a text.
pub(crate) fn decode(lua: &Lua, text: &[u8], settings: &Settings) -> Result<Value, Raise> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Raise::message("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { lua, text, settings, at: 0, token_at: 0, depth: 0 };
    let token = decoder.next();
    let value = decoder.value(token)?;
    match decoder.next() {
        Token::End => Ok(value),
        other => Err(decoder.expected("the end", &other)),
    }
}

struct Decoder<'d> {
    lua: &'d Lua,
    text: &'d [u8],
    settings: &'d Settings,
    at: usize,
    /// Where the last token begins, or the error in it is.
    token_at: usize,
    depth: i64,
}

impl Decoder<'_> {
    /// A byte of the text, which ends in a zero byte, as a string of C.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn expected(&self, what: &str, found: &Token) -> Raise {
        Raise::Message(format!("Expected {what} but found {} at character {}", found.name(), self.token_at + 1))
    }

    fn failed(&mut self, what: &'static str) -> Token {
        self.token_at = self.at;
        Token::Error(what)
    }

    fn next(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.token_at = self.at;
        let single = match self.byte(self.at) {
            0 => return Token::End,
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decode_invalid_numbers && self.is_invalid_number() {
                    return self.failed("invalid number");
                }
                return self.number();
            }
            b'+' | b'f' | b'i' | b'I' | b'n' | b'N' | b't' => return self.word(),
            _ => return self.failed("invalid token"),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let (token, length) = if rest.starts_with(b"true") {
            (Token::Boolean(true), 4)
        } else if rest.starts_with(b"false") {
            (Token::Boolean(false), 5)
        } else if rest.starts_with(b"null") {
            (Token::Null, 4)
        } else if self.settings.decode_invalid_numbers && self.is_invalid_number() {
            return self.number();
        } else {
            return self.failed("invalid token");
        };
        self.at += length;
        token
    }

    /// Whether what looks like a number isn't one of JSON, though `strtod` may take it.
    fn is_invalid_number(&self) -> bool {
        let mut at = self.at;
        match self.byte(at) {
            b'+' => return true,
            b'-' => at += 1,
            _ => {}
        }
        match self.byte(at) {
            b'0' => matches!(self.byte(at + 1), b'x' | b'X' | b'0'..=b'9'),
            0..=b'9' => false,
            _ => {
                let rest = &self.text[at..];
                let begins = |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
                begins(b"inf") || begins(b"nan")
            }
        }
    }

    fn number(&mut self) -> Token {
        match leading_number(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => self.failed("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut string = Vec::new();
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return self.failed("unexpected end of string"),
                b'\\' => {
                    let escaped = match self.byte(self.at + 1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => {
                            let Some((character, length)) = self.unicode() else {
                                return self.failed("invalid unicode escape code");
                            };
                            push_utf8(&mut string, character);
                            self.at += length;
                            continue;
                        }
                        _ => return self.failed("invalid escape code"),
                    };
                    string.push(escaped);
                    self.at += 2;
                }
                byte => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::String(string)
    }

    /// The character of an escape, or of two that belong together, and how long they are.
    fn unicode(&self) -> Option<(u32, usize)> {
        let hex = |at: usize| -> Option<u32> {
            (0..4).try_fold(0, |number, index| Some(number << 4 | char::from(self.byte(at + index)).to_digit(16)?))
        };
        let first = hex(self.at + 2)?;
        if first & 0xF800 != 0xD800 {
            return Some((first, 6));
        }
        if first & 0x400 != 0 || self.byte(self.at + 6) != b'\\' || self.byte(self.at + 7) != b'u' {
            return None;
        }
        let second = hex(self.at + 8)?;
        (second & 0xFC00 == 0xDC00).then(|| (((first & 0x3FF) << 10 | second & 0x3FF) + 0x1_0000, 12))
    }

    fn value(&mut self, token: Token) -> Result<Value, Raise> {
        Ok(match token {
            Token::String(bytes) => Value::String(self.lua.create_string(bytes)?),
            Token::Number(number) => number.into_lua(self.lua)?,
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            other => return Err(self.expected("value", &other)),
        })
    }

    fn descend(&mut self) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth > self.settings.decode_max_depth.min(DEEPEST) {
            return Err(Raise::Message(format!("Found too many nested data structures ({})", self.depth)));
        }
        Ok(())
    }

    fn object(&mut self) -> Result<Value, Raise> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token, Token::ObjectEnd) {
            loop {
                let Token::String(key) = token else { return Err(self.expected("object key string", &token)) };
                let colon = self.next();
                if !matches!(colon, Token::Colon) {
                    return Err(self.expected("colon", &colon));
                }
                let first = self.next();
                let value = self.value(first)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                match self.next() {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.expected("comma or object end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value, Raise> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token, Token::ArrayEnd) {
            for index in 1i64.. {
                let value = self.value(token)?;
                table.raw_set(index, value)?;
                match self.next() {
                    Token::ArrayEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.expected("comma or array end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}

fn push_utf8(bytes: &mut Vec<u8>, character: u32) {
    // Halves of pairs don't get here.
    let character = char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The number that a text begins with, as `strtod` reads it, and its length.
fn leading_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let negative = text.first() == Some(&b'-');
    let rest = &text[sign..];
    let signed = |number: f64| if negative { -number } else { number };
    let begins = |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        return Some((signed(f64::INFINITY), sign + 8));
    } else if begins(b"inf") {
        return Some((signed(f64::INFINITY), sign + 3));
    } else if begins(b"nan") {
        return Some((signed(f64::NAN), sign + 3));
    } else if begins(b"0x") && rest.get(2).is_some_and(|byte| byte.is_ascii_hexdigit() || *byte == b'.') {
        return hexadecimal(&rest[2..]).map(|(number, length)| (signed(number), sign + 2 + length));
    }
    let digits = |at: usize| rest[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut any = end > 0;
    if rest.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        any |= fraction > 0;
        end += 1 + fraction;
    }
    if !any {
        return None;
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let exponent_sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        let exponent = rest.get(end + 1 + exponent_sign..).map_or(0, |_| digits(end + 1 + exponent_sign));
        if exponent > 0 {
            end += 1 + exponent_sign + exponent;
        }
    }
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse::<f64>().ok()?;
    Some((signed(number), sign + end))
}

/// Hexadecimal digits, with a fraction and a binary exponent.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let (mut number, mut at, mut scale, mut any) = (0.0f64, 0, 0i32, false);
    let mut in_fraction = false;
    loop {
        match text.get(at) {
            Some(b'.') if !in_fraction => in_fraction = true,
            Some(byte) if byte.is_ascii_hexdigit() => {
                number = number * 16.0 + f64::from(char::from(*byte).to_digit(16)?);
                scale -= if in_fraction { 4 } else { 0 };
                any = true;
            }
            _ => break,
        }
        at += 1;
    }
    if !any {
        return None;
    }
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let digits =
            text.get(at + 1 + sign..).map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
        if digits > 0 {
            let exponent = std::str::from_utf8(&text[at + 1..at + 1 + sign + digits]).ok()?;
            scale =
                scale.saturating_add(exponent.parse().unwrap_or(if exponent.starts_with('-') { -5000 } else { 5000 }));
            at += 1 + sign + digits;
        }
    }
    Some((number * 2f64.powi(scale), at))
}
