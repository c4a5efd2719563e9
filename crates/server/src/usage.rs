//! How a command is written, made from its arguments.

use std::fmt::Write as _;

use crate::table::{Arg, ArgKind};

/// How the arguments are written: `key [EX seconds | PX milliseconds]`.
pub fn usage(arguments: &[Arg]) -> String {
    let words: Vec<String> = arguments.iter().map(one).collect();
    words.join(" ")
}

fn one(arg: &Arg) -> String {
    let inner = match arg.kind {
        ArgKind::OneOf => {
            let parts: Vec<String> = arg.parts.iter().map(one).collect();
            let text = parts.join(" | ");
            if arg.optional { text } else { format!("<{text}>") }
        }
        ArgKind::Block => usage(arg.parts),
        ArgKind::PureToken => String::new(),
        _ => arg.name.to_owned(),
    };
    let mut text = match arg.token {
        Some(token) if inner.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {inner}"),
        None => inner,
    };
    if arg.multiple {
        let again = text.clone();
        let _ = write!(text, " [{again} ...]");
    }
    if arg.optional { format!("[{text}]") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_written_as_in_the_manual() {
        static EXPIRY: [Arg; 2] = [Arg::int("seconds").token("EX"), Arg::word("keepttl", "KEEPTTL")];
        let arguments = [Arg::key("key"), Arg::string("value").multiple(), Arg::one_of("expiry", &EXPIRY).optional()];
        assert_eq!(usage(&arguments), "key value [value ...] [EX seconds | KEEPTTL]");
    }
}
