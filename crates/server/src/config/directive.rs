//! A directive of the configuration, and the macros that write the usual kinds of it.
//!
//! Relies on the macros being used where `Directive`, `Setting`, `value`, `Config`, `RejectReason` and `Cow` are in scope.

use std::borrow::Cow;

use quire_store::EncodingLimit;

use super::Config;
use super::value::{self, RejectReason};

/// One directive.
pub struct Directive {
    /// Its name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Its default, as it would be written.
    pub default: Cow<'static, str>,
    /// Whether CONFIG SET may change it.
    pub mutable: bool,
    /// What it is for, in a line.
    pub doc: &'static str,
    pub(super) setting: Setting,
}

/// What a directive sets.
pub(super) enum Setting {
    /// A part of the configuration.
    Field {
        /// Writes the current value.
        get: fn(&Config) -> Vec<u8>,
        /// Reads and checks a value.
        set: fn(&mut Config, &[u8]) -> Result<(), RejectReason>,
    },
    /// A limit of a type's values, which the store declares.
    EncodingLimit(&'static EncodingLimit),
}

impl Directive {
    /// Whether its value is a list of words, so that a flag takes several, and a file has them without quotes.
    pub fn is_list(&self) -> bool {
        matches!(self.name, "save" | "bind" | "client-output-buffer-limit" | "latency-tracking-info-percentiles")
    }

    /// Writes the current value.
    pub fn get(&self, config: &Config) -> Vec<u8> {
        match &self.setting {
            Setting::Field { get, .. } => get(config),
            Setting::EncodingLimit(limit) => config.limits.number(limit).to_string().into_bytes(),
        }
    }

    /// Reads and checks a value.
    ///
    /// # Errors
    /// Why it is refused, in Redis' words where Redis has such a directive.
    pub fn set(&self, config: &mut Config, value: &[u8]) -> Result<(), RejectReason> {
        match &self.setting {
            Setting::Field { set, .. } => set(config, value),
            Setting::EncodingLimit(limit) => {
                let number = value::integer(value::text(value)?, limit.min, limit.max)?;
                config.limits.set(limit, number);
                Ok(())
            }
        }
    }
}

macro_rules! directive {
    ($name:literal, $default:literal, $mutable:expr, $doc:literal, $get:expr, $set:expr) => {
        Directive {
            name: $name,
            aliases: &[],
            default: Cow::Borrowed($default),
            mutable: $mutable,
            doc: $doc,
            setting: Setting::Field {
                get: |config| {
                    let get: fn(&Config) -> String = $get;
                    get(config).into_bytes()
                },
                set: |config, value| {
                    let set: fn(&mut Config, &str) -> Result<(), RejectReason> = $set;
                    set(config, value::text(value)?)
                },
            },
        }
    };
}

macro_rules! flag {
    ($name:literal, $default:literal, $doc:literal, $($field:ident).+) => {
        directive!($name, $default, MUTABLE, $doc, |c| value::yes_no(c.$($field).+), |c, v| {
            c.$($field).+ = value::boolean(v)?;
            Ok(())
        })
    };
}

macro_rules! integer {
    ($name:literal, $default:literal, $mutable:expr, $min:expr, $max:expr, $doc:literal, $($field:ident).+) => {
        directive!($name, $default, $mutable, $doc, |c| c.$($field).+.to_string(), |c, v| {
            c.$($field).+ = value::integer(v, $min, $max)? as _;
            Ok(())
        })
    };
}

macro_rules! memory {
    ($name:literal, $default:literal, $min:expr, $max:expr, $doc:literal, $field:ident) => {
        directive!($name, $default, MUTABLE, $doc, |c| c.$field.to_string(), |c, v| {
            c.$field = value::memory(v, $min, $max)?;
            Ok(())
        })
    };
}

macro_rules! text {
    ($name:literal, $default:literal, $doc:literal, $field:ident) => {
        directive!($name, $default, FIXED, $doc, |c| c.$field.clone(), |c, v| {
            c.$field = v.to_owned();
            Ok(())
        })
    };
}

pub(super) use {directive, flag, integer, memory, text};
