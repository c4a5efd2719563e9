//! One directive: its name and default, and how its value is read, checked and written.
//!
//! Relies on [`super::table`] for which ones there are.

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
