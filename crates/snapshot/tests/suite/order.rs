//! Lives of views and origins that begin and end in every order.

use std::sync::Arc;

use quire_snapshot::{Mechanism, Origin, OriginOptions, PAGE_SIZE, View};

use crate::common::attach_or_skip;
use crate::common::memory::{KINDS, Kind, Memory, read, write};

/// Pages of the small ranges here: more than a huge page, not a multiple of one.
const PAGES: usize = 520;

/// Fills a page with `value`.
fn fill(origin: &dyn Origin, page: usize, value: u8) {
    origin.prepare_write(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
    write(origin.base(), page * PAGE_SIZE, &[value; PAGE_SIZE]);
}

/// What page `page` of `view` is filled with.
fn shown(view: &dyn View, page: usize) -> u8 {
    let mut bytes = [0; PAGE_SIZE];
    view.read(page * PAGE_SIZE, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "page {page} is torn");
    bytes[0]
}

fn orders(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, &first) in items.iter().enumerate() {
        let mut rest = items.to_vec();
        rest.remove(index);
        all.extend(orders(&rest).into_iter().map(|tail| [vec![first], tail].concat()));
    }
    all
}

/// Three views, a cut of the second of them, and the origin (number 4) go in every order.
pub fn any_order_of_dropping_leaves_the_rest_right(mechanism: Mechanism) {
    for (number, order) in orders(&[0, 1, 2, 3, 4]).into_iter().enumerate() {
        let memory = Memory::new(KINDS[number % KINDS.len()], PAGES);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
        let mut views: Vec<Option<Arc<dyn View>>> = Vec::new();
        // Page n is written before cut n and after it; page 9 before each.
        for value in 0..3u8 {
            fill(&*origin, value.into(), value + 1);
            fill(&*origin, 9, value + 1);
            views.push(Some(origin.cut().unwrap()));
            fill(&*origin, value.into(), 100);
        }
        views.push(Some(views[1].as_ref().unwrap().cut().unwrap()));
        fill(&*origin, 9, 100);
        let mut origin = Some(origin);
        for gone in order {
            match gone {
                4 => origin = None,
                _ => views[gone] = None,
            }
            for (number, view) in views.iter().enumerate() {
                let Some(view) = view else { continue };
                let cut = if number == 3 { 1 } else { number as u8 };
                let pages = [shown(&**view, cut.into()), shown(&**view, 9), shown(&**view, 500)];
                assert_eq!(pages, [cut + 1, cut + 1, 0], "view {number}, after {gone} went");
            }
            assert_eq!(read(memory.span.base(), 2 * PAGE_SIZE, 1), [100]);
        }
        drop(origin);
    }
}

pub fn a_cut_of_a_view_outlives_the_view_and_its_later_writes(mechanism: Mechanism) {
    for kind in KINDS {
        let memory = Memory::new(kind, PAGES);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
        fill(&*origin, 1, 1);
        let mut chain = vec![(origin.cut().unwrap(), 1)];
        fill(&*origin, 1, 2);
        for value in 10..16u8 {
            let (last, mut shows) = chain.last().map(|(view, shows)| (Arc::clone(view), *shows)).unwrap();
            if let Some(base) = last.as_ptr() {
                write(base, PAGE_SIZE, &[value; PAGE_SIZE]);
                shows = value;
            }
            let next = last.cut().unwrap();
            if let Some(base) = last.as_ptr() {
                // Not in the cut that was just made, nor in the origin.
                write(base, PAGE_SIZE, &[99; PAGE_SIZE]);
                chain.last_mut().unwrap().1 = 99;
            }
            chain.push((next, shows));
        }
        drop(origin);
        while let Some((last, shows)) = chain.pop() {
            assert_eq!((shown(&*last, 1), shown(&*last, 0)), (shows, 0), "{kind:?}");
            if !chain.is_empty() {
                // The first goes first, then the next; those made of them remain.
                let (first, shows) = chain.remove(0);
                assert_eq!(shown(&*first, 1), shows, "{kind:?}");
                drop(first);
                assert_eq!(shown(&*last, 0), 0);
            }
        }
        assert_eq!(read(memory.span.base(), PAGE_SIZE, 1), [2]);
    }
}

pub fn an_old_view_stays_right_through_hundreds_of_cuts(mechanism: Mechanism) {
    let memory = Memory::new(Kind::Small, 40);
    let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    fill(&*origin, 3, 7);
    let old = origin.cut().unwrap();
    for round in 0..600usize {
        let value = round as u8;
        fill(&*origin, round % 39, value);
        let view = origin.cut().unwrap();
        fill(&*origin, round % 39, !value);
        assert_eq!(shown(&*view, round % 39), value, "round {round}");
        assert_eq!(shown(&*view, 39), 0, "round {round}");
        if round % 50 == 0 {
            assert_eq!((shown(&*old, 3), shown(&*old, round % 39)), (7, if round % 39 == 3 { 7 } else { 0 }));
        }
    }
    assert_eq!(shown(&*old, 3), 7);
    assert_eq!(origin.stats().cuts, 601);
}

pub fn the_range_is_free_for_others_when_the_last_view_is_gone(mechanism: Mechanism) {
    for other in [mechanism, Mechanism::Fork, Mechanism::Memcpy, mechanism] {
        let memory = Memory::new(Kind::Borrowed, PAGES);
        for round in 1..4u8 {
            let chosen = if round == 2 { other } else { mechanism };
            let Some(origin) = attach_or_skip(chosen, memory.span(), &OriginOptions::default()) else { return };
            fill(&*origin, 5, round);
            let view = origin.cut().unwrap();
            fill(&*origin, 5, 50);
            if round == 1 {
                drop(origin);
            }
            assert_eq!(shown(&*view, 5), round);
        }
        assert_eq!(read(memory.span.base(), 5 * PAGE_SIZE, 1), [50]);
        // Around the range nothing has changed either.
        let before = read(memory.span.base().wrapping_sub(PAGE_SIZE), 0, PAGE_SIZE);
        let after = read(memory.span.base().wrapping_add(memory.span.len()), 0, PAGE_SIZE);
        assert!(before.iter().chain(&after).all(|&byte| byte == 0));
    }
}

/// What a mechanism leaves may be a mapping of its file, of which the page map shows only what was written since.
pub fn what_the_mechanism_before_has_left_is_kept_and_shown(mechanism: Mechanism) {
    'before: for before in Mechanism::ALL {
        for kind in KINDS {
            let memory = Memory::new(kind, PAGES);
            for (chosen, last) in [(before, 4), (mechanism, 6), (mechanism, 8)] {
                let Some(origin) = attach_or_skip(chosen, memory.span(), &OriginOptions::default()) else {
                    continue 'before;
                };
                fill(&*origin, last - 1, 7);
                let view = origin.cut().unwrap();
                fill(&*origin, last, 7);
                let pages: Vec<u8> = (0..10).map(|page| shown(&*view, page)).collect();
                let wanted: Vec<u8> = (0..10).map(|page| if (3..last).contains(&page) { 7 } else { 0 }).collect();
                assert_eq!(pages, wanted, "{chosen} after {before}, {kind:?}");
            }
            let left: Vec<u8> = (0..10).map(|page| read(memory.span.base(), page * PAGE_SIZE + 9, 1)[0]).collect();
            assert_eq!(left, [0, 0, 0, 7, 7, 7, 7, 7, 7, 0], "{mechanism} after {before}, {kind:?}");
        }
    }
}
