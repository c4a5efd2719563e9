//! CLUSTER, ASKING, READONLY and READWRITE: clients ask with them whether the server is part of a cluster.

use crate::ctx::{CmdError, Ctx};

/// There is no cluster.
pub fn refuse(_: &mut Ctx<'_>) -> Result<(), CmdError> {
    Err(CmdError::fixed("ERR This instance has cluster support disabled"))
}
