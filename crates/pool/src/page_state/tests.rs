//! A page's state goes from status to status as its users ask, one step after the other.

use super::*;

fn clean() -> PageState {
    let state = PageState::new();
    state.begin_read(None).unwrap();
    assert_eq!(state.end_read(LockMode::None), DeferredWork { wake: false, enqueue: true });
    state
}

#[test]
fn a_page_goes_through_its_life() {
    let state = clean();
    state.try_lock_shared().unwrap();
    assert_eq!(state.load().shared(), 1);
    assert!(state.try_lock_exclusive().is_err() && state.begin_evict(true).is_err());
    assert!(!state.unlock_shared());
    assert!(state.try_lock_exclusive().unwrap(), "it was clean");
    assert!(state.try_lock_shared().is_err() && state.begin_write().is_err());
    assert!(!state.unlock_exclusive());
    assert_eq!((state.load().status(), state.load().version()), (PageStatus::Dirty, 1));
    assert!(state.begin_evict(true).is_err());
    state.begin_write().unwrap();
    state.try_lock_shared().unwrap();
    assert!(state.try_lock_exclusive().is_err(), "a page that is being written is not changed");
    assert_eq!(state.end_write(false), DeferredWork::default(), "it is still in its queue");
    assert!(!state.unlock_shared());
    state.begin_evict(true).unwrap();
    assert_eq!(state.end_evict(), DeferredWork::default());
    assert_eq!((state.load().status(), state.load().version(), state.touches()), (PageStatus::Absent, 2, 0));
}

#[test]
fn a_page_read_in_order_to_change_it_is_never_clean() {
    let state = PageState::new();
    state.begin_read(None).unwrap();
    assert_eq!(state.end_read(LockMode::Exclusive), DeferredWork { wake: false, enqueue: true });
    assert!(state.load().is_exclusive());
    assert_eq!(state.load().status(), PageStatus::Dirty);
    assert!(!state.unlock_exclusive());
    assert_eq!(state.load().shared(), 0);
}

#[test]
fn a_failed_write_leaves_the_page_dirty_and_a_failed_read_leaves_it_absent() {
    let state = clean();
    assert!(state.try_lock_exclusive().unwrap());
    let _ = state.unlock_exclusive();
    state.begin_write().unwrap();
    assert_eq!(state.end_write(true), DeferredWork::default());
    assert_eq!(state.load().status(), PageStatus::Dirty);

    let state = PageState::new();
    state.begin_read(Some(5)).unwrap();
    assert_eq!(state.load().readahead_queue(), Some(5));
    let _ = state.fail_read();
    assert_eq!((state.load().status(), state.load().readahead_queue()), (PageStatus::Absent, None));
}

#[test]
fn touches_count_to_three_and_decay() {
    let state = clean();
    for expected in [1, 2, 3, 3] {
        state.try_lock_shared().unwrap();
        let _ = state.unlock_shared();
        assert_eq!(state.touches(), expected);
    }
    state.decay(1);
    state.decay(2);
    assert_eq!(state.touches(), 1);
    state.touch(state.load());
    assert_eq!(state.touches(), 2);
}

#[test]
fn an_optimistic_read_is_refuted_by_a_change_and_by_an_eviction_but_not_by_readers_and_writeback() {
    let state = clean();
    let snapshot = state.optimistic_read().unwrap();
    state.try_lock_shared().unwrap();
    let _ = state.unlock_shared();
    assert!(state.validate(snapshot));
    assert!(state.try_lock_exclusive().unwrap());
    assert!(!state.validate(snapshot));
    let _ = state.unlock_exclusive();
    assert!(!state.validate(snapshot));
    let snapshot = state.optimistic_read().unwrap();
    state.begin_write().unwrap();
    let _ = state.end_write(false);
    assert!(state.validate(snapshot));
    state.begin_evict(true).unwrap();
    assert!(!state.validate(snapshot));
    let _ = state.end_evict();
    state.begin_read(None).unwrap();
    let _ = state.end_read(LockMode::None);
    assert!(!state.validate(snapshot));
}

#[test]
fn an_entry_stays_queued_until_it_is_taken_out() {
    let state = clean();
    assert!(state.dequeue().is_err());
    state.begin_evict(false).unwrap();
    let _ = state.end_evict();
    state.begin_read(None).unwrap();
    assert!(!state.end_read(LockMode::None).enqueue, "its old entry is still there");
    assert!(state.try_lock_exclusive().unwrap());
    let _ = state.unlock_exclusive();
    state.dequeue().unwrap();
    state.begin_write().unwrap();
    assert!(state.end_write(false).enqueue);
}

#[test]
fn a_marked_page_is_passed_on_once() {
    let state = clean();
    state.mark();
    assert!(state.try_lock_shared().unwrap_err().is_marked());
    assert!(state.unmark() && !state.unmark());
    state.try_lock_shared().unwrap();
}

#[test]
fn no_more_readers_come_in_than_can_be_counted() {
    let state = clean();
    (0..0x7ff).for_each(|_| state.try_lock_shared().unwrap());
    assert!(state.try_lock_shared().is_err());
    assert_eq!(state.load().version(), 0);
    let _ = state.unlock_shared();
    state.try_lock_shared().unwrap();
}

#[test]
fn a_version_that_wraps_touches_nothing_else() {
    let state = clean();
    state.0.fetch_or(u64::MAX << VERSION_SHIFT, Ordering::Relaxed);
    assert!(state.try_lock_exclusive().unwrap());
    let _ = state.unlock_exclusive();
    assert_eq!((state.load().version(), state.load().status()), (0, PageStatus::Dirty));
}
