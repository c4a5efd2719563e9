//! Files that clients are sent in place of a reply (SYNC): a thread for each makes the bytes, the loop takes them as the client reads.
//!
//! Relies on channels alone; what the bytes are says the caller. A thread whose client does not read waits, so that neither side ever holds
//! more than a few chunks of a file.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use mio::Waker;
use quire_sys::thread;

/// Bytes that go from the thread to the loop at once.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that may wait for the loop.
const CHUNKS_AHEAD: usize = 8;
/// Clients that may be sent files at a time. Each has a thread, and an image's addresses.
const MOST_TRANSFERS: usize = 4;
/// The nice value of the threads: commands come first.
const NICE: i32 = 10;
/// A client that takes nothing for so long of what it is sent is closed: the default of Redis' `repl-timeout`.
const STALL_MS: u64 = 60_000;
/// How often a client whose file has not begun is sent a line end, as Redis does: so it knows that the server is there.
const KEEPALIVE_MS: u64 = 1000;
const CRASHED: &str = "the thread that sends the data has crashed; please report this";

/// What stands around the bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TransferFrame {
    /// A line that goes before everything else; none if it is empty.
    pub head: String,
    /// What the file ends in, which the client is told before it; without that the client is told how long the file is.
    pub end_mark: Option<String>,
}

/// What passes from a thread to the loop.
enum Message {
    Bytes(Vec<u8>),
    End,
    Failed(String),
}

/// What both sides of a transfer see.
#[derive(Debug, Default)]
struct TransferSignals {
    /// The loop has found nothing, and is to be woken.
    is_awaited: AtomicBool,
    /// The client has gone.
    is_over: AtomicBool,
}

/// The thread's side.
pub struct ChunkSender {
    messages: SyncSender<Message>,
    chunk: Vec<u8>,
    signals: Arc<TransferSignals>,
    waker: Arc<Waker>,
}

impl ChunkSender {
    /// Whether the client is still there.
    pub fn is_wanted(&self) -> bool {
        !self.signals.is_over.load(Ordering::Relaxed)
    }

    fn send(&self, message: Message) -> io::Result<()> {
        self.messages.send(message).map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
        // Ordered with the loop, which asks to be woken and looks once more then.
        if self.signals.is_awaited.swap(false, Ordering::SeqCst) {
            // If the loop is gone there is none to wake.
            let _ = self.waker.wake();
        }
        Ok(())
    }
}

impl Write for ChunkSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        if self.chunk.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.send(Message::Bytes(chunk))
    }
}

/// What the loop finds.
enum Chunk {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// There are none now; the loop is woken when there are.
    NotYet,
    /// That was all.
    End,
    /// The rest can't be had, for this reason.
    Failed(String),
}

/// The loop's side.
#[derive(Debug)]
struct ChunkReceiver {
    messages: Receiver<Message>,
    signals: Arc<TransferSignals>,
}

impl ChunkReceiver {
    fn next(&self) -> Chunk {
        match self.look() {
            Chunk::NotYet => {
                self.signals.is_awaited.store(true, Ordering::SeqCst);
                self.look()
            }
            found => found,
        }
    }

    fn look(&self) -> Chunk {
        match self.messages.try_recv() {
            Ok(Message::Bytes(bytes)) => Chunk::Bytes(bytes),
            Ok(Message::End) => Chunk::End,
            Ok(Message::Failed(reason)) => Chunk::Failed(reason),
            Err(TryRecvError::Empty) => Chunk::NotYet,
            Err(TryRecvError::Disconnected) => Chunk::Failed(CRASHED.to_owned()),
        }
    }
}

impl Drop for ChunkReceiver {
    fn drop(&mut self) {
        self.signals.is_over.store(true, Ordering::Relaxed);
    }
}

/// How far a transfer is.
#[derive(Debug)]
enum TransferStage {
    /// It waits for an image that is still to be cut.
    AwaitsCut,
    /// The image is being written.
    AwaitsImage,
    /// A thread makes the bytes.
    Sends(ChunkReceiver),
    /// All that the client gets is in its output.
    Ended(Result<(), String>),
}

/// A file for a client.
#[derive(Debug)]
struct Transfer {
    frame: TransferFrame,
    stage: TransferStage,
    /// Bytes of the file are in the client's output.
    has_begun: bool,
    /// When the client was last sent anything because of it, on the server's monotonic clock.
    sent_ms: u64,
    /// What the client had taken of all that it was ever sent when that was last looked at.
    taken_bytes: u64,
    /// Since when it has taken no more.
    taken_ms: u64,
}

/// The files of all clients.
#[derive(Debug, Default)]
pub struct Transfers {
    by_client: BTreeMap<u64, Transfer>,
}

/// What a client's output is to be given.
#[derive(PartialEq, Eq, Debug)]
pub enum TransferStep {
    /// These bytes.
    Send(Vec<u8>),
    /// Nothing now.
    Wait,
    /// Nothing more: the connection ends when all is sent.
    End,
    /// This error, and nothing more.
    Refuse(String),
    /// The connection ends at once, amid the file, for this reason.
    Abort(String),
}

impl Transfers {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_client.len()
    }

    /// A client is to be sent a file, of the data as it is from now on.
    ///
    /// # Errors
    /// In words for the client: as many clients as may be are sent files.
    pub fn begin(&mut self, client: u64, frame: TransferFrame, now_ms: u64) -> Result<(), String> {
        if self.by_client.len() >= MOST_TRANSFERS {
            return Err(format!("{MOST_TRANSFERS} clients are sent the data already, try again later"));
        }
        let transfer = Transfer {
            frame,
            stage: TransferStage::AwaitsCut,
            has_begun: false,
            sent_ms: now_ms,
            taken_bytes: 0,
            taken_ms: now_ms,
        };
        self.by_client.insert(client, transfer);
        Ok(())
    }

    /// A client is gone.
    pub fn end(&mut self, client: u64) {
        self.by_client.remove(&client);
    }

    /// The clients.
    pub fn clients(&self) -> Vec<u64> {
        self.by_client.keys().copied().collect()
    }

    /// Whether any waits for an image that is still to be cut.
    pub fn awaits_cut(&self) -> bool {
        self.by_client.values().any(|transfer| matches!(transfer.stage, TransferStage::AwaitsCut))
    }

    /// Whether any waits for an image that is being written.
    pub fn awaits_image(&self) -> bool {
        self.by_client.values().any(|transfer| matches!(transfer.stage, TransferStage::AwaitsImage))
    }

    /// An image was cut for all that wait for one.
    pub fn note_cut(&mut self) {
        self.exchange(|stage| matches!(stage, TransferStage::AwaitsCut), || TransferStage::AwaitsImage);
    }

    /// The image that was cut is not to be had; another one is.
    pub fn note_lost_image(&mut self) {
        self.exchange(|stage| matches!(stage, TransferStage::AwaitsImage), || TransferStage::AwaitsCut);
    }

    /// No image is to be had, for this reason: those that wait get an error.
    pub fn fail(&mut self, reason: &str) {
        let waits = |stage: &TransferStage| matches!(stage, TransferStage::AwaitsCut | TransferStage::AwaitsImage);
        self.exchange(waits, || TransferStage::Ended(Err(reason.to_owned())));
    }

    fn exchange(&mut self, is_meant: impl Fn(&TransferStage) -> bool, next: impl Fn() -> TransferStage) {
        for transfer in self.by_client.values_mut().filter(|transfer| is_meant(&transfer.stage)) {
            transfer.stage = next();
        }
    }

    /// The image is there: `job` makes the bytes for each client that has waited for it, on a thread of its own.
    pub fn start<J>(&mut self, waker: &Arc<Waker>, job: impl Fn(TransferFrame) -> J)
    where
        J: FnOnce(&mut ChunkSender) -> Result<(), String> + Send + 'static,
    {
        for transfer in self.by_client.values_mut() {
            if matches!(transfer.stage, TransferStage::AwaitsImage) {
                transfer.stage = match spawn(Arc::clone(waker), job(transfer.frame.clone())) {
                    Ok(receiver) => TransferStage::Sends(receiver),
                    Err(error) => TransferStage::Ended(Err(format!("cannot start a thread: {error}"))),
                };
            }
        }
    }

    /// What comes next in a client's output.
    pub fn next(&mut self, client: u64, now_ms: u64) -> TransferStep {
        let Some(transfer) = self.by_client.get_mut(&client) else { return TransferStep::End };
        if let TransferStage::Sends(receiver) = &transfer.stage {
            match receiver.next() {
                Chunk::Bytes(bytes) => {
                    (transfer.has_begun, transfer.sent_ms) = (true, now_ms);
                    return TransferStep::Send(bytes);
                }
                Chunk::NotYet => {}
                Chunk::End => transfer.stage = TransferStage::Ended(Ok(())),
                Chunk::Failed(reason) => transfer.stage = TransferStage::Ended(Err(reason)),
            }
        }
        match &transfer.stage {
            TransferStage::Ended(Ok(())) => TransferStep::End,
            TransferStage::Ended(Err(reason)) if transfer.has_begun => TransferStep::Abort(reason.clone()),
            TransferStage::Ended(Err(reason)) => TransferStep::Refuse(reason.clone()),
            TransferStage::AwaitsCut | TransferStage::AwaitsImage | TransferStage::Sends(_) => TransferStep::Wait,
        }
    }

    /// Whether a client whose output is empty is to be sent a sign that it is not forgotten; it is noted as sent.
    pub fn takes_keepalive(&mut self, client: u64, now_ms: u64) -> bool {
        let Some(transfer) = self.by_client.get_mut(&client) else { return false };
        let is_due = !transfer.has_begun && now_ms.saturating_sub(transfer.sent_ms) >= KEEPALIVE_MS;
        if is_due {
            transfer.sent_ms = now_ms;
        }
        is_due
    }

    /// Whether a client has taken nothing for too long of what waits in its output, whatever it sends meanwhile. `taken_bytes` is what it has taken
    /// in all.
    pub fn is_stalled(&mut self, client: u64, taken_bytes: u64, now_ms: u64) -> bool {
        let Some(transfer) = self.by_client.get_mut(&client) else { return false };
        if transfer.taken_bytes != taken_bytes {
            (transfer.taken_bytes, transfer.taken_ms) = (taken_bytes, now_ms);
        }
        now_ms.saturating_sub(transfer.sent_ms.max(transfer.taken_ms)) > STALL_MS
    }
}

/// Runs `job` on a thread of its own.
fn spawn(
    waker: Arc<Waker>,
    job: impl FnOnce(&mut ChunkSender) -> Result<(), String> + Send + 'static,
) -> io::Result<ChunkReceiver> {
    let (sender, messages) = sync_channel(CHUNKS_AHEAD);
    let signals = Arc::new(TransferSignals::default());
    let mut chunks =
        ChunkSender { messages: sender, chunk: Vec::with_capacity(CHUNK_BYTES), signals: Arc::clone(&signals), waker };
    thread::spawn_unsignalled("quire-transfer", move || {
        // A wish: where it is refused the thread goes as fast as everything else.
        thread::set_nice(thread::current(), NICE);
        let ended = job(&mut chunks).and_then(|()| chunks.flush().map_err(|error| error.to_string()));
        let last = ended.map_or_else(Message::Failed, |()| Message::End);
        // A client that is gone waits for nothing.
        let _ = chunks.send(last);
    })?;
    Ok(ChunkReceiver { messages, signals })
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};

    use super::*;

    /// A waker, and what must live as long as it.
    fn waker() -> (Poll, Arc<Waker>) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        (poll, Arc::new(waker))
    }

    fn waiting(clients: &[u64]) -> Transfers {
        let mut transfers = Transfers::default();
        for client in clients {
            transfers.begin(*client, TransferFrame::default(), 0).unwrap();
        }
        transfers
    }

    /// The next step that is not to wait.
    fn step(transfers: &mut Transfers, client: u64) -> TransferStep {
        loop {
            match transfers.next(client, 0) {
                TransferStep::Wait => std::thread::yield_now(),
                step => return step,
            }
        }
    }

    #[test]
    fn a_client_gets_what_its_thread_writes_and_no_more_is_made_than_it_takes() {
        let ((_poll, waker), mut transfers) = (waker(), waiting(&[7]));
        assert!(transfers.awaits_cut() && transfers.next(7, 0) == TransferStep::Wait);
        transfers.note_cut();
        let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        transfers.start(&waker, |_| {
            let counted = Arc::clone(&counted);
            move |out: &mut ChunkSender| {
                for number in 0..100_u8 {
                    out.write_all(&[number; CHUNK_BYTES]).map_err(|error| error.to_string())?;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                out.write_all(b"end").map_err(|error| error.to_string())
            }
        });
        for number in 0..100_u8 {
            let TransferStep::Send(bytes) = step(&mut transfers, 7) else { panic!("it ended at {number}") };
            assert!(bytes.len() == CHUNK_BYTES && bytes.iter().all(|byte| *byte == number));
            let ahead = written.load(Ordering::Relaxed) - usize::from(number);
            assert!(ahead <= CHUNKS_AHEAD + 2, "{ahead} chunks ahead");
        }
        assert_eq!(step(&mut transfers, 7), TransferStep::Send(b"end".to_vec()));
        assert_eq!(step(&mut transfers, 7), TransferStep::End);
        assert_eq!(step(&mut transfers, 7), TransferStep::End, "again and again");
    }

    #[test]
    fn a_failure_is_an_error_before_the_file_and_breaks_it_off_later() {
        let ((_poll, waker), mut transfers) = (waker(), waiting(&[1, 2, 3]));
        transfers.note_cut();
        transfers.begin(4, TransferFrame { head: "h".into(), end_mark: None }, 0).unwrap();
        assert!(transfers.awaits_cut() && transfers.awaits_image());
        let begins = std::cell::Cell::new(0);
        transfers.start(&waker, |_| {
            let kind = begins.replace(begins.get() + 1);
            move |out: &mut ChunkSender| match kind {
                0 => Err("no disk".to_owned()),
                1 => {
                    out.write_all(b"half").and_then(|()| out.flush()).unwrap();
                    Err("no disk".to_owned())
                }
                _ => panic!("a fault that a test makes"),
            }
        });
        assert_eq!(step(&mut transfers, 1), TransferStep::Refuse("no disk".into()));
        assert_eq!(step(&mut transfers, 2), TransferStep::Send(b"half".to_vec()));
        assert_eq!(step(&mut transfers, 2), TransferStep::Abort("no disk".into()));
        assert_eq!(step(&mut transfers, 3), TransferStep::Refuse(CRASHED.into()));
        assert_eq!(transfers.next(4, 0), TransferStep::Wait, "it came after the cut");
        assert!(transfers.begin(5, TransferFrame::default(), 0).is_err(), "as many as there may be");
        transfers.fail("full");
        assert_eq!(transfers.next(4, 0), TransferStep::Refuse("full".into()));
        transfers.end(4);
        assert!(transfers.begin(5, TransferFrame::default(), 0).is_ok());
    }

    #[test]
    fn the_thread_of_a_client_that_is_gone_ends() {
        let ((_poll, waker), mut transfers) = (waker(), waiting(&[1]));
        transfers.note_cut();
        transfers.note_lost_image();
        assert!(transfers.awaits_cut());
        transfers.note_cut();
        let (tell, told) = sync_channel(1);
        transfers.start(&waker, |_| {
            let tell = tell.clone();
            move |out: &mut ChunkSender| {
                while out.write_all(&[0; CHUNK_BYTES]).is_ok() {}
                tell.send(out.is_wanted()).unwrap();
                Ok(())
            }
        });
        assert!(matches!(step(&mut transfers, 1), TransferStep::Send(_)));
        transfers.end(1);
        assert_eq!((told.recv(), transfers.is_empty()), (Ok(false), true));
        assert_eq!(transfers.next(1, 0), TransferStep::End);
    }

    #[test]
    fn clients_get_signs_until_the_file_begins_and_time_to_take_it() {
        let ((_poll, waker), mut transfers) = (waker(), waiting(&[1]));
        assert!(!transfers.takes_keepalive(1, KEEPALIVE_MS - 1) && transfers.takes_keepalive(1, KEEPALIVE_MS));
        assert!(!transfers.takes_keepalive(1, KEEPALIVE_MS) && transfers.takes_keepalive(1, 2 * KEEPALIVE_MS));
        transfers.note_cut();
        transfers.start(&waker, |_| |out: &mut ChunkSender| out.write_all(b"x").map_err(|error| error.to_string()));
        let sent_ms = 1_000_000;
        while transfers.next(1, sent_ms) == TransferStep::Wait {}
        assert!(!transfers.takes_keepalive(1, sent_ms + KEEPALIVE_MS));
        assert!(!transfers.is_stalled(1, 0, sent_ms + STALL_MS) && transfers.is_stalled(1, 0, sent_ms + STALL_MS + 1));
        let taken_ms = sent_ms + STALL_MS + 1;
        assert!(!transfers.is_stalled(1, 9, taken_ms), "it has taken something since");
        assert!(
            !transfers.is_stalled(1, 9, taken_ms + STALL_MS) && transfers.is_stalled(1, 9, taken_ms + STALL_MS + 1)
        );
    }
}
