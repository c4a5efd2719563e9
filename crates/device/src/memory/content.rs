//! The bytes of a file in memory, holes included, and the changes made to them.

use std::collections::BTreeMap;

const BLOCK: u64 = 4096;
/// What a disk writes whole.
const SECTOR: usize = 512;

/// Bytes in blocks; blocks that were never written aren't there.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseContent {
    len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub(super) enum FileChange {
    Write { offset: u64, bytes: Vec<u8> },
    Len(u64),
}

impl SparseContent {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads up to the end of the file; returns how many bytes.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let skip = (at % BLOCK) as usize;
            let part = (BLOCK as usize - skip).min(len - done);
            let to = &mut into[done..done + part];
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => to.copy_from_slice(&block[skip..skip + part]),
                None => to.fill(0),
            }
            done += part;
        }
        len
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let skip = (at % BLOCK) as usize;
            let part = (BLOCK as usize - skip).min(bytes.len() - done);
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize].into());
            block[skip..skip + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.blocks.retain(|&block, _| block * BLOCK < len);
            if let Some(last) = self.blocks.get_mut(&(len / BLOCK)) {
                last[(len % BLOCK) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    pub(super) fn apply(&mut self, change: &FileChange) {
        match change {
            FileChange::Write { offset, bytes } => self.write(*offset, bytes),
            FileChange::Len(len) => self.set_len(*len),
        }
    }

    /// Applies those sectors of a write that `keeps` says. A change of length is whole or not at all.
    pub(super) fn apply_torn(&mut self, change: &FileChange, mut keeps: impl FnMut(usize) -> bool) {
        if let FileChange::Write { offset, bytes } = change {
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                if keeps(index) {
                    self.write(offset + (index * SECTOR) as u64, sector);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn content_behaves_like_one_vector(
            changes in prop::collection::vec((0u64..20_000, 0usize..9000, any::<u8>(), any::<bool>()), 0..20),
            at in 0u64..30_000,
        ) {
            let mut model: Vec<u8> = Vec::new();
            let mut content = SparseContent::default();
            for (offset, len, value, resize) in changes {
                if resize {
                    model.resize(offset as usize, 0);
                    content.apply(&FileChange::Len(offset));
                } else if len > 0 {
                    let end = offset as usize + len;
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[offset as usize..end].fill(value);
                    content.apply(&FileChange::Write { offset, bytes: vec![value; len] });
                }
            }
            prop_assert_eq!(content.to_bytes(), model.clone());
            let mut part = vec![1; 5000];
            let got = content.read(at, &mut part);
            let expected = model.get(at as usize..).unwrap_or_default();
            prop_assert_eq!(&part[..got], &expected[..expected.len().min(5000)]);
        }
    }
}
