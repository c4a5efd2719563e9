//! Forks inside every mechanism at every stage: the child reads range and view, tries what it must not do and drops everything; the
//! parent goes on as if nothing had been.
//!
//! Relies on children that report by their exit status alone: another thread may have held any lock of the harness.

#[path = "common/mod.rs"]
#[allow(dead_code, reason = "the suite uses other parts of it")]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::cells::{Cells, Cut};
use common::memory::{Kind, Memory};
use quire_rng::SplitMix64;
use quire_snapshot::{Mechanism, MechanismError, OriginOptions, ViewError};
use quire_sys::child::{WaitStatus, fork_by_library};

/// What goes on while the process is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing but the thread of the mechanism.
    Quiet,
    /// Another thread cuts, drops and settles: epochs are closed, regions are merged.
    Cutting,
    /// Another thread writes, also at the moment of the fork.
    Writing,
}

const FORKS: u64 = 12;
/// A child that waits for ever is ended then.
const PATIENCE: Duration = Duration::from_secs(120);
const CHILD_WRITES: u8 = 0xC7;

fn step(cells: &Cells, first: usize, rng: &mut SplitMix64) {
    for _ in 0..200 {
        let owned = (cells.count() - first).div_ceil(2);
        cells.bump(first + 2 * (rng.index(owned)), false);
    }
}

/// What a child does. It never returns from a panic into the copy of its parent's stack.
fn child(cells: &Cells, cut: &Cut, stage: Stage) -> i32 {
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mechanism = cells.origin().mechanism();
        (0..cells.count()).step_by(7).for_each(|cell| cells.glance(cell));
        if mechanism == Mechanism::Fork {
            assert!(matches!(cut.view.read(0, &mut [0]), Err(ViewError::Gone(_))));
        } else if stage != Stage::Writing {
            // With writers at work memory is copied page by page while they go on: no moment is promised.
            cut.check(0, 5);
        }
        if matches!(mechanism, Mechanism::Scoot | Mechanism::Uffd | Mechanism::Barrier | Mechanism::Fork) {
            assert!(matches!(cells.origin().cut(), Err(MechanismError::Unsupported { .. })));
        }
        cells.origin().prepare_write(0..cells.origin().len());
        cells.origin().settle();
        if mechanism != Mechanism::Scoot {
            for offset in (0..cells.origin().len()).step_by(1000) {
                // SAFETY: inside the range, which in this process only this thread uses.
                unsafe { cells.origin().base().add(offset).write_volatile(CHILD_WRITES) };
            }
        }
        // SAFETY: the process ends without coming back to the owners.
        drop(unsafe { (std::ptr::read(cut), std::ptr::read(cells)) });
    }));
    i32::from(judged.is_err())
}

/// Ends the other thread, also when a check has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn forks_at(mechanism: Mechanism, stage: Stage) {
    let memory = Memory::new(Kind::Huge, 3 * 512 + 7);
    let Some(origin) = common::attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    let cells = Cells::new(origin);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if stage == Stage::Cutting {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(cells.cut());
                    cells.origin().settle();
                }
            });
        }
        if stage == Stage::Writing {
            scope.spawn(|| cells.write_until(1, 2, 9, &|| is_over.load(Ordering::Relaxed)));
        }
        let _over = Over(&is_over);
        let mut rng = SplitMix64::new(1);
        for number in 0..FORKS {
            step(&cells, 0, &mut rng);
            let old = cells.cut();
            step(&cells, 0, &mut rng);
            let cut = cells.cut();
            step(&cells, 0, &mut rng);
            // SAFETY: the child waits for no lock that this program's threads hold; those of the mechanisms are what is tested.
            let forked = unsafe { fork_by_library(&mut || child(&cells, &cut, stage)) };
            step(&cells, 0, &mut rng);
            let ending = forked.unwrap().wait_for(PATIENCE);
            assert_eq!(ending, Some(WaitStatus::Exited(0)), "{mechanism}, {stage:?}, fork {number}");
            cut.check(0, 1);
            old.check(0, 1);
            step(&cells, 0, &mut rng);
            if number % 2 == 0 {
                drop((old, cut));
                cells.origin().settle();
            } else {
                drop((cut, old));
            }
        }
    });
    let _still = cells.still();
    cells.check();
}

macro_rules! forks {
    ($($name:ident: $mechanism:ident),* $(,)?) => {
        $(
            mod $name {
                use super::{Mechanism, Stage, forks_at};

                #[test]
                fn a_child_leaves_its_parent_alone() {
                    forks_at(Mechanism::$mechanism, Stage::Quiet);
                }

                #[test]
                fn a_child_leaves_its_parent_alone_while_epochs_open_and_close() {
                    forks_at(Mechanism::$mechanism, Stage::Cutting);
                }

                #[test]
                fn a_child_leaves_its_parent_alone_while_threads_write() {
                    forks_at(Mechanism::$mechanism, Stage::Writing);
                }
            }
        )*
    };
}

forks!(scoot: Scoot, uffd: Uffd, barrier: Barrier, mmapcopy: MmapCopy, fork: Fork, memcpy: Memcpy);
