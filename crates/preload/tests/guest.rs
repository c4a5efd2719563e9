//! The whole engine in this process: forks through the hook, a child that lives, pages copied ahead.
//!
//! Relies on being a program of its own with one test, so that whatever is allocated meanwhile is the library's doing.

use std::time::{Duration, Instant};

use quire_preload::heap::private_heap::allocations;
use quire_preload::hooks;
use quire_sys::area::AnonymousMap;
use quire_sys::child::{Child, WaitStatus};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::Pagemap;

const PAGES: usize = 16_384;
const STATUS: i32 = 23;

/// Writes a byte into each page.
fn touch(memory: &AnonymousMap, value: u8, pages: impl Iterator<Item = usize>) {
    for page in pages {
        // SAFETY: inside the area, which is this test's own.
        unsafe { memory.base().add(page * PAGE_SIZE).write_volatile(value) };
    }
}

fn own_pages(pagemap: &Pagemap, memory: &AnonymousMap, words: &mut [u64]) -> usize {
    pagemap.read_words(memory.base() as usize, words).unwrap();
    words.iter().filter(|&&word| quire_sys::pagemap::PagemapEntry::is_exclusive(word)).count()
}

/// What one child's life showed.
#[derive(Debug)]
struct Seen {
    /// The most pages that were the parent's own before it wrote any.
    copied: usize,
    allocations: usize,
}

/// Forks a child that lives until this process has written to memory; before that it waits until `enough` pages are copied
/// ahead, at most for `patience`.
fn one_child(
    memory: &AnonymousMap,
    pagemap: &Pagemap,
    words: &mut [u64],
    value: u8,
    enough: usize,
    patience: Duration,
) -> Seen {
    let before = allocations();
    let done = AnonymousMap::shared(PAGE_SIZE).unwrap();
    let pid = hooks::fork();
    if pid == 0 {
        // SAFETY: the page is shared with the parent and outlives the child's use of it.
        while unsafe { done.base().read_volatile() } == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: inside the area; the parent's writes must not be seen here.
        let seen = unsafe { memory.base().read_volatile() };
        hooks::_exit(if seen == value.wrapping_sub(1) { STATUS } else { 1 });
    }
    assert!(pid > 0);
    let began = Instant::now();
    let mut copied = 0;
    while copied < enough && began.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(20));
        copied = own_pages(pagemap, memory, words);
    }
    touch(memory, value, 0..PAGES);
    let allocations = allocations() - before;
    // SAFETY: the first byte of a mapping of this test's, which lives until its end; parent and child use it by raw accesses alone.
    unsafe { done.base().write_volatile(1) };
    let mut child = Child::adopt(pid.cast_unsigned()).unwrap();
    assert_eq!(child.wait(), WaitStatus::Exited(STATUS));
    Seen { copied, allocations }
}

/// The library takes its settings when a program starts, so the test starts itself anew with them.
#[test]
fn what_was_written_is_copied_ahead_next_time_without_allocating() {
    if std::env::var_os("QUIRE_PRELOAD_MIN").is_some() {
        return several_children();
    }
    for huge in ["off", "auto"] {
        // A busy machine may let the worker miss the last child's end.
        let sees_the_end = (0..10).any(|_| run_anew(huge).contains("seen at its end"));
        assert!(sees_the_end, "{huge}: no run saw a child's end");
    }
}

fn run_anew(huge: &str) -> String {
    let mut own = std::process::Command::new(std::env::current_exe().unwrap());
    own.env("QUIRE_PRELOAD_MIN", "1m").env("QUIRE_PRELOAD_LOG", "1").env("QUIRE_PRELOAD_HUGE", huge);
    own.env("QUIRE_PRELOAD_BUSY", "100%");
    let output = own.args(["--nocapture", "--test-threads=1"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{huge}: {told}{}", String::from_utf8_lossy(&output.stdout));
    assert!(told.contains("quire-preload: active in "), "{told}");
    told
}

fn several_children() {
    let memory = AnonymousMap::private(PAGES * PAGE_SIZE).unwrap();
    touch(&memory, 0, 0..PAGES);
    let pagemap = Pagemap::open(None).unwrap();
    let mut words = vec![0; PAGES];
    let enough = PAGES * 3 / 4;
    let first = one_child(&memory, &pagemap, &mut words, 1, enough, Duration::from_millis(500));
    assert!(first.copied < PAGES / 10, "nothing is known of the first child: {first:?}");
    // A busy machine may let it miss a child, and then it learns from the next.
    for value in 2..30 {
        let seen = one_child(&memory, &pagemap, &mut words, value, enough, Duration::from_secs(5));
        assert_eq!(seen.allocations, 0);
        if seen.copied >= enough {
            std::thread::sleep(Duration::from_millis(200));
            return;
        }
    }
    panic!("nothing was copied ahead");
}
