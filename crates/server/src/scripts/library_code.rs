//! The first line of a library of functions, `#!lua name=…`, which says what it is called.

use crate::resp::inline;

/// Why a library or a function can't be called so; Redis says it of both in these words.
pub(super) const WRONG_NAME: &str =
    "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// A library's text, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LibraryCode<'t> {
    /// All of it.
    pub text: &'t [u8],
    /// Where its first line ends and its code begins, so that lines count as they stand there.
    pub code: &'t [u8],
}

/// A name that only has what names may have.
pub(super) fn valid_name(name: &[u8]) -> Option<String> {
    let is_valid = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    is_valid.then(|| String::from_utf8_lossy(name).into_owned())
}

/// The name of a library.
///
/// # Errors
/// The text says what is wrong with its first line.
pub fn library_name(text: &[u8]) -> Result<String, String> {
    parse(text).map(|(name, _)| name)
}

/// Reads a library's first line; returns its name and its code.
///
/// # Errors
/// The text says what is wrong with it.
pub(super) fn parse(text: &[u8]) -> Result<(String, LibraryCode<'_>), String> {
    const INVALID: &str = "Invalid library metadata";
    if !text.starts_with(b"#!") {
        return Err("Missing library metadata".to_owned());
    }
    let end =
        text.iter().position(|byte| matches!(byte, b'\n' | 0)).filter(|end| text[*end] == b'\n').ok_or(INVALID)?;
    let words = inline::words(&text[..end]).map_err(|_| INVALID)?;
    let (engine, options) = words.split_first().ok_or(INVALID)?;
    let mut name = None;
    for option in options {
        let value = option.get(..5).filter(|start| start.eq_ignore_ascii_case(b"name=")).map(|_| &option[5..]);
        match value {
            Some(_) if name.is_some() => {
                return Err("Invalid metadata value, name argument was given multiple times".to_owned());
            }
            Some(value) => name = Some(value),
            None => return Err(format!("Invalid metadata value given: {}", String::from_utf8_lossy(option))),
        }
    }
    let name = valid_name(name.ok_or("Library name was not given")?).ok_or(WRONG_NAME)?;
    let engine = engine.get(2..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("Engine '{}' not found", String::from_utf8_lossy(engine)));
    }
    Ok((name, LibraryCode { text, code: &text[end..] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_engine_and_library() {
        let (name, code) = parse(b"#!LUA name=my_lib1\nreturn 1").unwrap();
        assert_eq!((name.as_str(), code.code), ("my_lib1", &b"\nreturn 1"[..]));
        assert_eq!(parse(b"#!lua NAME='a'\n").unwrap().0, "a");
        for (text, error) in [
            (&b"return 1"[..], "Missing library metadata"),
            (b"#!lua name=a", "Invalid library metadata"),
            (b"#!lua name=a\0\n", "Invalid library metadata"),
            (b"#!lua name='a\n", "Invalid library metadata"),
            (b"#!lua\n", "Library name was not given"),
            (b"#!lua name=a name=b\n", "Invalid metadata value, name argument was given multiple times"),
            (b"#!lua flags=a name=b\n", "Invalid metadata value given: flags=a"),
            (b"#!lua name=\n", WRONG_NAME),
            (b"#!lua name=a-b\n", WRONG_NAME),
            (b"#!perl name=a\n", "Engine 'perl' not found"),
        ] {
            assert_eq!(parse(text).unwrap_err(), error, "{}", text.escape_ascii());
        }
    }
}
