//! The thread in the parent: it sleeps until there is a child, and goes through the child's life with it.
//!
//! Relies on being the only one of its process. It is a bare thread ([`quire_sys::bare_thread`]): the C library does not
//! know it, and it must neither allocate nor use anything thread-local. It has all signals blocked and a table of file
//! descriptors of its own; should it panic, it ends alone and the program goes on as without us.

use std::fmt;
use std::time::{Duration, Instant};

use quire_sys::mem::HUGE_PAGE_SIZE;
use quire_sys::{bare_thread, guest, thread};

use crate::account::Account;
use crate::epoch::{Ended, Epoch};
use crate::state::{self, Fork, Thread};
use crate::tools::Tools;
use crate::{copy, log, mend};

/// How often an idle thread looks whether the program acts as somebody else.
const IDLE: Duration = Duration::from_secs(1);
/// A child that is waited for after it announced its end.
const LONGEST_END: Duration = Duration::from_secs(2);
/// The life of the thread.
pub extern "C" fn run() {
    std::panic::set_hook(Box::new(give_up));
    state::set_thread(match live() {
        Left::ForGood => Thread::GivenUp,
        Left::ForAnother => Thread::None,
    });
}

/// A panic of ours ends the thread, and nothing else: it must not unwind, and the program goes on as without us.
fn give_up(info: &std::panic::PanicHookInfo<'_>) {
    let at = info.location().map_or(0, std::panic::Location::line);
    let file = info.location().map_or("", std::panic::Location::file);
    log::line(format_args!("error at {file}:{at}"));
    if bare_thread::is_current() {
        log::line(format_args!("gives up; the program goes on without it"));
        state::set_thread(Thread::GivenUp);
        bare_thread::end();
    }
}

/// Why the thread ends before the program.
enum Left {
    /// It can't work here.
    ForGood,
    /// The program acts as somebody else now, so that a thread made anew at the next fork does, too.
    ForAnother,
}

fn live() -> Left {
    guest::name_thread(c"quire-preload");
    // Without descriptors of our own we could disturb the program, and could not even say so.
    if bare_thread::take_own_descriptors().is_err() {
        return Left::ForGood;
    }
    guest::sharpen_timer();
    let (program, ids) = (Program::this(), guest::program_ids());
    let Some(board) = state::board() else { return Left::ForGood };
    let mut tools = match Tools::new(state::settings(), board) {
        Ok(tools) => tools,
        Err((what, why)) => {
            log::line(format_args!("not active in {program}: {what} (error {})", why.raw_os_error().unwrap_or(0)));
            return Left::ForGood;
        }
    };
    let forbidden = copy::huge_pages_forbidden(tools.settings.huge && tools.settings.region_bytes == HUGE_PAGE_SIZE);
    tools.huge = forbidden.is_none();
    greet(&tools, &program, forbidden);
    let mut seen = None;
    let mut expected_life = None;
    let mut epochs = 0;
    loop {
        let events = tools.board.events();
        // The C library changes who its own threads act as, but does not know this one.
        if guest::program_ids() != ids {
            return Left::ForAnother;
        }
        match state::latest() {
            Some(fork) if seen != Some(fork) => {
                seen = Some(fork);
                if let Some(life) = go_through(&mut tools, fork, expected_life, &mut epochs) {
                    expected_life = Some(life);
                }
            }
            _ => tools.board.wait(events, Some(IDLE)),
        }
    }
}

fn greet(tools: &Tools, program: &Program, forbidden: Option<&str>) {
    let settings = &tools.settings;
    if let Some(name) = settings.misread {
        log::line(format_args!("{name} has a value that is not understood; its default holds"));
    }
    log::line(format_args!(
        "active in {}: while a forked child lives, regions of {} KiB that were {} % written during earlier ones are \
         copied ahead of the program, {}{}",
        program,
        settings.region_bytes >> 10,
        settings.threshold_permille / 10,
        if forbidden.is_none() { "into huge pages" } else { "in small pages: " },
        forbidden.unwrap_or_default(),
    ));
}

/// Goes through the life of `fork`'s child, tells what was learned and mends; returns how long the child lived.
fn go_through(tools: &mut Tools, fork: Fork, expected_life: Option<Duration>, epochs: &mut u64) -> Option<Duration> {
    let processor_ns = thread::cpu_time_ns();
    let mut epoch = Epoch::open(tools, fork)?;
    let ended = epoch.run(expected_life);
    let (life, stopped) = (epoch.elapsed(), epoch.stopped());
    wait_until_gone(&epoch, fork);
    drop(epoch);
    if ended == Ended::Ignored {
        log::at(2, format_args!("child {} has ended or become another program; nothing is done", fork.pid));
        return None;
    }
    *epochs += 1;
    if tools.huge {
        mend::mend(tools, fork);
    }
    let processor_ms = (thread::cpu_time_ns() - processor_ns) / 1_000_000;
    match ended {
        Ended::Learned { account, announced } => {
            tools.adapt(&account);
            tell(tools, &account, &Told { epochs: *epochs, fork, life, announced, stopped, processor_ms });
        }
        _ => log::at(1, format_args!("child {} ended without notice before its first look; nothing learned", fork.pid)),
    }
    Some(life)
}

/// A child that is ending still shares memory for as long as its address space is taken down.
fn wait_until_gone(epoch: &Epoch<'_>, fork: Fork) {
    let until = Instant::now() + LONGEST_END;
    while !epoch.watched().has_ended() && state::latest() == Some(fork) && Instant::now() < until {
        bare_thread::sleep(Duration::from_millis(2));
    }
}

struct Told {
    epochs: u64,
    fork: Fork,
    life: Duration,
    announced: bool,
    stopped: Option<&'static str>,
    processor_ms: u64,
}

/// The line of an epoch. `quire bench forkers` reads it.
fn tell(tools: &Tools, account: &Account, told: &Told) {
    log::at(
        1,
        format_args!(
            "epoch {}: child {} lived {:.3} s; pages: {} present, {} copied by the program, {} precopied, {} needed, \
             {} unneeded (estimated); {} of {} regions, threshold {} %; {} ms of processor time; {}{}{}",
            told.epochs,
            told.fork.pid,
            told.life.as_secs_f64(),
            account.present,
            account.own,
            account.precopied,
            account.needed,
            account.unneeded(),
            account.regions_precopied,
            account.regions,
            tools.threshold_permille / 10,
            told.processor_ms,
            if told.announced { "seen at its end" } else { "seen some time before its end" },
            if told.stopped.is_some() { "; stopped: " } else { "" },
            told.stopped.unwrap_or_default(),
        ),
    );
}

/// What the program is called, for lines.
struct Program {
    comm: [u8; 32],
    pid: i32,
}

impl Program {
    fn this() -> Self {
        let mut comm = [0; 32];
        // A program without a name is still known by its number.
        let _ = guest::read_file(c"/proc/self/comm", &mut comm);
        Self { comm, pid: guest::process_id() }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.comm.iter().position(|&byte| byte < b' ').unwrap_or(0);
        write!(to, "{} (pid {})", self.comm[..end].escape_ascii(), self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_named() {
        assert!(Program::this().to_string().ends_with(&format!(" (pid {})", std::process::id())));
    }
}
