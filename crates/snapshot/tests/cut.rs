//! A snapshot equals the memory at its cut, whatever is written and taken in between.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use quire_rng::SplitMix64;
use quire_snapshot::{
    FilePages, PAGE_SIZE, REGION_SIZE, Snapshot, SnapshotError, TakeOutcome, WriteBarrier, WriteBarrierConfig,
};
use quire_sys::mem::Reservation;

const PAGES: usize = 40;

/// Memory behind a barrier, written the way an owner must.
struct Writer {
    barrier: WriteBarrier,
    memory: Arc<Reservation>,
}

impl Writer {
    fn new(pages: usize, budget_pages: usize) -> Self {
        let memory = Arc::new(Reservation::new(pages * PAGE_SIZE).unwrap());
        memory.commit(0..memory.len()).unwrap();
        let config = WriteBarrierConfig { budget_bytes: budget_pages * PAGE_SIZE };
        Self { barrier: WriteBarrier::new(Arc::clone(&memory), config).unwrap(), memory }
    }

    fn write(&mut self, page: usize, value: u8) {
        self.barrier.mark_present(page as u32..page as u32 + 1);
        self.barrier.before_write(page * PAGE_SIZE + 7, PAGE_SIZE - 7);
        // SAFETY: committed, passed the barrier, and this is the only writer.
        unsafe { self.memory.base().add(page * PAGE_SIZE + 7).write_bytes(value, PAGE_SIZE - 7) };
    }

    fn copy(&self, pages: usize) -> Vec<u8> {
        // SAFETY: committed, and the only writer is this struct, borrowed here.
        unsafe { std::slice::from_raw_parts(self.memory.base(), pages * PAGE_SIZE) }.to_vec()
    }
}

/// Takes what is left and puts it over a model of zeros.
fn drain(snapshot: &mut Snapshot, image: &mut [u8]) {
    let mut page = vec![0; PAGE_SIZE];
    for number in 0..snapshot.page_count() {
        if snapshot.take(number, &mut page) == TakeOutcome::Copied {
            image[number as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8),
    Take(usize),
    Preimage,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..PAGES, any::<u8>()).prop_map(|(page, value)| Step::Write(page, value)),
        2 => (0..PAGES).prop_map(Step::Take),
        1 => Just(Step::Preimage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_order_of_writes_and_takes_gives_the_memory_at_the_cut(
        before in prop::collection::vec((0..PAGES, any::<u8>()), 0..60),
        epochs in prop::collection::vec(prop::collection::vec(step(), 0..80), 1..4),
        pages in 1..PAGES,
    ) {
        let mut writer = Writer::new(PAGES, PAGES);
        for (page, value) in before {
            writer.write(page, value);
        }
        for steps in epochs {
            let expected = writer.copy(pages);
            let mut snapshot = writer.barrier.cut(pages as u32).unwrap();
            let mut image = vec![0; pages * PAGE_SIZE];
            let mut page = vec![0; PAGE_SIZE];
            for step in steps {
                match step {
                    Step::Write(at, value) => writer.write(at, value),
                    Step::Take(at) => {
                        if snapshot.take(at as u32, &mut page) == TakeOutcome::Copied {
                            image[at * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page);
                        }
                    }
                    Step::Preimage => {
                        if let Some(at) = snapshot.next_preimage(&mut page) {
                            image[at as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page);
                        }
                    }
                }
            }
            drain(&mut snapshot, &mut image);
            prop_assert!(image == expected);
            prop_assert!(snapshot.next_preimage(&mut page).is_none());
            drop(snapshot);
            prop_assert!(writer.barrier.try_finish());
        }
    }
}

#[test]
fn a_reader_beside_a_busy_writer_sees_the_cut_within_a_tiny_budget() {
    let pages = 3 * REGION_SIZE / PAGE_SIZE;
    let mut writer = Writer::new(pages, 8);
    for page in 0..pages {
        writer.write(page, page as u8);
    }
    for round in 0..12u8 {
        let expected = writer.copy(pages);
        let mut snapshot = writer.barrier.cut(pages as u32).unwrap();
        let reader = std::thread::spawn(move || {
            let mut image = vec![0; pages * PAGE_SIZE];
            let mut page = vec![0; PAGE_SIZE];
            for number in 0..pages {
                while snapshot.pressure() {
                    let Some(at) = snapshot.next_preimage(&mut page) else {
                        break;
                    };
                    image[at as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page);
                }
                if snapshot.take(number as u32, &mut page) == TakeOutcome::Copied {
                    image[number * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&page);
                }
            }
            image
        });
        let mut rng = SplitMix64::new(u64::from(round));
        for _ in 0..4 * pages {
            writer.write(rng.index(pages), rng.next_u64() as u8);
        }
        assert!(reader.join().unwrap() == expected, "round {round}");
        assert!(writer.barrier.try_finish());
    }
    let stats = writer.barrier.stats();
    assert_eq!(stats.cuts, 12);
    assert!(stats.preimage_pages > 0);
    assert!(stats.preimage_bytes_peak <= stats.budget_bytes);
}

#[test]
fn an_abandoned_snapshot_frees_a_waiting_writer() {
    let mut writer = Writer::new(PAGES, 1);
    for page in 0..PAGES {
        writer.write(page, 1);
    }
    let snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    assert!(matches!(writer.barrier.cut(PAGES as u32), Err(SnapshotError::Busy)));
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dropped);
    let state = format!("/proc/self/task/{}/stat", quire_sys::thread::current().raw());
    let dropper = std::thread::spawn(move || {
        // The first write takes the only buffer; the second one sleeps until there is another.
        while !snapshot.pressure() || !std::fs::read_to_string(&state).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
        flag.store(true, Ordering::SeqCst);
        drop(snapshot);
    });
    for page in 0..PAGES {
        writer.write(page, 2);
    }
    assert!(dropped.load(Ordering::SeqCst), "the second write had to wait for a buffer");
    dropper.join().unwrap();
    assert!(writer.barrier.try_finish());
    let stats = writer.barrier.stats();
    assert_eq!((stats.budget_waits, stats.waits), (1, 1));
    assert!(stats.wait_longest_ns > 0 && stats.wait_longest_ns == stats.wait_total_ns, "{stats:?}");
}

#[test]
fn snapshots_stay_right_when_their_numbers_start_again() {
    let mut writer = Writer::new(PAGES, PAGES);
    for round in 0..600usize {
        writer.write(round % PAGES, round as u8);
        let expected = writer.copy(PAGES);
        let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
        writer.write(round % PAGES, !(round as u8));
        let mut image = vec![0; PAGES * PAGE_SIZE];
        if round % 3 > 0 {
            drain(&mut snapshot, &mut image);
            assert!(image == expected, "round {round}");
        }
        drop(snapshot);
        assert!(writer.barrier.try_finish());
    }
}

#[test]
fn released_pages_read_as_zero_and_leave_later_snapshots() {
    let mut writer = Writer::new(PAGES, PAGES);
    writer.write(3, 9);
    writer.write(4, 9);
    let snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    assert!(!writer.barrier.release_pages(3..4), "an open snapshot may still need the page");
    drop(snapshot);
    assert!(writer.barrier.try_finish());
    assert!(writer.barrier.release_pages(3..4));
    let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    let mut page = vec![0; PAGE_SIZE];
    assert_eq!(snapshot.take(3, &mut page), TakeOutcome::Absent);
    assert_eq!(snapshot.take(4, &mut page), TakeOutcome::Copied);
    assert_eq!(snapshot.take(4, &mut page), TakeOutcome::AlreadyTaken);
}

/// Memory that is mapped from a file of nines, and is to be nines where it is still the file's.
fn mapped(name: &str) -> (Writer, std::fs::File) {
    let path = std::env::temp_dir().join(format!("quire-cut-{name}-{}", std::process::id()));
    std::fs::write(&path, vec![9; PAGES * PAGE_SIZE]).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut writer = Writer::new(PAGES, PAGES);
    writer.memory.map_file_private(0..PAGES * PAGE_SIZE, &file, 0).unwrap();
    writer.barrier.mark_present(0..PAGES as u32);
    let files = FilePages::new(PAGES, |_, bytes| bytes.iter().all(|byte| *byte == 9));
    files.insert(0..PAGES as u32);
    writer.barrier.set_file_pages(Arc::new(files));
    (writer, file)
}

/// Another program writes into a page of the file.
fn rot(file: &std::fs::File, page: usize) {
    std::os::unix::fs::FileExt::write_all_at(file, &[1], (page * PAGE_SIZE + 5) as u64).unwrap();
}

#[test]
fn a_page_of_a_file_is_examined_when_it_is_taken_and_one_that_was_written_is_not() {
    let (mut writer, file) = mapped("taken");
    writer.write(3, 5);
    rot(&file, 3);
    let mut image = vec![0; PAGES * PAGE_SIZE];
    let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    drain(&mut snapshot, &mut image);
    assert_eq!((snapshot.damaged_page(), image[3 * PAGE_SIZE + 5], image[3 * PAGE_SIZE + 7]), (None, 9, 5));
    drop(snapshot);
    assert!(writer.barrier.try_finish());
    rot(&file, 8);
    let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    assert_eq!(snapshot.damaged_page(), None);
    drain(&mut snapshot, &mut image);
    assert_eq!(snapshot.damaged_page(), Some(8));
}

#[test]
fn a_page_of_a_file_is_examined_before_its_first_write_with_and_without_a_snapshot() {
    let (mut writer, file) = mapped("written");
    let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    writer.write(3, 5);
    rot(&file, 3);
    assert_eq!(snapshot.damaged_page(), None, "the pre-image is from before");
    drain(&mut snapshot, &mut vec![0; PAGES * PAGE_SIZE]);
    assert_eq!(snapshot.damaged_page(), None);
    drop(snapshot);
    assert!(writer.barrier.try_finish());
    rot(&file, 4);
    writer.write(4, 5);
    let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    assert_eq!(snapshot.damaged_page(), Some(4));
    let (mut other, file) = mapped("held");
    snapshot = other.barrier.cut(PAGES as u32).unwrap();
    rot(&file, 6);
    other.write(6, 5);
    let mut page = vec![0; PAGE_SIZE];
    while snapshot.next_preimage(&mut page).is_some() {}
    assert_eq!(snapshot.damaged_page(), Some(6), "though only its pre-image was taken");
}

#[test]
fn a_pre_image_and_what_the_page_becomes_are_examined_each_by_itself() {
    let (mut writer, _file) = mapped("both");
    let looks = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&looks);
    let files = FilePages::new(PAGES, move |page, bytes| {
        noted.lock().unwrap().push((page, bytes.as_ptr().addr()));
        true
    });
    files.insert(0..PAGES as u32);
    writer.barrier.set_file_pages(Arc::new(files));
    let snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    writer.write(6, 5);
    writer.write(6, 4);
    drop(snapshot);
    assert!(writer.barrier.try_finish());
    writer.write(7, 5);
    // The page cache may have read the page again between the two.
    let at = |page: usize| writer.memory.base().addr() + page * PAGE_SIZE;
    let looks = looks.lock().unwrap().clone();
    assert_eq!(looks.iter().map(|look| look.0).collect::<Vec<_>>(), [6, 6, 7]);
    assert_eq!(looks.iter().map(|look| look.1 == at(look.0 as usize)).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn released_pages_of_a_mapped_file_read_as_zero_and_not_as_the_file() {
    let (mut writer, _file) = mapped("released");
    writer.write(3, 5);
    assert!(writer.barrier.release_pages(3..5));
    let mut expected = vec![9; PAGES * PAGE_SIZE];
    expected[3 * PAGE_SIZE..5 * PAGE_SIZE].fill(0);
    assert!(writer.copy(PAGES) == expected);
    writer.write(4, 6);
    expected[4 * PAGE_SIZE + 7..5 * PAGE_SIZE].fill(6);
    let mut snapshot = writer.barrier.cut(PAGES as u32).unwrap();
    let mut image = vec![0; PAGES * PAGE_SIZE];
    drain(&mut snapshot, &mut image);
    assert!(image == expected);
}

#[test]
fn a_page_of_a_file_that_is_given_up_is_examined_since_others_may_have_been_copied_from_it() {
    let (mut writer, file) = mapped("given-up");
    writer.write(3, 5);
    rot(&file, 3);
    assert!(writer.barrier.release_pages(3..5));
    assert_eq!(writer.barrier.cut(PAGES as u32).unwrap().damaged_page(), None, "the writer had written it");
    assert!(writer.barrier.try_finish());
    rot(&file, 6);
    assert!(writer.barrier.release_pages(5..8));
    assert_eq!(writer.barrier.cut(PAGES as u32).unwrap().damaged_page(), Some(6));
}

#[test]
fn an_adopted_region_keeps_what_was_written_since_the_restore() {
    let mut writer = Writer::new(2 * REGION_SIZE / PAGE_SIZE, 8);
    let staging = Reservation::new(2 * REGION_SIZE).unwrap();
    staging.commit(0..2 * REGION_SIZE).unwrap();
    // SAFETY: committed above and used by this thread only.
    unsafe { staging.base().write_bytes(5, 2 * REGION_SIZE) };
    writer.barrier.set_restoring(true);
    writer.write(1, 77);
    assert_eq!(writer.barrier.migrate_regions(0..1, &staging).unwrap(), 1);
    let now = writer.copy(512);
    assert_eq!(now[0], 5);
    assert_eq!(now[PAGE_SIZE], 0);
    assert_eq!(now[PAGE_SIZE + 7], 77);
    assert_eq!(now[2 * PAGE_SIZE], 5);
    assert!(writer.barrier.migrate_regions(2..3, &staging).is_err());
}
