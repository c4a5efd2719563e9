//! What commands on HyperLogLogs are logged as.
//!
//! Relies on the log of a server without sockets.

use super::Logging;

#[test]
fn a_hyperloglog_that_becomes_dense_is_told_to_be_before() {
    for (lines, effect) in [
        (&["PFADD p x", "PFCOUNT p"][..], "PFADD p x; PFCOUNT p"),
        (&["PFADD p x", "PFADD p x"], "PFADD p x"),
        (&["PFADD p x", "hll-sparse-max-bytes 0", "PFADD p y z"], "PFADD p x; PFDEBUG TODENSE p; PFADD p y z"),
        (&["hll-sparse-max-bytes 0", "PFADD p x", "PFADD p y"], "PFADD p; PFDEBUG TODENSE p; PFADD p x; PFADD p y"),
        (&["PFADD p x", "hll-sparse-max-bytes 0", "PFMERGE o p"], "PFADD p x; PFADD o; PFDEBUG TODENSE o; PFMERGE o p"),
    ] {
        let mut server = Logging::new();
        lines.iter().for_each(|line| server.run(line));
        assert_eq!(server.logged().join("; "), effect, "{lines:?}");
    }
}
