//! Every system call that the mechanisms make fails, from before the attachment, the first cut, or the end of a view on: a mechanism
//! gives an error or does it another way, waits for ever for nothing, and loses no byte. A writer whose page can't be opened any more
//! gets a signal. And each mechanism does make the calls of which that is said: a process that ends at such a call, does end.
//!
//! Relies on a process for each failure (this test, started again), of which seccomp filters make one call fail.

#[path = "common/mod.rs"]
#[allow(dead_code, reason = "the suite uses other parts of it")]
mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::memory::{Kind, Memory, read, write};
use quire_snapshot::{Mechanism, Origin, OriginOptions, PAGE_SIZE, Precopy, View, attach, probe};
use quire_sys::deny::{SyscallFilter, calls, deny, end_at};

const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const EMFILE: i32 = 24;
/// What most calls fail with.
const NO_MEMORY: &[i32] = &[ENOMEM];
/// A process that waits for ever is ended then.
const PATIENCE: Duration = Duration::from_secs(120);
const STAGES: [&str; 3] = ["attach", "cut", "drop"];
/// Exit status of a process that can't make calls fail.
const NO_FILTERS: i32 = 77;
/// Exit status of a process whose child has ended at the call.
const MET_BY_CHILD: i32 = 78;
/// In the place of an error: the process ends at the call.
const END: i32 = 0;
const SIGBUS: i32 = 7;
const SIGSYS: i32 = 31;

/// A call by name and number, the argument by which it is told from others of that number, and the errors that it fails with.
type Call = (&'static str, i64, Option<(u32, u32)>, &'static [i32]);

/// All that the mechanisms make, as `strace` shows them, and that can fail. Not among them are: `UFFDIO_WAKE`, which the kernel refuses for an
/// unaligned range only; `futex`, signal masks, stacks for signals and names of threads, whose errors the standard library or the mechanism has
/// no use for; and what fills pages by userfaultfd, which only heaps on files do.
const CALLS: [Call; 41] = [
    ("memfd_create", calls::SYS_memfd_create, None, &[ENOMEM, EMFILE]),
    ("ftruncate", calls::SYS_ftruncate, None, NO_MEMORY),
    ("mmap shared fixed", calls::SYS_mmap, Some((3, 0x4011)), &[ENOMEM, EAGAIN]),
    ("mmap anonymous", calls::SYS_mmap, Some((3, 0x4022)), &[ENOMEM, EAGAIN]),
    ("mmap anonymous fixed", calls::SYS_mmap, Some((3, 0x4032)), NO_MEMORY),
    ("mmap private fixed", calls::SYS_mmap, Some((3, 0x4012)), NO_MEMORY),
    ("munmap", calls::SYS_munmap, None, NO_MEMORY),
    ("mprotect writable", calls::SYS_mprotect, Some((2, 3)), NO_MEMORY),
    ("mremap", calls::SYS_mremap, None, &[ENOMEM, EAGAIN]),
    ("madvise collapse", calls::SYS_madvise, Some((2, 25)), &[ENOMEM, EINVAL]),
    ("madvise hugepage", calls::SYS_madvise, Some((2, 14)), &[ENOMEM, EINVAL]),
    ("madvise populate", calls::SYS_madvise, Some((2, 23)), NO_MEMORY),
    ("madvise dontneed", calls::SYS_madvise, Some((2, 4)), NO_MEMORY),
    ("madvise wipeonfork", calls::SYS_madvise, Some((2, 18)), &[ENOMEM, EINVAL]),
    ("userfaultfd", calls::SYS_userfaultfd, None, &[ENOMEM, EPERM]),
    ("uffdio api", calls::SYS_ioctl, Some((1, 0xC018_AA3F)), &[ENOMEM, EINVAL]),
    ("uffdio register", calls::SYS_ioctl, Some((1, 0xC020_AA00)), NO_MEMORY),
    ("uffdio unregister", calls::SYS_ioctl, Some((1, 0x8010_AA01)), NO_MEMORY),
    ("uffdio writeprotect", calls::SYS_ioctl, Some((1, 0xC018_AA06)), NO_MEMORY),
    ("open", calls::SYS_open, None, &[ENOMEM, EMFILE]),
    ("openat", calls::SYS_openat, None, &[ENOMEM, EPERM]),
    ("getdents64", calls::SYS_getdents64, None, NO_MEMORY),
    ("ppoll", calls::SYS_ppoll, None, NO_MEMORY),
    ("close_range", calls::SYS_close_range, None, NO_MEMORY),
    ("read", calls::SYS_read, None, NO_MEMORY),
    ("pread", calls::SYS_pread64, None, NO_MEMORY),
    ("pwrite", calls::SYS_pwrite64, None, NO_MEMORY),
    ("fallocate", calls::SYS_fallocate, None, NO_MEMORY),
    ("lseek", calls::SYS_lseek, None, NO_MEMORY),
    ("eventfd2", calls::SYS_eventfd2, None, NO_MEMORY),
    ("rt_sigaction", calls::SYS_rt_sigaction, None, NO_MEMORY),
    ("clone", calls::SYS_clone, None, &[ENOMEM, EAGAIN]),
    ("clone3", calls::SYS_clone3, None, &[ENOMEM, EAGAIN]),
    ("pidfd_open", calls::SYS_pidfd_open, None, NO_MEMORY),
    ("pidfd_send_signal", calls::SYS_pidfd_send_signal, None, NO_MEMORY),
    ("waitid", calls::SYS_waitid, None, NO_MEMORY),
    ("sendto", calls::SYS_sendto, None, NO_MEMORY),
    ("sendmsg", calls::SYS_sendmsg, None, NO_MEMORY),
    ("recvfrom", calls::SYS_recvfrom, None, NO_MEMORY),
    ("recvmsg", calls::SYS_recvmsg, None, NO_MEMORY),
    ("socketpair", calls::SYS_socketpair, None, &[ENOMEM, EMFILE]),
];

/// How a process may end other than well: a writer whose page stays protected would fault for ever, so it gets the signal.
fn expected_signal(mechanism: Mechanism, call: &str, stage: &str) -> Option<i32> {
    let is_never_opened = call == "uffdio writeprotect" && stage == "drop";
    (mechanism == Mechanism::Uffd && is_never_opened).then_some(SIGBUS)
}

/// The calls that a mechanism makes in each run. It makes others of [`CALLS`] in doubt only, or the C library makes them.
fn certain_calls(mechanism: Mechanism) -> impl Iterator<Item = &'static str> {
    let names = match mechanism {
        Mechanism::Scoot => {
            "madvise wipeonfork, memfd_create, ftruncate, open, read, userfaultfd, uffdio api, uffdio \
             register, uffdio unregister, mmap anonymous, mmap anonymous fixed, mmap shared fixed, mmap \
             private fixed, mremap, madvise collapse, madvise dontneed, munmap, pread, fallocate, lseek"
        }
        Mechanism::Uffd => {
            "madvise wipeonfork, rt_sigaction, openat, getdents64, userfaultfd, uffdio api, uffdio register, \
             uffdio writeprotect, uffdio unregister, eventfd2, ppoll, open, pread, mmap anonymous, mprotect \
             writable, madvise collapse, madvise hugepage, madvise populate, madvise dontneed, munmap"
        }
        Mechanism::Barrier => {
            "madvise wipeonfork, mmap anonymous, mprotect writable, madvise hugepage, madvise populate, \
             madvise dontneed, munmap"
        }
        Mechanism::MmapCopy => {
            "memfd_create, ftruncate, mmap anonymous, mmap private fixed, open, read, pread, pwrite, munmap"
        }
        Mechanism::Fork => {
            "madvise wipeonfork, socketpair, clone, close_range, sendto, sendmsg, recvfrom, recvmsg, \
             pidfd_open, pidfd_send_signal, waitid"
        }
        Mechanism::Memcpy => "mmap anonymous, mprotect writable, madvise hugepage, munmap",
    };
    names.split(", ")
}

/// The last stage from which on mechanisms that make a call for certain still make it. A thread that waits in `ppoll` when later stages begin
/// may end without another one.
fn last_stage(call: &str) -> &'static str {
    if ["rt_sigaction", "openat", "getdents64", "ppoll"].contains(&call) { "attach" } else { "drop" }
}

/// Calls that no mechanism makes for certain, and why they are refused all the same.
const UNCERTAIN: [(&str, &str); 1] =
    [("clone3", "the C library starts threads by it, or by clone where it is older or the kernel is")];

#[test]
fn every_refused_call_is_made_by_a_mechanism_or_listed_with_a_reason() {
    let is_certain = |call| Mechanism::ALL.iter().any(|&known| certain_calls(known).any(|made| made == call));
    for (call, ..) in CALLS {
        let is_listed = UNCERTAIN.iter().any(|uncertain| uncertain.0 == call);
        assert!(is_certain(call) != is_listed, "{call} is certain: {}, listed: {is_listed}", is_certain(call));
    }
}

const PAGES: usize = 2 * 512 + 5;

/// Writes version `version` of every third page, from a page on that differs.
fn write_version(origin: &dyn Origin, expected: &mut [u8], version: u8) {
    for page in (usize::from(version) % 3..PAGES).step_by(3) {
        origin.prepare_write(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        write(origin.base(), page * PAGE_SIZE + 9, &[version]);
        expected[page] = version;
    }
}

fn check(base: *const u8, expected: &[u8], when: &str) {
    let lost = (0..PAGES).find(|&page| read(base, page * PAGE_SIZE + 9, 1)[0] != expected[page]);
    assert_eq!(lost, None, "{when}: the first page that is not as it was written");
}

/// One of [`CALLS`] that fails, or ends the process, from a stage on.
struct Refusal<'a> {
    /// Mechanism, call, stage and error as one word, in which the process is told.
    what: &'a str,
    call: i64,
    argument: Option<(u32, u32)>,
    stage: &'a str,
    errno: i32,
}

impl Refusal<'_> {
    /// Called at the beginning of each stage.
    fn begin(&self, stage: &str) {
        if self.stage != stage {
            return;
        }
        let &Refusal { call, argument, errno, .. } = self;
        let denied = if errno == END { end_at(call, argument) } else { deny(SyscallFilter { call, argument, errno }) };
        if denied.is_err() {
            std::process::exit(NO_FILTERS);
        }
    }

    /// What a mechanism says. Where the process is to end at the call it is a child that has ended.
    fn tell(&self, error: impl std::fmt::Display) {
        println!("{}: {error}", self.what);
        if self.errno == END {
            quire_sys::child::exit(MET_BY_CHILD);
        }
    }

    /// The calls of a thread that ends, and those that free memory of the test, are not the mechanism's.
    fn end(&self) {
        if self.errno == END {
            quire_sys::child::exit(0);
        }
    }
}

/// What the started process does; in the test that starts it there is nothing to do.
#[test]
fn one_refusal() {
    let Ok(what) = std::env::var("QUIRE_REFUSAL") else { return };
    let [mechanism, call, stage, errno] = what.split('/').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let &(_, number, argument, _) = CALLS.iter().find(|known| known.0 == call).unwrap();
    let refusal = Refusal { what: &what, call: number, argument, stage, errno: errno.parse().unwrap() };
    run(mechanism.parse().unwrap(), &refusal);
}

/// Two ways to use a mechanism, which make different calls: views one after the other that keep nothing and copy ahead, and views of which
/// the first outlives the others and has views of its own, while a thread serves faults.
fn run(mechanism: Mechanism, refusal: &Refusal<'_>) {
    let memory = Memory::new(Kind::Huge, PAGES);
    let mut expected = vec![1; PAGES];
    (0..PAGES).for_each(|page| write(memory.span.base(), page * PAGE_SIZE + 9, &[1]));
    refusal.begin("attach");
    let ahead = OriginOptions { precopy: Precopy::Threshold(20), keep_bytes: 0, ..OriginOptions::default() };
    let served = OriginOptions { serve_faults: true, keep_bytes: 0, ..OriginOptions::default() };
    for (options, overlap) in [(ahead, false), (served, true)] {
        match attach(mechanism, memory.span(), &options) {
            Ok(origin) => write_and_cut(origin, &mut expected, overlap, refusal),
            Err(error) => refusal.tell(error),
        }
        check(memory.span.base(), &expected, "at the end");
    }
    refusal.end();
}

fn write_and_cut(origin: Box<dyn Origin>, expected: &mut [u8], overlap: bool, refusal: &Refusal<'_>) {
    refusal.begin("cut");
    let mut kept = Vec::new();
    for round in 2..6 {
        write_version(&*origin, expected, round);
        let then = expected.to_vec();
        let view = origin.cut().inspect_err(|error| refusal.tell(error)).ok();
        write_version(&*origin, expected, round + 100);
        if let Some(view) = view {
            check_view(&*view, &then, round, refusal);
            if overlap {
                let second = view.cut().inspect_err(|error| refusal.tell(error)).ok();
                if let Some(second) = &second {
                    check_view(&**second, &then, round, refusal);
                }
                if round == 2 {
                    kept.extend([Some(view), second].into_iter().flatten().map(|view| (view, then.clone())));
                }
            }
        }
        check(origin.base(), expected, "while a view lives");
        refusal.begin("drop");
        origin.settle();
        check(origin.base(), expected, "after a view");
    }
    kept.iter().for_each(|(view, then)| check_view(&**view, then, 2, refusal));
    drop(kept);
    origin.settle();
}

/// Up to the first error, since a view may say that it has lost its content.
fn check_view(view: &dyn View, then: &[u8], round: u8, refusal: &Refusal<'_>) {
    let mut byte = [0];
    for (page, &version) in then.iter().enumerate() {
        match view.read(page * PAGE_SIZE + 9, &mut byte) {
            Ok(()) => assert_eq!(byte[0], version, "{}: page {page}, round {round}", refusal.what),
            Err(error) => return refusal.tell(error),
        }
    }
}

/// How the process for `what` ended; `None` if it had to be ended.
fn ended(what: &str) -> Option<ExitStatus> {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_refusal", "--nocapture"])
        .env("QUIRE_REFUSAL", what)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = process.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    None
}

/// Of the calls that a mechanism certainly makes, those that no process ended at.
fn calls_not_met(mechanism: Mechanism) -> Vec<String> {
    let whats = certain_calls(mechanism).map(|call| format!("{mechanism}/{call}/{}/{END}", last_stage(call)));
    let is_met = |what: &String| {
        let end = ended(what).map(|status| (status.code(), status.signal()));
        end == Some((None, Some(SIGSYS))) || end == Some((Some(MET_BY_CHILD), None))
    };
    whats.filter(|what| !is_met(what)).collect()
}

fn refusals_of(mechanism: Mechanism) {
    let (mut failed, mut ran) = (Vec::new(), 0);
    let errors = |&(call, _, _, errors): &Call| errors.iter().map(move |errno| (call, errno));
    for stage in STAGES {
        for (call, errno) in CALLS.iter().flat_map(errors) {
            let what = format!("{mechanism}/{call}/{stage}/{errno}");
            let end = ended(&what).map(|status| (status.code(), status.signal()));
            if end == Some((Some(NO_FILTERS), None)) {
                return quire_sys::testing::skipped("seccomp filters can't be had");
            }
            let signal = expected_signal(mechanism, call, stage);
            if end == Some((signal.is_none().then_some(0), signal)) {
                ran += 1;
            } else {
                failed.push((what, end));
            }
        }
    }
    assert!(failed.is_empty(), "{ran} ended well; not so (status, signal; none: it waits for ever): {failed:#?}");
    match probe(mechanism) {
        Ok(()) => assert_eq!(calls_not_met(mechanism), [""; 0]),
        Err(refusal) => quire_sys::testing::skipped(format_args!("{mechanism}: {refusal}")),
    }
}

macro_rules! refusals {
    ($($name:ident: $mechanism:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                refusals_of(Mechanism::$mechanism);
            }
        )*
    };
}

refusals!(
    scoot_loses_nothing_when_the_system_refuses: Scoot,
    uffd_loses_nothing_when_the_system_refuses: Uffd,
    barrier_loses_nothing_when_the_system_refuses: Barrier,
    mmapcopy_loses_nothing_when_the_system_refuses: MmapCopy,
    fork_loses_nothing_when_the_system_refuses: Fork,
    memcpy_loses_nothing_when_the_system_refuses: Memcpy,
);
