//! Finds out which processes answer requests: those that, between their flushes, sleep until something comes in, and have a
//! connection.
//!
//! A thread looks at every process that has flushed lately, a hundred times a second, through `/proc`: what it sleeps in,
//! and (rarely) which sockets it has. A server under full load is seldom caught asleep, so one sight holds for
//! [`HOLDS`]. Relies on being allowed to look, as root is; without that no process is ever observed to be critical.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quire_sys::task::{self, TaskState};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(10);
/// A process that has not flushed for so long is not looked at.
const LATELY: Duration = Duration::from_secs(3);
/// How long a sight holds.
const HOLDS: Duration = Duration::from_secs(30);
/// How often sockets are looked at, at most.
const SOCKETS: Duration = Duration::from_secs(2);
/// Most processes looked at.
const MOST: usize = 512;

struct Observed {
    thread: u32,
    flushed: Instant,
    awaited: Option<Instant>,
    connected: Option<(Instant, bool)>,
}

#[derive(Default)]
struct State {
    processes: Mutex<HashMap<u32, Observed>>,
}

impl State {
    fn processes(&self) -> MutexGuard<'_, HashMap<u32, Observed>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        let active: Vec<(u32, u32)> = {
            let processes = self.processes();
            let lately = processes.iter().filter(|(_, watched)| watched.flushed.elapsed() < LATELY);
            lately.map(|(process, watched)| (*process, watched.thread)).collect()
        };
        for (process, thread) in active {
            let awaits = |number| task::doing(number) == Some(TaskState::AwaitingInput);
            if !awaits(process) && (thread == process || !awaits(thread)) {
                continue;
            }
            let asked = self.processes().get(&process).and_then(|watched| watched.connected);
            let connected = match asked {
                Some((when, connected)) if when.elapsed() < SOCKETS => connected,
                _ => task::has_connection(process).unwrap_or(false),
            };
            if let Some(watched) = self.processes().get_mut(&process) {
                if asked.is_none_or(|(when, _)| when.elapsed() >= SOCKETS) {
                    watched.connected = Some((Instant::now(), connected));
                }
                if connected {
                    watched.awaited = Some(Instant::now());
                }
            }
        }
    }
}

/// The observation.
pub struct ServerDetector {
    state: Arc<State>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerDetector {
    /// Begins to look. `None` if the system starts no thread.
    pub fn start() -> Option<Self> {
        let state = Arc::<State>::default();
        let (stop, stopped) = channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("quire-watch".into()).spawn(move || rounds(&shared, &stopped));
        Some(Self { state, stop: Some(stop), thread: Some(thread.ok()?) })
    }

    /// A thread of this process flushes a file.
    pub fn flushes(&self, process: u32, thread: u32) {
        let mut processes = self.state.processes();
        let now = Instant::now();
        if !processes.contains_key(&process) && processes.len() >= MOST {
            processes.retain(|_, watched| watched.flushed.elapsed() < LATELY);
            if processes.len() >= MOST {
                return;
            }
        }
        let watched =
            processes.entry(process).or_insert(Observed { thread, flushed: now, awaited: None, connected: None });
        (watched.thread, watched.flushed) = (thread, now);
    }

    /// Whether it was seen to answer requests.
    pub fn answers_requests(&self, process: u32) -> bool {
        let processes = self.state.processes();
        processes.get(&process).and_then(|watched| watched.awaited).is_some_and(|seen| seen.elapsed() < HOLDS)
    }
}

impl Drop for ServerDetector {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn rounds(state: &State, stopped: &Receiver<()>) {
    while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        state.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_process_that_waits_for_its_client_answers_requests_and_a_stranger_does_not() {
        let own = std::process::id();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            send.send(quire_sys::thread::current().raw().cast_unsigned()).unwrap();
            let _ = far.read(&mut [0]);
        });
        let thread = receive.recv().unwrap();
        if task::doing(thread).is_some() {
            let server_detector = ServerDetector::start().unwrap();
            while !server_detector.answers_requests(own) {
                server_detector.flushes(own, thread);
                std::thread::sleep(PERIOD);
            }
            assert!(!server_detector.answers_requests(1));
        }
        drop(near);
        server.join().unwrap();
    }
}
