//! Splits a line of text into words, with quotes and escapes. Serves inline commands and the configuration file.

/// Quotes that are not closed, or closed and followed by something else than a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnbalancedQuotes;

/// Appends the words of `line` to `out` one after the other and calls `word` with the place of each in `out`.
pub fn split(line: &[u8], out: &mut Vec<u8>, mut word: impl FnMut(usize, usize)) -> Result<(), UnbalancedQuotes> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at >= line.len() || line[at] == 0 {
            return Ok(());
        }
        let start = out.len();
        at = one_word(line, at, out)?;
        word(start, out.len() - start);
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Appends the word that begins at `at`; returns where it ended.
fn one_word(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, UnbalancedQuotes> {
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => return double_quoted(line, at + 1, out),
            b'\'' => return single_quoted(line, at + 1, out),
            0 => return Ok(at),
            byte if is_space(byte) => return Ok(at),
            byte => out.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

fn double_quoted(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, UnbalancedQuotes> {
    loop {
        match line.get(at..).unwrap_or_default() {
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex(*high) << 4 | hex(*low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            [b'"', rest @ ..] => return closed(rest, at + 1),
            [0, ..] | [] => return Err(UnbalancedQuotes),
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, UnbalancedQuotes> {
    loop {
        match line.get(at..).unwrap_or_default() {
            [b'\\', b'\'', ..] => {
                out.push(b'\'');
                at += 2;
            }
            [b'\'', rest @ ..] => return closed(rest, at + 1),
            [0, ..] | [] => return Err(UnbalancedQuotes),
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

fn closed(rest: &[u8], at: usize) -> Result<usize, UnbalancedQuotes> {
    match rest.first() {
        Some(byte) if !is_space(*byte) => Err(UnbalancedQuotes),
        _ => Ok(at),
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.to_ascii_uppercase().wrapping_sub(b'A').wrapping_add(10),
    }
}

/// The words of a line, for configuration files.
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    split(line, &mut bytes, |start, len| places.push((start, len)))?;
    Ok(places.iter().map(|&(start, len)| bytes[start..start + len].to_vec()).collect())
}

/// Appends `word` in quotes, so that [`words`] reads it back whatever its bytes are.
pub fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_are_understood() {
        let line = br#"  set  "a b" 'c\'d' "\x41\n\q" "" "#;
        assert_eq!(words(line).unwrap(), [&b"set"[..], b"a b", b"c'd", b"A\nq", b""]);
        assert_eq!(words(b"").unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn quoted_words_of_any_bytes_read_back() {
        for first in 0..=255 {
            for second in 0..=255 {
                let word = [first, second, b'0', first];
                let mut line = b"name ".to_vec();
                quote(&word, &mut line);
                assert_eq!(words(&line).unwrap(), [&b"name"[..], &word]);
                assert!(!line.contains(&b'\n'), "a word stays on its line");
            }
        }
    }

    #[test]
    fn open_quotes_are_refused() {
        for line in ["\"abc", "'abc", "\"a\"b", "'a'b", "\"a\\"] {
            assert_eq!(words(line.as_bytes()), Err(UnbalancedQuotes), "{line}");
        }
    }
}
