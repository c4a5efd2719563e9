//! The whole engine in this process: forks through the hook, a child that lives, pages copied ahead.
//!
//! Relies on being a program of its own with one test, so that whatever is allocated meanwhile is the library's doing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quire_preload::hooks;
use quire_sys::area::Area;
use quire_sys::child::{Child, Ending};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::Pagemap;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PAGES: usize = 16_384;
const STATUS: i32 = 23;

/// Writes a byte into each page.
fn touch(memory: &Area, value: u8, pages: impl Iterator<Item = usize>) {
    for page in pages {
        // SAFETY: inside the area, which is this test's own.
        unsafe { memory.base().add(page * PAGE_SIZE).write_volatile(value) };
    }
}

fn own_pages(pagemap: &Pagemap, memory: &Area, words: &mut [u64]) -> usize {
    pagemap.read_words(memory.base() as usize, words).unwrap();
    words.iter().filter(|&&word| quire_sys::pagemap::Entry::is_exclusive(word)).count()
}

/// Forks a child that lives for `life`; returns how many pages were the parent's own before it wrote any, and how many
/// allocations were made.
fn one_child(memory: &Area, pagemap: &Pagemap, words: &mut [u64], life: Duration, value: u8) -> (usize, usize) {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let pid = hooks::fork();
    if pid == 0 {
        let until = Instant::now() + life;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: inside the area; the parent's writes must not be seen here.
        let seen = unsafe { memory.base().read_volatile() };
        hooks::_exit(if seen == value.wrapping_sub(1) { STATUS } else { 1 });
    }
    assert!(pid > 0);
    std::thread::sleep(life / 2);
    let copied = own_pages(pagemap, memory, words);
    touch(memory, value, 0..PAGES);
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let mut child = Child::adopt(pid.cast_unsigned()).unwrap();
    assert_eq!(child.wait(), Ending::Exited(STATUS));
    (copied, allocated)
}

/// The library takes its settings when a program starts, so the test starts itself anew with them.
#[test]
fn what_was_written_is_copied_ahead_next_time_without_allocating() {
    if std::env::var_os("QUIRE_PRELOAD_MIN").is_some() {
        return four_children();
    }
    for huge in ["off", "auto"] {
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.env("QUIRE_PRELOAD_MIN", "1m").env("QUIRE_PRELOAD_LOG", "1").env("QUIRE_PRELOAD_HUGE", huge);
        let output = own.args(["--nocapture", "--test-threads=1"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{huge}: {told}{}", String::from_utf8_lossy(&output.stdout));
        assert!(told.contains("quire-preload: active in "), "{told}");
        assert_eq!(told.matches("seen at its end").count(), 4, "{told}");
    }
}

fn four_children() {
    let memory = Area::private(PAGES * PAGE_SIZE).unwrap();
    touch(&memory, 0, 0..PAGES);
    let pagemap = Pagemap::open(None).unwrap();
    let mut words = vec![0; PAGES];
    let mut results = Vec::with_capacity(4);
    for value in 1..=4 {
        results.push(one_child(&memory, &pagemap, &mut words, Duration::from_millis(600), value));
        // The library learns from a child after its end.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(results[0].0 < PAGES / 10, "nothing is known of the first child: {results:?}");
    // On a busy machine it may come late now and then, but not always. A sample of the pages is always left.
    let most = results.iter().map(|result| result.0).max().unwrap();
    assert!(most > PAGES / 2 && most < PAGES * 99 / 100, "{results:?}");
    assert!(results.iter().all(|result| result.1 == 0), "allocations: {results:?}");
}
