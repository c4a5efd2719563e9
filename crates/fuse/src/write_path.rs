//! Where a write of a program goes: to the directory's file at once, or into the cache.
//!
//! Relies on the facts that it is given. What the cache does with a write is decided by `quire_writecache::policy`.

/// Largest file that is written through.
const MOST_BYTES: u64 = 64 << 10;

/// What is known of a write to a regular file.
#[derive(Clone, Copy, Debug)]
pub struct WriteFacts {
    /// The file is a volume of the cache.
    pub is_cached: bool,
    /// The directory's file is open for writing.
    pub is_writable: bool,
    /// The next flush has to reach the directory in any case, for the file's name or length.
    pub needs_directory: bool,
    /// Where the write ends in the file.
    pub end: u64,
    /// One more file may hold bytes that were written through, or this one does.
    pub has_room: bool,
    /// A test watches the directory's files through the cache's devices.
    pub is_wrapped: bool,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePath {
    /// To the directory's file: the flush of a small new file reaches the directory in any case, and takes the bytes along.
    Directory,
    /// To the file's volume.
    Cache,
}

/// Decides where a write goes.
pub fn choose(facts: &WriteFacts) -> WritePath {
    let is_small_and_new = facts.end <= MOST_BYTES && facts.needs_directory && !facts.is_cached;
    if is_small_and_new && facts.is_writable && facts.has_room && !facts.is_wrapped {
        WritePath::Directory
    } else {
        WritePath::Cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_new_files_are_written_through_and_every_fact_can_forbid_it() {
        let facts = WriteFacts {
            is_cached: false,
            is_writable: true,
            needs_directory: true,
            end: MOST_BYTES,
            has_room: true,
            is_wrapped: false,
        };
        assert_eq!(choose(&facts), WritePath::Directory);
        for against in [
            WriteFacts { is_cached: true, ..facts },
            WriteFacts { is_writable: false, ..facts },
            WriteFacts { needs_directory: false, ..facts },
            WriteFacts { end: MOST_BYTES + 1, ..facts },
            WriteFacts { has_room: false, ..facts },
            WriteFacts { is_wrapped: true, ..facts },
        ] {
            assert_eq!(choose(&against), WritePath::Cache, "{against:?}");
        }
    }
}
