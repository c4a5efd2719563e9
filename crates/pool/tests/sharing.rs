//! Several maps in one pool: each keeps its fair share, whatever the others do.

use crate::common::{number, numbered, plain_map, put_number, small_pool};

#[test]
fn a_map_that_scans_does_not_push_the_other_below_its_share() {
    let ((_one, quiet), (_two, scanning)) = (numbered(24), numbered(2000));
    let pool = small_pool(64);
    let (quiet, scanning) = (plain_map(&pool, quiet), plain_map(&pool, scanning));
    (0..24).for_each(|page| assert_eq!(number(&quiet, page), page));
    (0..2000).for_each(|page| assert_eq!(number(&scanning, page), page));
    assert_eq!(quiet.resident_pages(), 24);
    assert!(scanning.resident_pages() <= 40);
}

#[test]
fn a_map_that_comes_later_gets_its_share() {
    let ((_one, first), (_two, second)) = (numbered(500), numbered(500));
    let pool = small_pool(64);
    let first = plain_map(&pool, first);
    (0..500).for_each(|page| put_number(&first, page, 7));
    first.sync().unwrap();
    assert_eq!(first.resident_pages(), 64);
    let second = plain_map(&pool, second);
    (0..500).for_each(|page| assert_eq!(number(&second, page), page));
    assert!(second.resident_pages() >= 31, "{} of 64", second.resident_pages());
    (0..500).for_each(|page| assert_eq!(number(&first, page), 7));
    assert!(second.resident_pages() >= 31 && first.resident_pages() >= 31);
}

#[test]
fn what_a_map_does_not_use_is_for_the_others() {
    let ((_one, small), (_two, large)) = (numbered(4), numbered(500));
    let pool = small_pool(64);
    let (small, large) = (plain_map(&pool, small), plain_map(&pool, large));
    (0..4).for_each(|page| assert_eq!(number(&small, page), page));
    (0..500).for_each(|page| assert_eq!(number(&large, page), page));
    assert!(large.resident_pages() >= 59);
}

#[test]
fn evictions_that_no_page_asked_for_take_turns_among_the_maps() {
    let pool = small_pool(128);
    let maps = [(); 2].map(|()| plain_map(&pool, numbered(64).1));
    for map in &maps {
        (0..64).for_each(|page| assert_eq!(number(map, page), page));
    }
    (0..8).for_each(|_| assert_eq!(pool.evict(4), 4));
    assert_eq!(maps.each_ref().map(quire_pool::Map::resident_pages), [48; 2]);
}
