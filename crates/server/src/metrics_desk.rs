//! Where the endpoint's thread asks and the event loop answers. Relies on the loop being woken when there is a question.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use mio::Waker;
use quire_metrics::{Endpoint, EndpointError, Metric};

/// So long the event loop may take; a scraper gives up after ten seconds, as a rule.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the answer to a question goes.
type Question = SyncSender<Vec<Metric>>;

/// The event loop's side.
#[derive(Debug)]
pub struct MetricsDesk {
    questions: Receiver<Question>,
    endpoint: Endpoint,
}

/// Begins to serve metrics.
///
/// # Errors
/// The system refuses the port or the thread.
pub fn serve(ip: IpAddr, port: u16, waker: Arc<Waker>) -> Result<MetricsDesk, EndpointError> {
    let (sender, questions) = channel();
    let endpoint = Endpoint::serve(ip, port, move || ask(&sender, &waker))?;
    Ok(MetricsDesk { questions, endpoint })
}

/// Asks the event loop.
fn ask(sender: &Sender<Question>, waker: &Waker) -> Result<Vec<Metric>, String> {
    let (reply, answer) = sync_channel(1);
    let ending = || "the server ends".to_owned();
    sender.send(reply).map_err(|_| ending())?;
    waker.wake().map_err(|_| ending())?;
    answer.recv_timeout(PATIENCE).map_err(|_| {
        format!("the server's thread has not answered for {} s: it runs a long command, or ends", PATIENCE.as_secs())
    })
}

impl MetricsDesk {
    /// Answers what was asked meanwhile.
    pub fn answer(&self, mut gather: impl FnMut() -> Vec<Metric>) {
        while let Ok(question) = self.questions.try_recv() {
            // It may have been given up.
            let _ = question.try_send(gather());
        }
    }

    /// Where they are served.
    pub fn address(&self) -> std::net::SocketAddr {
        self.endpoint.address()
    }
}
