//! What `QUIRE_HEAP=path:size:pool` asks for.
//!
//! Relies on being read once, while the library is loaded.

use std::path::PathBuf;

use super::heap_error::HeapError;
use quire_units::parse_bytes;

/// The least heap: what the allocator takes for one thread.
pub const LEAST_SIZE_BYTES: u64 = 64 << 20;
/// The least pool: enough pages that eviction has a choice.
pub const LEAST_POOL_BYTES: u64 = 1 << 20;
/// Pools from this size on have larger pages, unless told otherwise: a fault costs more than the bytes that come with it.
const LARGE_POOL_BYTES: u64 = 32 << 20;
const SMALL_PAGE_BYTES: usize = 4096;
const LARGE_PAGE_BYTES: usize = 16384;

/// A heap that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapSpec {
    /// A directory, or a file that isn't there yet.
    pub path: PathBuf,
    /// Bytes that can be allocated, about.
    pub size_bytes: u64,
    /// Memory for them.
    pub pool_bytes: u64,
    /// Bytes of a page of the pool.
    pub page_bytes: usize,
}

impl HeapSpec {
    /// What the values of `QUIRE_HEAP` and `QUIRE_HEAP_PAGE` ask for.
    ///
    /// # Errors
    /// [`HeapError::Syntax`], [`HeapError::Page`] or [`HeapError::Small`].
    pub fn parse(heap: &[u8], page: Option<&[u8]>) -> Result<Self, HeapError> {
        let syntax = || HeapError::Syntax(String::from_utf8_lossy(heap).into_owned());
        // From the end, as a path may have colons.
        let mut parts = std::str::from_utf8(heap).map_err(|_| syntax())?.rsplitn(3, ':');
        let mut size = || parts.next().and_then(|part| parse_bytes(part.trim()));
        let (pool_bytes, size_bytes) = (size().ok_or_else(syntax)?, size().ok_or_else(syntax)?);
        let path = parts.next().filter(|path| !path.is_empty()).ok_or_else(syntax)?;
        for (what, bytes, least) in
            [("the size", size_bytes, LEAST_SIZE_BYTES), ("the pool", pool_bytes, LEAST_POOL_BYTES)]
        {
            if bytes < least {
                return Err(HeapError::Small { what, bytes, least });
            }
        }
        let page_bytes = match page.map(|page| (page, std::str::from_utf8(page).ok().and_then(parse_bytes))) {
            None if pool_bytes < LARGE_POOL_BYTES => SMALL_PAGE_BYTES,
            None => LARGE_PAGE_BYTES,
            Some((_, Some(bytes @ (4096 | 16384 | 65536)))) => bytes as usize,
            Some((page, _)) => return Err(HeapError::Page(String::from_utf8_lossy(page).into_owned())),
        };
        Ok(Self { path: path.into(), size_bytes, pool_bytes: pool_bytes.min(size_bytes), page_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(heap: &str) -> String {
        HeapSpec::parse(heap.as_bytes(), None).unwrap_err().to_string()
    }

    #[test]
    fn a_path_and_two_sizes_are_understood() {
        let spec = HeapSpec::parse(b"/tmp/a:b:16G:512m", None).unwrap();
        let expected = HeapSpec {
            path: "/tmp/a:b".into(),
            size_bytes: 16 << 30,
            pool_bytes: 512 << 20,
            page_bytes: LARGE_PAGE_BYTES,
        };
        assert_eq!(spec, expected);
        let small = HeapSpec::parse(b"/tmp:64M:4M", None).unwrap();
        assert_eq!((small.pool_bytes, small.page_bytes), (4 << 20, SMALL_PAGE_BYTES));
        assert_eq!(HeapSpec::parse(b"/tmp:64M:1G", Some(b"64k")).unwrap().pool_bytes, 64 << 20);
    }

    #[test]
    fn what_is_not_understood_is_told_with_the_right_form() {
        for wrong in ["", "/tmp", "/tmp:1G", ":1G:64M", "/tmp:much:64M", "/tmp:1G:64X", "/tmp:1G:"] {
            assert!(refused(wrong).contains("PATH:SIZE:POOL"), "{wrong}: {}", refused(wrong));
        }
        assert!(refused("/tmp:1G:9").contains("the pool is 9 B") && refused("/tmp:1M:1M").contains("the size"));
        assert!(HeapSpec::parse(b"/tmp:1G:64M", Some(b"8k")).unwrap_err().to_string().contains("16k"));
    }
}
