//! The pages that SQLite has in place for a connection (`xFetch`), until it is done with them (`xUnfetch`).
//!
//! Relies on leases for what is promised to SQLite: the bytes stay where they are and as they are until a lease ends. Their sum is bounded by
//! the connection's `PRAGMA mmap_size`, their number here; what all connections have together is bounded by the pool.

use std::ffi::c_void;

use quire_pool::Lease;

/// Pages of a connection at a time. A cursor has one page of each level of its tree, and a page is searched for among all when it is given
/// back.
const MOST_PAGES: usize = 256;

/// What a connection has in place.
#[derive(Default)]
pub(crate) struct FetchedPages {
    /// Bytes that it may have at a time. None are given by default, as SQLite's own VFS maps none.
    limit_bytes: u64,
    held_bytes: u64,
    leases: Vec<Lease<'static>>,
}

impl FetchedPages {
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Sets the limit, but not while SQLite has pages in place.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        if self.leases.is_empty() {
            self.limit_bytes = bytes;
        }
    }

    /// Whether the connection may have `bytes` more.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.leases.len() < MOST_PAGES && bytes <= self.limit_bytes.saturating_sub(self.held_bytes)
    }

    /// Keeps a lease for SQLite; where its bytes are.
    pub(crate) fn keep(&mut self, lease: Lease<'static>) -> *const c_void {
        let at = lease.as_ptr().cast();
        self.held_bytes += lease.len() as u64;
        self.leases.push(lease);
        at
    }

    /// SQLite is done with the bytes at `at`. Leases of the same bytes are equal, so any of them may end.
    pub(crate) fn release(&mut self, at: *const c_void) {
        // The page that came last mostly goes first.
        if let Some(index) = self.leases.iter().rposition(|lease| lease.as_ptr().cast() == at) {
            let lease = self.leases.swap_remove(index);
            self.held_bytes -= lease.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{Directory, MemoryDirectory};
    use quire_pool::{Map, MapOptions, Pool, PoolConfig};

    const PAGE: usize = 4096;

    fn map() -> Map {
        let pool = Pool::new(PoolConfig { budget_bytes: 4 << 20, ..PoolConfig::default() }).unwrap();
        let file = MemoryDirectory::with_file("db", &[7; 512 * PAGE]).open_to_write("db").unwrap();
        pool.map(file, MapOptions::default()).unwrap()
    }

    fn lease(map: &Map, page: usize) -> Lease<'static> {
        map.lease((page * PAGE) as u64, PAGE).unwrap().into_owned()
    }

    #[test]
    fn no_more_bytes_are_in_place_than_the_limit_allows_and_none_by_default() {
        let map = map();
        let mut fetched = FetchedPages::default();
        assert!(!fetched.has_room(1));
        fetched.set_limit(3 * PAGE as u64 - 1);
        let first = fetched.keep(lease(&map, 0));
        assert!(fetched.has_room(PAGE as u64));
        fetched.keep(lease(&map, 1));
        assert!(!fetched.has_room(PAGE as u64));
        fetched.set_limit(1 << 30);
        assert_eq!(fetched.limit_bytes(), 3 * PAGE as u64 - 1, "SQLite has pages in place");
        fetched.release(first);
        assert!(fetched.has_room(PAGE as u64));
    }

    #[test]
    fn a_page_that_was_fetched_twice_is_in_place_until_it_was_given_back_twice() {
        let map = map();
        let mut fetched = FetchedPages::default();
        fetched.set_limit(1 << 30);
        let (first, second) = (fetched.keep(lease(&map, 5)), fetched.keep(lease(&map, 5)));
        assert_eq!(first, second);
        fetched.keep(lease(&map, 6));
        fetched.release(first);
        assert_eq!((fetched.leases.len(), fetched.held_bytes), (2, 2 * PAGE as u64));
        fetched.release(second);
        // Not SQLite's to give back: nothing happens.
        fetched.release(second);
        fetched.release(std::ptr::null());
        assert_eq!((fetched.leases.len(), fetched.held_bytes), (1, PAGE as u64));
    }

    #[test]
    fn the_number_of_pages_in_place_is_bounded_whatever_the_limit_is() {
        let map = map();
        let mut fetched = FetchedPages::default();
        fetched.set_limit(u64::MAX);
        for _ in 0..MOST_PAGES {
            assert!(fetched.has_room(PAGE as u64));
            fetched.keep(lease(&map, 1));
        }
        assert!(!fetched.has_room(PAGE as u64));
    }
}
