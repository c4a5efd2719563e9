//! What a command handler is given. Relies on the store, on the server's state and on the sender's.

use quire_store::Store;

pub use crate::args::{ArgRange, Args};
use crate::client::Client;
pub use crate::error::CmdError;
use crate::resp::Reply;
use crate::state::ServerState;

/// All that a command may touch while it runs.
pub struct Ctx<'a> {
    /// The data.
    pub store: &'a mut Store,
    /// Everything of the server but the data: configuration, statistics, the other clients.
    pub server: &'a mut ServerState,
    /// Who sent the command.
    pub client: &'a mut Client,
    /// The request's words.
    pub args: Args<'a>,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
}

impl Ctx<'_> {
    /// The command fails after it has done what its first `words` words say. That is what the log has to say, too: the whole
    /// command might do more, or fail again, when it is replayed.
    #[cold]
    pub fn did_only(&mut self, words: usize) {
        let performed = self.args.iter().take(words).map(<[u8]>::to_vec).collect();
        self.server.journal_state.performed = Some(performed);
    }

    /// Ends all watches of the client; whether one of its keys was changed no longer matters.
    pub fn forget_watched(&mut self) {
        if self.client.watched > 0 {
            self.store.unwatch_all(self.client.id);
            (self.client.watched, self.client.watched_bytes) = (0, 0);
        }
        self.client.touched = false;
    }
}

/// The function that runs a command. An error that it returns is sent as the reply; it must not have begun one.
pub type Handler = fn(&mut Ctx<'_>) -> Result<(), CmdError>;
