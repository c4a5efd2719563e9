//! The settings of scripts and their directives. Relies on `directive` and `value`.

use std::borrow::Cow;

use super::directive::{Directive, Setting};
use super::value;

const MUTABLE: bool = true;

/// What a script may take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScriptLimits {
    /// How long it may run before other clients are served; 0 is no limit.
    pub busy_reply_threshold_ms: i64,
    /// Memory that the interpreter may take.
    pub max_memory_bytes: u64,
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    Directive {
        name: "busy-reply-threshold",
        aliases: &["lua-time-limit"],
        default: Cow::Borrowed("5000"),
        mutable: MUTABLE,
        doc: "Milliseconds that a script runs before other clients are told so, and may end it; 0 means no limit.",
        setting: Setting::Field {
            get: |c| c.scripts.busy_reply_threshold_ms.to_string().into_bytes(),
            set: |c, v| {
                c.scripts.busy_reply_threshold_ms = value::integer(value::text(v)?, 0, i64::MAX)?;
                Ok(())
            },
        },
    },
    Directive {
        name: "script-max-memory",
        aliases: &[],
        default: Cow::Borrowed("256mb"),
        mutable: MUTABLE,
        doc: "Memory that the interpreter of scripts may take; a change takes effect after SCRIPT FLUSH.",
        setting: Setting::Field {
            get: |c| c.scripts.max_memory_bytes.to_string().into_bytes(),
            set: |c, v| {
                c.scripts.max_memory_bytes = value::memory(value::text(v)?, 1 << 20, 1 << 40)?;
                Ok(())
            },
        },
    },
];
