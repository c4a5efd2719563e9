//! The log on a disk that is full for a while: it is told, nothing is torn or lost, and the log goes on when there is room.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::sync::Arc;

use common::{SEGMENT_BYTES, append, base, durable, identity, options, read, start};
use proptest::prelude::*;
use quire_device::{
    DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, errno,
};
use quire_wal::{Log, LogError, NextSegment, SyncPolicy};

const LEN: usize = 500;
/// Bytes of a segment before its first record.
const DATA_OFFSET: u64 = 4096;
/// A record that gets a segment of its own.
const LARGE_LEN: usize = 2 * SEGMENT_BYTES as usize;

/// A disk in memory that a test fills up and empties.
struct Disk {
    memory: MemoryDirectory,
    injector: FaultInjector,
    directory: Arc<dyn Directory>,
}

impl Disk {
    fn new() -> Self {
        let memory = MemoryDirectory::new();
        let injector = FaultInjector::new(Arc::new(memory.clone()), Vec::new());
        Self { memory, directory: Arc::new(injector.clone()), injector }
    }

    /// From here on no file gets space, for the reason with this number.
    fn fill_up(&self, errno: i32) {
        self.injector.set_rules(vec![(FaultTrigger::From(DeviceOperation::Allocate, 0), InjectedFault::Error(errno))]);
    }

    fn make_room(&self) {
        self.injector.set_rules(Vec::new());
    }

    /// As a killed process leaves it.
    fn left(&self) -> MemoryDirectory {
        self.memory.after_power_cut(PowerCut::KeepAll)
    }
}

/// Waits until record `sequence` is durable; false if there is no room for it.
fn durable_or_awaited(log: &Log, sequence: u64) -> bool {
    loop {
        // In this order: a log that went on meanwhile is not taken for one that stands still.
        let awaited = log.next_segment() == NextSegment::Awaited;
        if log.durable() >= sequence {
            return true;
        }
        assert_eq!(log.failure(), None);
        if awaited && log.next_segment() == NextSegment::Awaited && log.durable() < sequence {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Adds records until one has no room. Returns how many are durable.
fn fill(log: &mut Log) -> u64 {
    loop {
        append(log, LEN).unwrap();
        log.hurry();
        if !durable_or_awaited(log, log.appended()) {
            assert_eq!(log.durable(), log.appended() - 1);
            return log.durable();
        }
    }
}

/// A log that has begun its third segment, all of it durable.
fn log_of_three_segments(disk: &Disk) -> Log {
    let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
    while log.stats().segments < 3 {
        append(&mut log, LEN).unwrap();
        log.commit();
        assert!(durable(&log, log.appended()));
    }
    log
}

/// Has the log try again until it did so; true if it went on.
fn try_again(disk: &Disk, log: &Log) -> bool {
    let struck = disk.injector.struck();
    log.retry_files();
    loop {
        if log.next_segment() != NextSegment::Awaited {
            return true;
        }
        if disk.injector.struck() > struck {
            return false;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_full_disk_is_told_and_waited_for_and_the_log_goes_on() {
    for (errno, sync) in [
        (errno::ENOSPC, SyncPolicy::Always),
        (errno::EDQUOT, SyncPolicy::Always),
        (errno::ENOSPC, SyncPolicy::EverySecond),
        (errno::ENOSPC, SyncPolicy::Never),
    ] {
        let disk = Disk::new();
        let mut log = start(&disk.directory, sync, 0).unwrap();
        disk.fill_up(errno);
        // Everything that has room is durable, whatever the policy, and what has none is kept.
        let acknowledged = fill(&mut log);
        assert!(acknowledged > 10);
        let files = disk.memory.list().unwrap();
        for _ in 0..5 {
            append(&mut log, LEN).unwrap();
            log.commit();
            assert!(!try_again(&disk, &log), "there is no room yet");
        }
        assert_eq!((log.durable(), log.failure()), (acknowledged, None));
        assert_eq!(log.shortage().map(|error| error.errno), Some(Some(errno)));
        assert!(log.waiting_bytes() > 6 * LEN);
        assert_eq!(read(&disk.left(), base(0), |_| LEN).unwrap().0.len() as u64, acknowledged);
        disk.make_room();
        assert!(try_again(&disk, &log));
        log.hurry();
        assert!(durable(&log, log.appended()));
        assert_eq!((log.shortage(), log.waiting_bytes()), (None, 0));
        let last = log.appended();
        log.finish().unwrap();
        assert_eq!(read(&disk.memory, base(0), |_| LEN).unwrap().0.len() as u64, last);
        // The attempts left nothing behind, and all took the same number.
        let new = disk.memory.list().unwrap().into_iter().filter(|name| !files.contains(name)).collect::<Vec<_>>();
        assert!(new.starts_with(&["quire-log-00000002".to_owned()]), "{new:?}");
    }
}

#[test]
fn a_disk_that_is_full_for_a_while_is_told_before_anything_has_to_wait() {
    let disk = Disk::new();
    // The first segment is made at the start, the second one ahead of its use.
    let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
    disk.fill_up(errno::ENOSPC);
    while log.shortage().is_none() {
        // Beyond half of the segment, and not to its end.
        if log.appended() < 40 {
            append(&mut log, LEN).unwrap();
            log.commit();
            assert!(durable(&log, log.appended()));
        }
    }
    assert!(log.shortage().is_some_and(|error| error.is_full()) && log.failure().is_none());
    assert_eq!(log.next_segment(), NextSegment::Failed);
    disk.make_room();
    log.retry_files();
    while log.shortage().is_some() {
        std::thread::yield_now();
    }
    assert_eq!(log.next_segment(), NextSegment::Ready);
    let last = log.appended() + 200;
    while log.appended() < last {
        append(&mut log, LEN).unwrap();
        log.commit();
        assert!(durable(&log, log.appended()));
    }
    assert_eq!((log.failure(), log.shortage()), (None, None));
    log.finish().unwrap();
    assert_eq!(read(&disk.memory, base(0), |_| LEN).unwrap().0.len() as u64, last);
}

#[test]
fn what_stands_before_the_record_without_room_is_acknowledged() {
    let disk = Disk::new();
    let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
    disk.fill_up(errno::ENOSPC);
    // One batch, of which half has room.
    let last = 2 * SEGMENT_BYTES / LEN as u64;
    while log.appended() < last {
        append(&mut log, LEN).unwrap();
    }
    log.commit();
    assert!(!durable_or_awaited(&log, last));
    assert!((last / 4..last).contains(&log.durable()), "{}", log.durable());
    assert_eq!(read(&disk.left(), base(0), |_| LEN).unwrap().0.len() as u64, log.durable());
    disk.make_room();
    assert!(try_again(&disk, &log));
    assert!(durable(&log, last));
    log.finish().unwrap();
    assert_eq!(read(&disk.memory, base(0), |_| LEN).unwrap().0.len() as u64, last);
}

#[test]
fn a_log_ends_on_a_full_disk_and_says_what_is_not_in_it() {
    for sync in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        let disk = Disk::new();
        let mut log = start(&disk.directory, sync, 0).unwrap();
        disk.fill_up(errno::ENOSPC);
        let written = SEGMENT_BYTES / LEN as u64 / 2;
        while log.appended() < written {
            append(&mut log, LEN).unwrap();
        }
        // Whether the log thread has come to the large record yet or not.
        append(&mut log, LARGE_LEN).unwrap();
        log.commit();
        let failure = log.finish().unwrap_err();
        assert!(
            matches!(&failure, LogError::NoRoom { durable, cause } if *durable == written && cause.is_full()),
            "{failure}"
        );
        assert!(failure.to_string().contains(&format!("without the records after {written}")), "{failure}");
        let (found, recovered) = read(&disk.memory, base(0), |_| LEN).unwrap();
        assert_eq!((found.len() as u64, recovered.torn), (written, None));
        // Its end is marked, as that of any log that was ended.
        let name = disk.memory.list().unwrap().remove(0);
        let mut bytes = disk.memory.bytes(&name).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[last - 200] ^= 1;
        disk.memory.put(&name, &bytes);
        assert!(matches!(read(&disk.memory, base(0), |_| LEN), Err(LogError::Damaged { .. })));
    }
}

#[test]
fn a_log_that_ends_when_there_is_room_again_is_whole() {
    let disk = Disk::new();
    let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
    disk.fill_up(errno::ENOSPC);
    fill(&mut log);
    let last = log.appended();
    disk.make_room();
    // It was not told to try again.
    log.finish().unwrap();
    assert_eq!(read(&disk.memory, base(0), |_| LEN).unwrap().0.len() as u64, last);
}

#[test]
fn an_image_that_frees_files_makes_the_log_go_on() {
    let disk = Disk::new();
    let mut log = log_of_three_segments(&disk);
    disk.fill_up(errno::ENOSPC);
    let acknowledged = fill(&mut log);
    // It is not told to try again, and no file gets space: those that the image covers are used again.
    log.cover(acknowledged);
    assert!(durable(&log, log.appended()));
    assert!(disk.injector.struck() > 0);
    let last = log.appended();
    log.finish().unwrap();
    let (found, _) = read(&disk.memory, base(acknowledged), |_| LEN).unwrap();
    assert_eq!(found, (acknowledged + 1..=last).collect::<Vec<_>>());
}

#[test]
fn an_image_that_covers_the_only_segment_makes_the_log_go_on_in_its_place() {
    // Whether the image holds what has no room in the log, as one does that is cut then.
    for has_all in [false, true] {
        let disk = Disk::new();
        let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
        disk.fill_up(errno::ENOSPC);
        let acknowledged = fill(&mut log);
        let files = disk.memory.list().unwrap();
        assert_eq!((log.stats().segments, files.len()), (1, 1));
        let position = if has_all { log.appended() } else { acknowledged };
        log.cover(acknowledged - 1);
        while log.is_covering() {
            std::thread::yield_now();
        }
        assert!(!durable_or_awaited(&log, log.appended()), "its last record is in no image");
        assert_eq!(read(&disk.left(), base(0), |_| LEN).unwrap().0.len() as u64, acknowledged);
        log.cover(position);
        while log.is_covering() {
            std::thread::yield_now();
        }
        // Whether the log has gone on by then or not: what the image lacks is there as far as it was acknowledged.
        let durable = log.durable();
        assert!(
            read(&disk.left(), base(position), |_| LEN).unwrap().0.len() as u64 >= durable.saturating_sub(position)
        );
        for _ in 0..3 {
            append(&mut log, LEN).unwrap();
        }
        let last = log.appended();
        // Its end looks for room once more and waits for none: it would tell what is lacking.
        log.finish().unwrap();
        let (found, _) = read(&disk.memory, base(position), |_| LEN).unwrap();
        assert_eq!(found, (position + 1..=last).collect::<Vec<_>>());
        assert_eq!(disk.memory.list().unwrap().len(), 1, "the same file, under another name");
        let log = start(&disk.directory, SyncPolicy::Always, last);
        assert!(log.is_err(), "there is no room for another one");
    }
}

#[test]
fn a_segment_that_an_image_covers_before_it_is_full_serves_as_the_next_one() {
    let most = {
        let disk = Disk::new();
        let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
        disk.fill_up(errno::ENOSPC);
        fill(&mut log)
    };
    let disk = Disk::new();
    let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
    disk.fill_up(errno::ENOSPC);
    while log.appended() < most {
        append(&mut log, LEN).unwrap();
        log.commit();
        assert!(durable(&log, log.appended()));
    }
    log.cover(most);
    while log.is_covering() {
        std::thread::yield_now();
    }
    let last = most + most / 2;
    while log.appended() < last {
        append(&mut log, LEN).unwrap();
    }
    log.finish().unwrap();
    let (found, _) = read(&disk.memory, base(most), |_| LEN).unwrap();
    assert_eq!(found, (most + 1..=last).collect::<Vec<_>>());
}

#[test]
fn an_image_that_frees_files_serves_a_file_that_could_not_be_made_ahead() {
    let disk = Disk::new();
    let mut log = log_of_three_segments(&disk);
    disk.fill_up(errno::ENOSPC);
    let last = log.appended() + SEGMENT_BYTES / LEN as u64 * 2 / 3;
    while log.appended() < last {
        append(&mut log, LEN).unwrap();
        log.commit();
        assert!(durable(&log, log.appended()));
    }
    while log.next_segment() != NextSegment::Failed {
        std::thread::yield_now();
    }
    log.cover(last);
    while log.next_segment() != NextSegment::Ready {
        std::thread::yield_now();
    }
    assert_eq!(log.shortage(), None);
    log.finish().unwrap();
}

#[test]
fn a_large_record_waits_for_its_segment() {
    let disk = Disk::new();
    let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
    append(&mut log, LEN).unwrap();
    log.commit();
    assert!(durable(&log, 1));
    disk.fill_up(errno::ENOSPC);
    append(&mut log, LARGE_LEN).unwrap();
    append(&mut log, LEN).unwrap();
    log.commit();
    assert!(!durable_or_awaited(&log, 3));
    assert!(!try_again(&disk, &log));
    assert_eq!((log.durable(), log.failure()), (1, None));
    disk.make_room();
    assert!(try_again(&disk, &log));
    assert!(durable(&log, 3));
    log.finish().unwrap();
    let len = |sequence| if sequence == 2 { LARGE_LEN } else { LEN };
    assert_eq!(read(&disk.memory, base(0), len).unwrap().0, [1, 2, 3]);
}

#[test]
fn a_log_does_not_begin_on_a_full_disk() {
    let disk = Disk::new();
    disk.fill_up(errno::ENOSPC);
    let error = start(&disk.directory, SyncPolicy::Always, 0).unwrap_err();
    assert!(matches!(&error, LogError::Device(cause) if cause.is_full()), "{error}");
    // Nor one whose owner doesn't wait.
    let log = Log::begin(&disk.directory, options(SyncPolicy::Always), identity(), 1, Box::new(|| ())).unwrap();
    while log.failure().is_none() {
        std::thread::yield_now();
    }
    assert!(!log.has_begun());
    drop(log);
    assert_eq!(disk.memory.list().unwrap(), Vec::<String>::new());
}

#[test]
fn a_segment_that_can_not_be_made_for_another_reason_ends_the_log() {
    for (action, number, errno) in [
        (DeviceOperation::Allocate, 0, errno::EIO),
        (DeviceOperation::Create, 0, errno::EACCES),
        // What a directory holds is not known when it can't be synced.
        (DeviceOperation::SyncDirectory, 0, errno::ENOSPC),
        // In a segment in use: what is there now is not known.
        (DeviceOperation::DurableWrite, 60, errno::ENOSPC),
    ] {
        let disk = Disk::new();
        let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
        let fault = InjectedFault::Error(errno);
        disk.injector.set_rules(vec![(FaultTrigger::From(action, number), fault)]);
        let mut acknowledged = 0;
        while append(&mut log, LEN).is_some() {
            log.commit();
            if durable(&log, log.appended()) {
                acknowledged = log.appended();
            }
        }
        assert!(matches!(log.failure(), Some(LogError::Device(error)) if error.errno == Some(errno)), "{action}");
        drop(log);
        disk.make_room();
        let found = read(&disk.memory, base(0), |_| LEN).unwrap().0.len() as u64;
        assert!(found >= acknowledged && acknowledged > 10, "{action}");
    }
}

/// What a file system that copies on write may have no room for when it is full: the places that are written to in files in use.
#[test]
fn a_disk_without_room_for_a_mark_or_a_header_is_waited_for_too() {
    let full = InjectedFault::Error(errno::ENOSPC);
    for rules in [
        vec![
            (FaultTrigger::From(DeviceOperation::Write, 0), full),
            (FaultTrigger::From(DeviceOperation::Allocate, 0), full),
        ],
        vec![(FaultTrigger::Within(DeviceOperation::DurableWrite, 0, DATA_OFFSET), full)],
    ] {
        let disk = Disk::new();
        let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
        disk.injector.set_rules(rules.clone());
        let acknowledged = fill(&mut log);
        assert!(acknowledged > 10);
        for _ in 0..3 {
            assert!(!try_again(&disk, &log), "there is no room yet");
            assert!(!durable_or_awaited(&log, acknowledged + 1));
        }
        assert_eq!(read(&disk.left(), base(0), |_| LEN).unwrap().0.len() as u64, acknowledged);
        disk.make_room();
        log.retry_files();
        assert!(durable(&log, acknowledged + 1));
        for _ in 0..100 {
            append(&mut log, LEN).unwrap();
            log.commit();
            assert!(durable(&log, log.appended()));
        }
        // At its end it is tried once more, and no further.
        disk.injector.set_rules(rules);
        let acknowledged = fill(&mut log);
        let failure = log.finish().unwrap_err();
        assert!(matches!(&failure, LogError::NoRoom { durable, .. } if *durable == acknowledged), "{failure}");
        disk.make_room();
        assert_eq!(read(&disk.memory, base(0), |_| LEN).unwrap().0.len() as u64, acknowledged);
    }
}

#[test]
fn a_spare_that_could_not_be_used_is_used_later() {
    let disk = Disk::new();
    let mut log = log_of_three_segments(&disk);
    log.cover(log.appended());
    while log.stats().spare_bytes < 2 * SEGMENT_BYTES {
        std::thread::yield_now();
    }
    // A file system may need space for a name, too.
    let full = InjectedFault::Error(errno::ENOSPC);
    let both = [DeviceOperation::Rename, DeviceOperation::Allocate].map(|action| (FaultTrigger::From(action, 0), full));
    disk.injector.set_rules(both.to_vec());
    fill(&mut log);
    for _ in 0..4 {
        assert!(!try_again(&disk, &log));
    }
    disk.injector.set_rules(both[1..].to_vec());
    assert!(try_again(&disk, &log), "without space for another file");
    assert!(durable(&log, log.appended()));
    log.finish().unwrap();
}

/// What happens to a log and its disk.
#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    Commit,
    Cover,
    Fill,
    MakeRoom,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0usize..3000).prop_map(Step::Append),
        1 => (20_000usize..70_000).prop_map(Step::Append),
        6 => Just(Step::Commit),
        1 => Just(Step::Cover),
        2 => Just(Step::Fill),
        2 => Just(Step::MakeRoom),
        1 => Just(Step::Restart),
    ]
}

/// The length of each record's value from record 1 on, the last record that was acknowledged, and the last in an image.
#[derive(Default)]
struct Model {
    lens: Vec<usize>,
    acknowledged: u64,
    position: u64,
}

impl Model {
    /// Reads back at least what was acknowledged, and returns what else is there.
    fn check(&self, directory: &dyn Directory) -> u64 {
        let (found, _) = read(directory, base(self.position), |sequence| self.lens[sequence as usize - 1]).unwrap();
        let end = found.last().copied().unwrap_or(self.position);
        assert_eq!(found, (self.position + 1..=end).collect::<Vec<_>>());
        assert!(end >= self.acknowledged && end <= self.lens.len() as u64, "{end}, {} acknowledged", self.acknowledged);
        end
    }

    /// Ends the log, on a full disk perhaps, and begins again behind what is read back.
    fn restart(&mut self, disk: &Disk, log: Log) -> Log {
        match log.finish() {
            Ok(()) => self.acknowledged = self.lens.len() as u64,
            Err(LogError::NoRoom { durable, .. }) => self.acknowledged = self.acknowledged.max(durable),
            Err(error) => panic!("{error}"),
        }
        let end = self.check(&*disk.directory);
        self.lens.truncate(end as usize);
        // A log doesn't begin without room.
        disk.make_room();
        start(&disk.directory, SyncPolicy::Always, end).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_however_often_the_disk_is_full(steps in prop::collection::vec(step(), 1..120)) {
        let (disk, mut model) = (Disk::new(), Model::default());
        let mut log = start(&disk.directory, SyncPolicy::Always, 0).unwrap();
        for step in steps {
            match step {
                Step::Append(len) => {
                    prop_assert!(append(&mut log, len).is_some());
                    model.lens.push(len);
                }
                Step::Commit => {
                    log.commit();
                    durable_or_awaited(&log, log.appended());
                    model.acknowledged = model.acknowledged.max(log.durable());
                }
                Step::Cover => {
                    log.commit();
                    durable_or_awaited(&log, log.appended());
                    // The image is cut from the data, so it has what has no room in the log, too.
                    (model.acknowledged, model.position) = (log.appended(), log.appended());
                    log.cover(log.appended());
                }
                Step::Fill => disk.fill_up(errno::ENOSPC),
                Step::MakeRoom => {
                    disk.make_room();
                    log.retry_files();
                }
                Step::Restart => log = model.restart(&disk, log),
            }
            prop_assert_eq!(log.failure(), None);
        }
        model.check(&disk.left());
        disk.make_room();
        while log.durable() < log.appended() {
            log.commit();
            log.retry_files();
            std::thread::yield_now();
        }
        log.finish().unwrap();
        prop_assert_eq!(model.check(&disk.memory), model.lens.len() as u64);
    }
}
