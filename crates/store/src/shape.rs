//! Making entries, and giving an existing one another length, time to live or form.
//!
//! The one place that allocates and moves entries. Memory is taken before anything changes, so a failure leaves the
//! entry as it was. An entry moves only if its size class changes; then its tables are told.

use quire_arena::{Arena, Handle};
use zerocopy::IntoBytes;

use crate::db::DbId;
use crate::entry::{
    EXPIRES, EXPIRY_BYTES, EXTERNAL, Entry, EntryHeader, External, Form, HEADER_BYTES, INLINE_MAX, KEY_INLINE_MAX,
    LONG_KEY, RAW, ROOMY, TEXT, key_offset,
};
use crate::error::{Result, StoreError};
use crate::store::{STRING_MAX_BYTES, Store};
use crate::table::Hash;

/// Objects freed at a time when memory is short and tables wait to be freed.
const RECLAIM_STEP: usize = 1024;

/// What an entry is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) value_len: usize,
    /// Bytes of the old value that stay; what follows them is for the caller to write.
    pub(crate) keep: usize,
    pub(crate) expiry: Option<i64>,
    /// Bytes that a big value gets in reserve.
    pub(crate) reserve: usize,
}

impl Shape {
    /// A whole new value.
    pub(crate) fn new(form: Form, value_len: usize, expiry: Option<i64>) -> Shape {
        Shape { form, value_len, keep: 0, expiry, reserve: 0 }
    }
}

/// Where an entry's value goes: into the entry, or into an object of its own.
struct Plan {
    flags: u8,
    total: usize,
    external: Option<External>,
}

impl Store {
    /// Space in the arena; if there is none, what waits to be freed is freed first.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<Handle> {
        loop {
            match self.arena.alloc(bytes) {
                Ok(handle) => return Ok(handle),
                Err(error) => {
                    let error = StoreError::from(error);
                    if !matches!(error, StoreError::OutOfMemory { .. }) || self.reclaim_step(RECLAIM_STEP)? == 0 {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// A new entry, already in its tables; its value's bytes are for the caller to write.
    pub(crate) fn create_entry(&mut self, db: DbId, key: &[u8], hash: Hash, shape: Shape) -> Result<Entry> {
        let index = self.db_index(db)?;
        let entry = self.allocate_entry(key, hash, shape)?;
        if let Err(error) = self.link(index, &entry, hash) {
            self.discard(&entry)?;
            return Err(error);
        }
        Ok(entry)
    }

    /// An entry that is in no table yet.
    pub(crate) fn allocate_entry(&mut self, key: &[u8], hash: Hash, shape: Shape) -> Result<Entry> {
        let expiry = if shape.expiry.is_some() { EXPIRES } else { 0 };
        let key_room = if key.len() > KEY_INLINE_MAX { External::BYTES } else { key.len() };
        let big = key_offset(expiry) + key_room + shape.value_len > INLINE_MAX;
        self.allocate_entry_as(key, hash, shape, big)
    }

    /// An entry that is in no table yet, whose value gets an object of its own if `big`.
    pub(crate) fn allocate_entry_as(&mut self, key: &[u8], hash: Hash, shape: Shape, big: bool) -> Result<Entry> {
        check_len(shape.value_len)?;
        check_len(key.len())?;
        let long_key = key.len() > KEY_INLINE_MAX;
        let key_room = if long_key { External::BYTES } else { key.len() };
        let mut flags = if long_key { LONG_KEY } else { 0 };
        flags |= if shape.expiry.is_some() { EXPIRES } else { 0 };
        let fixed = key_offset(flags) + key_room;
        flags |= if big { EXTERNAL } else { 0 };
        let total = fixed + if big { External::BYTES } else { shape.value_len };

        let handle = self.alloc(total)?;
        let header = EntryHeader {
            hash: hash.low,
            form: shape.form as u8,
            flags,
            key_len: if long_key { 0 } else { key.len() as u16 },
            clock: self.clock,
            value_len: shape.value_len as u32,
        };
        let entry = Entry { handle, header };
        let parts = self.allocate_parts(long_key.then_some(key), big.then_some(shape.value_len + shape.reserve));
        let (key_object, value_object) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                self.arena.free(handle)?;
                return Err(error);
            }
        };
        let bytes = self.arena.bytes_mut(handle, 0, total)?;
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        if let Some(at_ms) = shape.expiry {
            bytes[HEADER_BYTES..][..EXPIRY_BYTES].copy_from_slice(&at_ms.to_ne_bytes());
        }
        let key = key_object.as_ref().map_or(key, |object| object.as_bytes());
        bytes[entry.key_offset()..][..key_room].copy_from_slice(key);
        if let Some(object) = value_object {
            bytes[entry.value_offset()..][..External::BYTES].copy_from_slice(object.as_bytes());
        }
        Ok(entry)
    }

    /// The objects beside an entry: a long key's, a big value's.
    fn allocate_parts(
        &mut self,
        key: Option<&[u8]>,
        value_bytes: Option<usize>,
    ) -> Result<(Option<External>, Option<External>)> {
        let value = value_bytes.map(|bytes| self.allocate_external(bytes)).transpose()?;
        let Some(key) = key else { return Ok((None, value)) };
        match self.allocate_external(key.len()) {
            Ok(object) => {
                self.arena.bytes_mut(object.object, 0, key.len())?.copy_from_slice(key);
                Ok((Some(External { size: key.len() as u32, ..object }), value))
            }
            Err(error) => {
                if let Some(value) = value {
                    self.arena.free(value.object)?;
                }
                Err(error)
            }
        }
    }

    fn allocate_external(&mut self, bytes: usize) -> Result<External> {
        let object = self.alloc(bytes)?;
        Ok(External { object, size: Arena::class_size(bytes) as u32 })
    }

    /// Puts an entry into its database's tables. Nothing has changed if this fails.
    pub(crate) fn link(&mut self, index: usize, entry: &Entry, hash: Hash) -> Result<()> {
        let Store { arena, dbs, .. } = self;
        let roots = &mut dbs[index];
        let mut result = roots.keys.insert(arena, hash, entry.handle);
        if result.is_ok() && entry.has(EXPIRES) {
            result = roots.expires.insert(arena, index_hash(hash.low), entry.handle);
            if result.is_err() {
                roots.keys.remove(arena, hash.low, entry.handle)?;
            }
        }
        self.sync_db(index)?;
        result
    }

    /// Frees an entry that is in no table, but not a hash's fields.
    pub(crate) fn discard(&mut self, entry: &Entry) -> Result<()> {
        if let Some(key) = entry.key_object(&self.arena)? {
            self.arena.free(key.object)?;
        }
        if let Some(value) = entry.value_object(&self.arena)? {
            self.arena.free(value.object)?;
        }
        Ok(self.arena.free(entry.handle)?)
    }

    /// Gives an entry another shape, in place if its size class stays. Bytes beyond `keep` are for the caller to write. A table of fields that the entry
    /// held is for the caller to retire.
    pub(crate) fn reshape(&mut self, db: DbId, entry: Entry, shape: Shape) -> Result<Entry> {
        check_len(shape.value_len)?;
        let index = self.db_index(db)?;
        let plan = self.plan(&entry, &shape)?;
        let in_place = plan.external.is_some() == entry.has(EXTERNAL)
            && (plan.external.is_none() || plan.external == entry.value_object(&self.arena)?);
        let capacity = entry.capacity(&self.arena)?;
        if in_place && Arena::class_size(plan.total) == capacity {
            return self.reshape_in_place(index, entry, &shape, plan.flags);
        }
        match self.relocate(index, entry, &shape, &plan) {
            Err(error @ StoreError::OutOfMemory { .. }) => {
                // A value that gets shorter must not fail for lack of memory: it wastes some instead.
                let (flags, total) = match plan.external {
                    None if entry.has(EXTERNAL) => {
                        (plan.flags | EXTERNAL, plan.total - shape.value_len + External::BYTES)
                    }
                    _ => (plan.flags, plan.total),
                };
                let external = entry.value_object(&self.arena)?;
                let fits = external.is_none_or(|object| object.size as usize >= shape.value_len);
                let stays = flags & EXTERNAL == entry.header.flags & EXTERNAL;
                // A table's head always lies in its entry.
                let sound = shape.form != Form::TableHash || flags & EXTERNAL == 0;
                if !(fits && stays && sound) || total > capacity {
                    return Err(error);
                }
                self.reshape_in_place(index, entry, &shape, flags | ROOMY)
            }
            other => other,
        }
    }

    /// Decides where the value goes. A big value's object stays if it has room and doesn't waste most of it; a null
    /// object stands for one to be allocated.
    fn plan(&self, entry: &Entry, shape: &Shape) -> Result<Plan> {
        let mut flags = entry.header.flags & if shape.keep > 0 { LONG_KEY | RAW | TEXT } else { LONG_KEY };
        flags |= if shape.expiry.is_some() { EXPIRES } else { 0 };
        let fixed = key_offset(flags) + entry.key_room();
        if fixed + shape.value_len <= INLINE_MAX {
            return Ok(Plan { flags, total: fixed + shape.value_len, external: None });
        }
        let old = entry.value_object(&self.arena)?;
        let fits = |object: &External| {
            let size = object.size as usize;
            size >= shape.value_len && size / 4 <= shape.value_len + shape.reserve
        };
        let external = old.filter(fits).unwrap_or_default();
        Ok(Plan { flags: flags | EXTERNAL, total: fixed + External::BYTES, external: Some(external) })
    }

    fn reshape_in_place(&mut self, index: usize, entry: Entry, shape: &Shape, flags: u8) -> Result<Entry> {
        let new = Entry { header: self.reshaped(&entry, shape, flags), ..entry };
        let (had, has) = (entry.has(EXPIRES), new.has(EXPIRES));
        self.index_expiry(index, entry.header.hash, had.then_some(entry.handle), has.then_some(entry.handle))?;
        if had != has {
            let inline = if new.has(EXTERNAL) { External::BYTES } else { shape.keep };
            let len = entry.key_room() + inline;
            self.arena.copy(entry.handle, entry.key_offset(), entry.handle, new.key_offset(), len)?;
        }
        self.write_fixed(&new, shape)?;
        Ok(new)
    }

    fn relocate(&mut self, index: usize, entry: Entry, shape: &Shape, plan: &Plan) -> Result<Entry> {
        let handle = self.alloc(plan.total)?;
        let new = Entry { handle, header: self.reshaped(&entry, shape, plan.flags) };
        let external = match plan.external {
            Some(object) if object.object.is_null() => match self.allocate_external(shape.value_len + shape.reserve) {
                Ok(object) => Some(object),
                Err(error) => {
                    self.arena.free(handle)?;
                    return Err(error);
                }
            },
            kept => kept,
        };
        let (had, has) = (entry.has(EXPIRES), new.has(EXPIRES));
        let indexed = self.index_expiry(index, entry.header.hash, had.then_some(entry.handle), has.then_some(handle));
        let old_external = entry.value_object(&self.arena)?;
        let stays = external.is_some() && external == old_external;
        if let Err(error) = indexed {
            self.arena.free(handle)?;
            if let Some(object) = external.filter(|_| !stays) {
                self.arena.free(object.object)?;
            }
            return Err(error);
        }
        self.write_fixed(&new, shape)?;
        self.arena.copy(entry.handle, entry.key_offset(), handle, new.key_offset(), entry.key_room())?;
        let (from, from_offset) = entry.value_place(&self.arena)?;
        if let Some(object) = external {
            let offset = new.value_offset();
            self.arena.bytes_mut(handle, offset, External::BYTES)?.copy_from_slice(object.as_bytes());
        }
        if !stays {
            let (to, to_offset) = new.value_place(&self.arena)?;
            self.arena.copy(from, from_offset, to, to_offset, shape.keep)?;
        }
        if !self.dbs[index].keys.replace(&mut self.arena, entry.header.hash, entry.handle, handle)? {
            return Err(StoreError::damaged("an entry is not in its table"));
        }
        if let Some(object) = old_external.filter(|_| !stays) {
            self.arena.free(object.object)?;
        }
        self.arena.free(entry.handle)?;
        Ok(new)
    }

    fn reshaped(&self, entry: &Entry, shape: &Shape, flags: u8) -> EntryHeader {
        EntryHeader {
            form: shape.form as u8,
            flags,
            clock: self.clock,
            value_len: shape.value_len as u32,
            ..entry.header
        }
    }

    fn write_fixed(&mut self, entry: &Entry, shape: &Shape) -> Result<()> {
        let bytes = self.arena.bytes_mut(entry.handle, 0, entry.key_offset())?;
        bytes[..HEADER_BYTES].copy_from_slice(entry.header.as_bytes());
        if let Some(at_ms) = shape.expiry {
            bytes[HEADER_BYTES..].copy_from_slice(&at_ms.to_ne_bytes());
        }
        Ok(())
    }

    /// Tells the index of expiring keys that an entry moved, came or went.
    fn index_expiry(&mut self, index: usize, hash: u32, old: Option<Handle>, new: Option<Handle>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let Store { arena, dbs, .. } = self;
        let table = &mut dbs[index].expires;
        match (old, new) {
            (Some(old), Some(new)) => {
                if !table.replace(arena, hash, old, new)? {
                    return Err(StoreError::damaged("an expiring entry is not in the index"));
                }
                return Ok(());
            }
            (Some(old), None) => table.remove(arena, hash, old).map(drop)?,
            (None, Some(new)) => table.insert(arena, index_hash(hash), new)?,
            (None, None) => {}
        }
        self.sync_db(index)
    }
}

/// The index finds entries by handle, so any tag will do; the tag still has to be one.
pub(crate) fn index_hash(low: u32) -> Hash {
    Hash { low, tag: 1 }
}

/// Refuses a string that is longer than any may be.
pub(crate) fn check_len(len: usize) -> Result<()> {
    if len > STRING_MAX_BYTES { Err(StoreError::TooLarge { len: len as u64 }) } else { Ok(()) }
}
