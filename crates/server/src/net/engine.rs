//! The event loop: waits for sockets, serves those that are ready, looks after time between.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::listen::Listener;
use super::signals::Signals;
use super::worker::Worker;
use crate::clients::Slot;
use crate::persistence;
use crate::state::Shutdown;

/// Read at once from a socket.
const SCRATCH_BYTES: usize = 256 * 1024;
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
    pub retry_accept: bool,
    pub signals: Option<Signals>,
    pub stop: Arc<AtomicBool>,
    /// When the next tick is due.
    pub next_tick: Instant,
    /// Work in small steps goes on between requests: freeing memory, expiring, restoring.
    pub steps_left: bool,
}

impl Engine {
    pub fn new(poll: Poll, listeners: Vec<Listener>, worker: Worker, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let mut engine = Self {
            poll,
            listeners,
            worker,
            scratch: vec![0; SCRATCH_BYTES],
            again: Vec::new(),
            retry_accept: false,
            signals: None,
            stop,
            next_tick: Instant::now(),
            steps_left: true,
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

    /// Serves until the end; true when the server ended as it was asked to.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            match self.poll.poll(&mut events, Some(self.timeout())) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.begin_turn();
            for event in &events {
                self.serve(event);
            }
            self.serve_again();
            self.end_turn();
            if self.worker.state.shutdown.is_some() && self.leave() {
                return Ok(());
            }
        }
    }

    fn begin_turn(&mut self) {
        self.worker.state.take_time();
        self.worker.store.set_now_ms(self.worker.state.now_unix_ms);
        if self.worker.state.config.maxmemory_bytes > 0 {
            self.worker.state.used_memory_bytes = self.worker.store.arena().stats().allocated_bytes;
        }
    }

    fn serve(&mut self, event: &mio::event::Event) {
        match event.token() {
            WAKE => {
                if self.stop.load(Ordering::Relaxed) {
                    self.worker.state.shutdown = Some(Shutdown { no_save: true, force: true, ..Shutdown::default() });
                }
            }
            SIGNALS => {
                if self.signals.as_mut().is_some_and(Signals::drain) {
                    tracing::info!("asked by a signal to end");
                    self.worker.state.shutdown = Some(Shutdown::default());
                }
            }
            Token(number) if number >= FIRST_LISTENER => self.accept(number - FIRST_LISTENER),
            Token(slot) => {
                if event.is_writable() {
                    self.writable(slot);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.readable(slot, event.is_read_closed());
                }
            }
        }
    }

    /// Reads on where one read was not enough, one more read each.
    fn serve_again(&mut self) {
        if self.again.is_empty() {
            return;
        }
        for slot in std::mem::take(&mut self.again) {
            self.readable(slot, false);
        }
    }

    fn end_turn(&mut self) {
        self.resume_paused();
        let now = Instant::now();
        if now >= self.next_tick {
            self.tick(now);
        } else if self.steps_left {
            self.step(now);
        }
        while let Some(slot) = self.worker.state.clients.doomed.pop() {
            self.close_slot(slot);
        }
        self.worker.state.clients.end_turn();
    }

    fn resume_paused(&mut self) {
        let state = &mut self.worker.state;
        let Some(pause) = state.pause else { return };
        // CLIENT UNPAUSE sets the end to now.
        if state.clock_ms() < pause.until_ms {
            return;
        }
        state.pause = None;
        let held: Vec<Slot> =
            state.clients.iter().filter(|(_, connection)| connection.held).map(|(slot, _)| slot).collect();
        for slot in held {
            self.resume(slot);
        }
    }

    fn timeout(&self) -> Duration {
        if !self.again.is_empty() || self.steps_left {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let mut timeout = self.next_tick.saturating_duration_since(now);
        if let Some(pause) = self.worker.state.pause {
            let ends = self.worker.state.started + Duration::from_millis(pause.until_ms);
            timeout = timeout.min(ends.saturating_duration_since(now));
        }
        // Rounded up, or the loop would turn without anything to do until the moment has come.
        timeout + Duration::from_millis(1)
    }

    /// Ends the server if nothing speaks against it.
    fn leave(&mut self) -> bool {
        let Some(shutdown) = self.worker.state.shutdown.take() else { return false };
        persistence::shut_down(&mut self.worker.store, &mut self.worker.state, shutdown)
    }
}
