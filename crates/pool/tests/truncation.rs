//! Files that another program makes shorter and longer while they are mapped: a read gives what the file had at some time, or fails.
//!
//! Relies on pages being copied into memory of the pool: no file is mapped, so none that gets shorter can end the process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use quire_device::{CacheMode, Directory, DiskDirectory, IoEngine};
use quire_pool::{Map, PageNo, Pool, PoolConfig, PoolError, TierConfig};
use tempfile::TempDir;

use crate::common::{PAGE, Stop, number, plain_map, seal, sealed, small_config, tier};

const PAGES: u64 = 64;
const MOST_VALUE: u64 = 100;

/// A file of sealed pages, as another program has it open, and a map of it in a small pool with a second tier.
fn shared_file(caching: CacheMode) -> (TempDir, File, Arc<Pool>, Map) {
    let folder = tempfile::tempdir_in(".").unwrap();
    let file = File::options().create_new(true).read(true).write(true).open(folder.path().join("file")).unwrap();
    fill(&file, 0..PAGES, 1);
    let device = DiskDirectory::new(folder.path()).with(caching, IoEngine::default()).open("file").unwrap();
    let config = PoolConfig { tier: TierConfig { page_cache: true, ..tier(64) }, ..small_config(16) };
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, device);
    (folder, file, pool, map)
}

fn fill(file: &File, pages: std::ops::Range<u64>, value: u64) {
    let mut bytes = vec![0; PAGE];
    seal(&mut bytes, value);
    pages.for_each(|page| file.write_all_at(&bytes, page * PAGE as u64).unwrap());
}

/// Whether each word was in such a page of the file at some time. A page may be read while it is written; what the file gets back is zero at
/// first.
fn is_of_the_file(page: &[u8]) -> bool {
    page.as_chunks::<8>().0.iter().zip(1..).all(|(word, number)| {
        let word = u64::from_le_bytes(*word);
        word.is_multiple_of(number) && word / number < MOST_VALUE
    })
}

#[test]
fn a_page_that_the_file_has_no_more_fails_to_be_read_and_comes_back_with_the_file() {
    for caching in [CacheMode::Direct, CacheMode::Buffered] {
        let (_folder, file, _pool, map) = shared_file(caching);
        assert_eq!(number(&map, 0), 1);
        file.set_len(PAGE as u64 * 10 + 100).unwrap();
        map.discard(PageNo(0)..PageNo(PAGES));
        assert_eq!(sealed(&map.read(PageNo(9)).unwrap()), Some(1));
        for page in [10, 11, PAGES - 1] {
            assert!(matches!(map.read(PageNo(page)), Err(PoolError::Device(_))), "page {page}");
        }
        fill(&file, 10..PAGES, 2);
        assert!((10..PAGES).all(|page| sealed(&map.read(PageNo(page)).unwrap()) == Some(2)));
    }
}

#[test]
fn a_file_that_gets_shorter_and_longer_again_and_again_ends_no_reader_and_gives_no_bytes_that_it_never_had() {
    for caching in [CacheMode::Direct, CacheMode::Buffered] {
        let (_folder, file, pool, map) = shared_file(caching);
        let stop = Stop::default();
        std::thread::scope(|threads| {
            let _stop = stop.later();
            for thread in 0..2 {
                let (map, pool, stop) = (&map, &pool, &stop);
                threads.spawn(move || {
                    let mut failed = 0;
                    let mut page = thread;
                    while !stop.is_set() {
                        page = (page * 5 + 3) % PAGES;
                        match map.read(PageNo(page)) {
                            Ok(guard) => assert!(is_of_the_file(&guard), "page {page}"),
                            Err(PoolError::Device(_)) => failed += 1,
                            Err(error) => panic!("{error}"),
                        }
                        pool.evict(4);
                    }
                    failed
                });
            }
            for value in 2..MOST_VALUE {
                file.set_len(value % PAGES * PAGE as u64).unwrap();
                fill(&file, value % PAGES..PAGES, value);
                map.discard(PageNo(0)..PageNo(PAGES));
                let page = PAGES - 1;
                assert_eq!(sealed(&map.read(PageNo(page)).unwrap()), Some(value), "what was discarded is read anew");
            }
        });
    }
}
