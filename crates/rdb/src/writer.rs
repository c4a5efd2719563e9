//! A whole RDB file, written: its head, keys with what is known of them, its checksum.
//!
//! Relies on `encoder` for the parts of values, which the caller writes behind each key.

use std::io::{self, Write};

use crate::WRITTEN_VERSION;
use crate::encoder::{Encoder, ValueKind};
use crate::type_number::{KeyFacts, opcode};

/// Writes an RDB file.
#[derive(Debug)]
pub struct Writer<W> {
    encoder: Encoder<W>,
}

impl<W: Write> Writer<W> {
    /// Begins a file, with facts for people and programs.
    pub fn new(out: W, facts: &[(&str, &str)]) -> Self {
        Self::of_version(WRITTEN_VERSION, out, facts)
    }

    /// Begins a file of another version.
    pub fn of_version(version: u32, out: W, facts: &[(&str, &str)]) -> Self {
        let mut encoder = Encoder::new(out);
        encoder.raw(format!("REDIS{version:04}").as_bytes());
        for (name, value) in facts {
            encoder.raw(&[opcode::AUX]);
            encoder.string(name.as_bytes());
            encoder.string(value.as_bytes());
        }
        Self { encoder }
    }

    /// What follows belongs to this database, which has about so many keys.
    pub fn database(&mut self, db: u64, keys: u64, expiring: u64) {
        self.encoder.raw(&[opcode::SELECT_DB]);
        self.encoder.length(db);
        self.encoder.raw(&[opcode::RESIZE_DB]);
        self.encoder.length(keys);
        self.encoder.length(expiring);
    }

    /// Writes a library of functions.
    pub fn function(&mut self, code: &[u8]) {
        self.encoder.raw(&[opcode::FUNCTION]);
        self.encoder.string(code);
    }

    /// Writes a key, behind which the caller writes its value.
    pub fn key(&mut self, key: &[u8], facts: KeyFacts, kind: ValueKind) -> &mut Encoder<W> {
        if let Some(expire_ms) = facts.expire_ms {
            self.encoder.raw(&[opcode::EXPIRE_MS]);
            self.encoder.raw(&expire_ms.to_le_bytes());
        }
        if let Some(idle_s) = facts.idle_s {
            self.encoder.raw(&[opcode::IDLE]);
            self.encoder.length(idle_s);
        }
        if let Some(frequency) = facts.frequency {
            self.encoder.raw(&[opcode::FREQUENCY, frequency]);
        }
        self.encoder.raw(&[kind.number()]);
        self.encoder.string(key);
        &mut self.encoder
    }

    /// Whether all could be written so far.
    ///
    /// # Errors
    /// What the sink said when it failed.
    pub fn check(&mut self) -> io::Result<()> {
        self.encoder.check()
    }

    /// Ends the file; gives back the sink, flushed.
    ///
    /// # Errors
    /// What the sink said when it failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.encoder.raw(&[opcode::END]);
        let checksum = self.encoder.checksum();
        self.encoder.raw(&checksum.to_le_bytes());
        self.encoder.finish()
    }
}
