//! A whole RDB file, read: its head, and one item after the other up to its checksum.
//!
//! Relies on `value` for the values of keys, which the caller reads before it asks for the next item.

use std::io::Read;

use crate::NEWEST_READ;
use crate::error::{Cause, Result};
use crate::input::Input;
use crate::type_number::{KeyFacts, TypeNumber, opcode};
use crate::value::{Value, module_name, skip_module};

const MAGIC: &[u8; 5] = b"REDIS";
/// Versions from this one on end in a checksum.
const FIRST_SUMMED: u32 = 5;

/// Whether a file that begins with these bytes is an RDB file.
pub fn is_rdb(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC)
}

/// Something that an RDB file holds.
#[derive(Debug)]
pub enum Item<'r, R> {
    /// A fact of the server that wrote it.
    Aux {
        /// What it is.
        name: Vec<u8>,
        /// Its text.
        value: Vec<u8>,
    },
    /// A library of functions.
    Function(Vec<u8>),
    /// Data of a module, which has been read over.
    ModuleAux {
        /// The module.
        name: String,
    },
    /// A key.
    Key(KeyItem<'r, R>),
}

/// A key, and its value to be read.
#[derive(Debug)]
pub struct KeyItem<'r, R> {
    /// Its database.
    pub db: u64,
    /// The key.
    pub key: Vec<u8>,
    /// What is known of it.
    pub facts: KeyFacts,
    /// Its value, which must be read to its end.
    pub value: Value<'r, R>,
}

/// Reads an RDB file.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    version: u32,
    db: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// The file is none, or of a version that is not read.
    pub fn new(inner: R) -> Result<Self> {
        let mut input = Input::new(inner);
        let head: [u8; 9] = match input.array() {
            Ok(head) => head,
            Err(error) if matches!(error.cause, Cause::Truncated { .. }) => return input.fail(Cause::Foreign),
            Err(error) => return Err(error),
        };
        let digits = std::str::from_utf8(&head[5..]).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let version: Option<u32> = digits.and_then(|text| text.parse().ok()).filter(|_| is_rdb(&head));
        match version {
            Some(version @ 1..=NEWEST_READ) => Ok(Self { input, version, db: 0, ended: false }),
            Some(version) => input.fail(Cause::Version { version, newest: NEWEST_READ }),
            None => input.fail(Cause::Foreign),
        }
    }

    /// The file's version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes that were read.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next item; `None` at the end, when the checksum was found right or is left out.
    ///
    /// # Errors
    /// The file ends, is malformed, holds what is not supported, or its checksum is wrong. The value before was not read to its end.
    pub fn next_item(&mut self) -> Result<Option<Item<'_, R>>> {
        if self.ended {
            return Ok(None);
        }
        if self.input.in_value {
            return self.input.malformed("the value before was not read to its end");
        }
        let mut facts = KeyFacts::default();
        loop {
            match self.input.byte()? {
                opcode::END => {
                    self.end()?;
                    return Ok(None);
                }
                opcode::SELECT_DB => self.db = self.input.length()?,
                opcode::RESIZE_DB => self.lengths(2)?,
                // Which slot, and how many keys and expiring keys it has.
                opcode::SLOT_INFO => self.lengths(3)?,
                opcode::EXPIRE_S => {
                    facts.expire_ms = Some(i64::from(i32::from_le_bytes(self.input.array()?)).saturating_mul(1000));
                }
                opcode::EXPIRE_MS => facts.expire_ms = Some(i64::from_le_bytes(self.input.array()?)),
                opcode::IDLE => facts.idle_s = Some(self.input.length()?),
                opcode::FREQUENCY => facts.frequency = Some(self.input.byte()?),
                opcode::AUX => {
                    let (name, value) = (self.input.string()?, self.input.string()?);
                    return Ok(Some(Item::Aux { name, value }));
                }
                opcode::FUNCTION => return Ok(Some(Item::Function(self.input.string()?))),
                opcode::MODULE_AUX => return self.module_aux().map(Some),
                number if number <= TypeNumber::LAST => return self.key(TypeNumber(number), facts).map(Some),
                number => {
                    let number = u64::from(number);
                    return self.input.fail(Cause::Unsupported { what: "type of entries", number });
                }
            }
        }
    }

    /// Reads over so many numbers.
    fn lengths(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.input.length()?;
        }
        Ok(())
    }

    fn key(&mut self, number: TypeNumber, facts: KeyFacts) -> Result<Item<'_, R>> {
        let (db, key) = (self.db, self.input.string()?);
        let value = Value::begin(&mut self.input, number)?;
        Ok(Item::Key(KeyItem { db, key, facts, value }))
    }

    fn module_aux(&mut self) -> Result<Item<'_, R>> {
        let name = module_name(self.input.length()?);
        // When it is to be loaded: the form of a number, and the number.
        self.lengths(2)?;
        skip_module(&mut self.input)?;
        Ok(Item::ModuleAux { name })
    }

    fn end(&mut self) -> Result<()> {
        self.ended = true;
        if self.version < FIRST_SUMMED {
            return Ok(());
        }
        let computed = self.input.checksum();
        let found = u64::from_le_bytes(self.input.array()?);
        // A server that was told to compute none writes 0.
        if found != 0 && found != computed {
            return self.input.fail(Cause::Checksum { found, computed });
        }
        Ok(())
    }

    /// What is behind the file, in a source that goes on: bytes that were read already, and the source.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.input.into_rest()
    }
}
