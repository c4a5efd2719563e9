//! Every system call that the mechanisms make fails, from before the attachment, the first cut, or the end of a view on: a mechanism
//! gives an error or does it another way, waits for ever for nothing, and loses no byte.
//!
//! Relies on a process for each failure (this test, started again), of which seccomp filters make one call fail.

#[path = "common/mod.rs"]
#[allow(dead_code, reason = "the suite uses other parts of it")]
mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::memory::{Kind, Memory, read, write};
use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE, Precopy, attach};
use quire_sys::deny::{SyscallFilter, calls, deny};

/// What a failing call fails with: no memory.
const ENOMEM: i32 = 12;
/// A process that waits for ever is ended then.
const PATIENCE: Duration = Duration::from_secs(120);
const STAGES: [&str; 3] = ["attach", "cut", "drop"];
/// Exit status of a process that can't make calls fail.
const NO_FILTERS: i32 = 77;

/// A call by name and number, and the argument by which it is told from others of that number.
type Call = (&'static str, i64, Option<(u32, u32)>);

const CALLS: [Call; 21] = [
    ("memfd_create", calls::SYS_memfd_create, None),
    ("ftruncate", calls::SYS_ftruncate, None),
    ("mmap shared fixed", calls::SYS_mmap, Some((3, 0x4011))),
    ("mmap private fixed", calls::SYS_mmap, Some((3, 0x4012))),
    ("mremap", calls::SYS_mremap, None),
    ("madvise collapse", calls::SYS_madvise, Some((2, 25))),
    ("madvise populate", calls::SYS_madvise, Some((2, 23))),
    ("madvise dontneed", calls::SYS_madvise, Some((2, 4))),
    ("madvise wipeonfork", calls::SYS_madvise, Some((2, 18))),
    ("userfaultfd", calls::SYS_userfaultfd, None),
    ("uffdio api", calls::SYS_ioctl, Some((1, 0xC018_AA3F))),
    ("uffdio register", calls::SYS_ioctl, Some((1, 0xC020_AA00))),
    ("uffdio unregister", calls::SYS_ioctl, Some((1, 0x8010_AA01))),
    ("pread", calls::SYS_pread64, None),
    ("pwrite", calls::SYS_pwrite64, None),
    ("fallocate", calls::SYS_fallocate, None),
    ("lseek", calls::SYS_lseek, None),
    ("clone", calls::SYS_clone, None),
    ("clone3", calls::SYS_clone3, None),
    ("sendto", calls::SYS_sendto, None),
    ("socketpair", calls::SYS_socketpair, None),
];

const PAGES: usize = 2 * 512 + 5;

/// Writes version `version` of every third page, from a page on that differs.
fn write_version(origin: &dyn quire_snapshot::Origin, expected: &mut [u8], version: u8) {
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

/// What the started process does; in the test that starts it there is nothing to do.
#[test]
fn one_refusal() {
    let Ok(what) = std::env::var("QUIRE_REFUSAL") else { return };
    let [mechanism, call, stage] = what.split('/').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let mechanism: Mechanism = mechanism.parse().unwrap();
    let &(_, number, argument) = CALLS.iter().find(|known| known.0 == call).unwrap();
    let deny_at = |now: &str| {
        if now == stage && deny(SyscallFilter { call: number, argument, errno: ENOMEM }).is_err() {
            std::process::exit(NO_FILTERS);
        }
    };
    let memory = Memory::new(Kind::Huge, PAGES);
    let mut expected = vec![1; PAGES];
    (0..PAGES).for_each(|page| write(memory.span.base(), page * PAGE_SIZE + 9, &[1]));
    deny_at("attach");
    let options = OriginOptions { precopy: Precopy::Threshold(20), keep_bytes: 0, ..OriginOptions::default() };
    let origin = match attach(mechanism, memory.span(), &options) {
        Ok(origin) => origin,
        Err(refusal) => {
            println!("{what}: {refusal}");
            return check(memory.span.base(), &expected, "after the refusal");
        }
    };
    deny_at("cut");
    for round in 2..6 {
        write_version(&*origin, &mut expected, round);
        let view = origin.cut().inspect_err(|refusal| println!("{what}: {refusal}"));
        let then = expected.clone();
        write_version(&*origin, &mut expected, round + 100);
        if let Ok(view) = &view {
            let mut byte = [0];
            for (page, &version) in then.iter().enumerate() {
                match view.read(page * PAGE_SIZE + 9, &mut byte) {
                    Ok(()) => assert_eq!(byte[0], version, "{what}: page {page} of the view of round {round}"),
                    Err(error) => {
                        println!("{what}: {error}");
                        break;
                    }
                }
            }
        }
        check(origin.base(), &expected, "while a view lives");
        deny_at("drop");
        drop(view);
        origin.settle();
        check(origin.base(), &expected, "after a view");
    }
    drop(origin);
    check(memory.span.base(), &expected, "at the end");
}

fn refusals_of(mechanism: Mechanism) {
    let (mut failed, mut ran) = (Vec::new(), 0);
    for stage in STAGES {
        for (call, _, _) in CALLS {
            let what = format!("{mechanism}/{call}/{stage}");
            let mut process = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "one_refusal", "--nocapture"])
                .env("QUIRE_REFUSAL", &what)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let start = Instant::now();
            let status = loop {
                match process.try_wait().unwrap() {
                    Some(status) => break Some(status),
                    None if start.elapsed() > PATIENCE => break None,
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            };
            if status.is_none() {
                process.kill().unwrap();
                process.wait().unwrap();
            }
            match status.map(|status| (status.success(), status.code())) {
                Some((true, _)) => ran += 1,
                Some((false, Some(NO_FILTERS))) => {
                    return quire_sys::testing::skipped("seccomp filters can't be had");
                }
                other => failed.push((what, other)),
            }
        }
    }
    assert!(failed.is_empty(), "{ran} went well; not so (success, status; none: it waits for ever): {failed:#?}");
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
