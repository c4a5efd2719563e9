//! The event loop: waits for sockets, serves those that are ready, looks after time between.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::listen::Listener;
use super::signals::Signals;
use super::worker::Worker;
use crate::blocked::WakeEvent;
use crate::clients::Slot;
use crate::defrag;
use crate::log_control;
use crate::metrics::gather;
use crate::persistence;
use crate::state::{ServerState, Shutdown};
use crate::{eviction, invalidation};

/// Read at once from a socket.
const SCRATCH_BYTES: usize = 256 * 1024;
/// How often it is looked whether the log's device has caught up, should it end with nothing to tell.
const LOOK_BEHIND: Duration = Duration::from_millis(100);
/// A reply waits for those of other clients for so long, and for the end of the command that runs then.
const LONGEST_DEFERRAL: Duration = Duration::from_micros(200);
/// Events taken at once.
const EVENTS: usize = 1024;
const WAKE: Token = Token(usize::MAX - 1);
const SIGNALS: Token = Token(usize::MAX - 2);
const FIRST_LISTENER: usize = usize::MAX / 2;

/// The token of a connection.
pub(super) fn token_of(slot: Slot) -> Token {
    Token(slot)
}

/// The loop and all that it serves.
pub(super) struct Engine {
    pub poll: Poll,
    pub listeners: Vec<Listener>,
    pub worker: Worker,
    pub scratch: Vec<u8>,
    /// Slots to be read again: what they had did not fit into one read.
    pub again: Vec<Slot>,
    /// Slots to be written to again: what they take did not fit into one turn.
    pub write_again: Vec<Slot>,
    /// Slots with replies that wait until a record of the log is durable, in the order of the records.
    pub held: VecDeque<(u64, Slot)>,
    /// Listeners at which more are waiting.
    pub accept_again: Vec<usize>,
    /// Accepting failed; it is tried again at the next tick.
    pub retry_accept: bool,
    pub signals: Option<Signals>,
    pub stop: Arc<AtomicBool>,
    /// When the next tick is due.
    pub next_tick: Instant,
    /// Work in small steps goes on between requests: freeing memory, expiring, restoring.
    pub steps_left: bool,
    /// What has become of copies, as far as it was announced.
    pub copy_events: u64,
    /// Clients that wait on keys are being served.
    pub serves_keys: bool,
}

impl Engine {
    pub fn new(poll: Poll, listeners: Vec<Listener>, worker: Worker, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let mut engine = Self {
            poll,
            listeners,
            worker,
            scratch: vec![0; SCRATCH_BYTES],
            again: Vec::new(),
            write_again: Vec::new(),
            held: VecDeque::new(),
            accept_again: Vec::new(),
            retry_accept: false,
            signals: None,
            stop,
            next_tick: Instant::now(),
            steps_left: true,
            copy_events: 0,
            serves_keys: false,
        };
        for (index, listener) in engine.listeners.iter_mut().enumerate() {
            listener.register(engine.poll.registry(), Token(FIRST_LISTENER + index))?;
        }
        Ok(engine)
    }

    /// The token that wakes the loop.
    pub const fn wake_token() -> Token {
        WAKE
    }

    /// From here on SIGTERM and SIGINT end the loop.
    pub fn watch_signals(&mut self) -> io::Result<()> {
        let mut signals = Signals::watch()?;
        self.poll.registry().register(&mut signals.pipe, SIGNALS, mio::Interest::READABLE)?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Serves until the server is asked to end.
    pub fn run(&mut self) -> io::Result<()> {
        let never = AtomicBool::new(false);
        self.run_until(&never).map(drop)
    }

    /// Serves until the server is asked to end, or `done` is set and the loop woken; true in the latter case.
    pub fn run_until(&mut self, done: &AtomicBool) -> io::Result<bool> {
        let mut events = Events::with_capacity(EVENTS);
        while !done.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, Some(self.timeout())) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.begin_turn();
            self.serve_all(&events);
            if self.has_unfinished() {
                self.serve_again();
            }
            self.end_turn();
            if self.worker.state.ending.request.is_some() && self.leave() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin_turn(&mut self) {
        self.worker.state.take_time();
        self.worker.state.clock.turn_start = self.worker.state.clock.now;
        self.worker.store.set_now_ms(self.worker.state.clock.unix_ms);
    }

    /// Serves what is ready, and sends the replies to several clients one right after the other: the first one wakes the process that
    /// reads them, which is still awake for the others. Waking it costs more than most commands.
    fn serve_all(&mut self, events: &Events) {
        let (mut events, mut deferred_since) = (events.iter().peekable(), None);
        while let Some(event) = events.next() {
            self.worker.defers_sends = events.peek().is_some();
            self.serve(event);
            if self.worker.state.clients.has_delivered() {
                let now = self.worker.state.clock.command_start;
                if now.saturating_duration_since(*deferred_since.get_or_insert(now)) > LONGEST_DEFERRAL {
                    self.worker.defers_sends = false;
                    self.send_messages();
                    deferred_since = None;
                }
            }
        }
        self.worker.defers_sends = false;
        self.send_messages();
    }

    fn serve(&mut self, event: &mio::event::Event) {
        match event.token() {
            WAKE => {
                if self.stop.load(Ordering::Relaxed) {
                    self.worker.state.ending.request =
                        Some(Shutdown { no_save: true, force: true, ..Shutdown::default() });
                }
                if let Some(desk) = &self.worker.state.instance.metrics {
                    desk.answer(|| gather::all(&self.worker.store, &self.worker.state));
                }
                if !self.worker.state.blocked.transfers.is_empty() {
                    self.announce(WakeEvent::TransferGoesOn);
                }
                if self.worker.state.blocked.migrations.have_ended() {
                    self.announce(WakeEvent::MigrationEnds);
                    let ServerState { blocked, clients, .. } = &mut self.worker.state;
                    blocked.migrations.keep(|id| clients.by_id(id).is_some());
                }
            }
            SIGNALS => {
                if self.signals.as_mut().is_some_and(Signals::drain) {
                    tracing::info!("asked by a signal to end; Ctrl-C once more ends at once, without a save");
                    self.worker.state.ending.request = Some(Shutdown::default());
                }
            }
            Token(number) if number >= FIRST_LISTENER => self.accept(number - FIRST_LISTENER),
            Token(slot) => {
                if event.is_writable() {
                    self.writable(slot);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.readable(slot, event.is_read_closed(), event.is_error());
                }
            }
        }
    }

    /// Goes on with what one turn was not enough for, one more turn each.
    fn serve_again(&mut self) {
        for slot in once_each(&mut self.write_again) {
            self.writable(slot);
        }
        if self.copy_got_on() {
            // Before clients that have had their copy ask for another one.
            self.announce_copies();
        }
        self.announce(WakeEvent::TurnBegins);
        for slot in once_each(&mut self.again) {
            self.readable(slot, false, false);
        }
        for listener in once_each(&mut self.accept_again) {
            self.accept(listener);
        }
    }

    pub(super) fn wants_step(&self) -> bool {
        let steps = &self.worker.state.steps;
        (self.steps_left || steps.eviction.is_running() || self.worker.store.has_copy_step()) && !steps.paused
    }

    fn has_unfinished(&self) -> bool {
        !(self.again.is_empty() && self.write_again.is_empty())
            || self.worker.state.clients.has_delivered()
            || self.worker.state.clients.tracking.has_pending()
            || !self.accept_again.is_empty()
            || self.worker.state.blocked.awaits(WakeEvent::TurnBegins)
    }

    fn end_turn(&mut self) {
        self.end_pause();
        self.wake_due();
        // The end of the last command is late enough, and saves a look at the clock.
        let now = self.worker.state.clock.command_start;
        eviction::notice(&self.worker.store, &mut self.worker.state);
        if now >= self.next_tick {
            self.tick(now);
        } else if self.wants_step() {
            self.step(now);
        } else {
            self.defragment();
        }
        if self.copy_got_on() {
            self.announce_copies();
        }
        if self.worker.state.clients.tracking.has_pending() {
            invalidation::broadcast(&mut self.worker.state);
        }
        // A client that has read its messages may go on, and write.
        self.send_messages();
        if self.concerns_log() {
            self.commit();
        }
        while let Some(slot) = self.worker.state.clients.doomed.pop() {
            self.close_slot(slot);
        }
        self.worker.state.clients.end_turn();
        let ServerState { stats, clock, .. } = &mut self.worker.state;
        stats.turns.count += 1;
        stats.turns.duration_ns += clock.turn_start.elapsed().as_nanos() as u64;
    }

    /// Whether there is a log, or a client that has waited for one that is gone.
    fn concerns_log(&self) -> bool {
        let state = &self.worker.state;
        state.log_writer.is_some()
            || !self.held.is_empty()
            || self.worker.log_behind
            || state.blocked.awaits(WakeEvent::LogIsDurable)
    }

    /// Hands over what the turn has logged, and looks what has become durable meanwhile. A client that goes on because of
    /// that may write, too.
    fn commit(&mut self) {
        loop {
            self.commit_once();
            if self.worker.state.log_writer.as_ref().is_none_or(|log_writer| log_writer.is_committed()) {
                return;
            }
        }
    }

    fn commit_once(&mut self) {
        let Worker { store, state, .. } = &mut self.worker;
        log_control::commit(store, state);
        if log_control::wants_image(state) {
            persistence::begin_for_log_if_idle(store, state);
        }
        let was_refused = state.log_state.refusal.is_some();
        log_control::judge(store, state);
        let refused = state.log_state.refusal.is_some();
        if was_refused != refused {
            persistence::judge_writes(state);
        }
        let full = !refused && log_control::is_full(state);
        if full {
            // Writes wait for an image, or for the end of the save that is in its way.
            store.hurry_save();
        }
        let behind = state.log_writer.as_mut().is_some_and(|log_writer| log_writer.look_behind(full, refused));
        if let Some(log_writer) = &state.log_writer
            && (behind || !self.held.is_empty() || state.blocked.awaits(WakeEvent::LogIsDurable))
        {
            // Before looking how far the log is, so that nothing is missed in between.
            log_writer.want_notice();
        }
        self.release();
        self.announce_durability();
        let was_behind = std::mem::replace(&mut self.worker.log_behind, behind);
        self.worker.judge_holds();
        if was_behind && !behind {
            self.announce(WakeEvent::LogCatchesUp);
        }
    }

    fn timeout(&self) -> Duration {
        if self.wants_step() || self.has_unfinished() || self.copy_got_on() {
            return Duration::ZERO;
        }
        let now = self.worker.state.clock.command_start;
        if defrag::is_due(&self.worker.state, now) {
            return Duration::ZERO;
        }
        let mut timeout = self.next_tick.saturating_duration_since(now);
        if let Some(due) = self.worker.state.steps.defrag.due().filter(|_| !self.worker.state.steps.paused) {
            timeout = timeout.min(due.saturating_duration_since(now));
        }
        if let Some(pause) = self.worker.state.clients.pause {
            let ends = self.worker.state.clock.started + Duration::from_millis(pause.until_ms);
            timeout = timeout.min(ends.saturating_duration_since(now));
        }
        if let Some(until_ms) = self.worker.state.blocked.first_deadline_ms() {
            let ends = self.worker.state.clock.started + Duration::from_millis(until_ms);
            timeout = timeout.min(ends.saturating_duration_since(now));
        }
        if self.worker.log_behind {
            timeout = timeout.min(LOOK_BEHIND);
        }
        // Rounded up, or the loop would turn without anything to do until the moment has come.
        timeout + Duration::from_millis(1)
    }

    /// Ends the server if nothing speaks against it.
    fn leave(&mut self) -> bool {
        let Some(shutdown) = self.worker.state.ending.request.take() else { return false };
        let Worker { store, state, .. } = &mut self.worker;
        if !state.ending.ended && !persistence::shut_down(store, state, shutdown) {
            if let Some(signals) = &self.signals {
                signals.forget();
            }
            return false;
        }
        // If the log can't be ended well, clients that wait for it are closed without a reply.
        log_control::switch_off(&mut self.worker.store, &mut self.worker.state);
        self.release();
        true
    }
}

/// What the list holds, nothing twice; the list is empty afterwards.
pub(super) fn once_each(list: &mut Vec<usize>) -> Vec<usize> {
    let mut numbers = std::mem::take(list);
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
