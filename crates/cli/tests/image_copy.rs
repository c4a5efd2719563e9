//! `quire image copy` while it runs: its I/O priority, its rate, and how it is cancelled.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quire_sys::io_priority::IoPriority;
use quire_sys::thread::ThreadId;

use crate::common::{PATIENCE, complaint, quire, serve};

fn names(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_copy_runs_at_the_idle_io_priority_and_a_signal_cancels_it_while_it_waits_for_its_rate() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut server = serve(from.path(), &["--save", "", "--enable-debug-command", "local"]);
    assert_eq!(server.call("DEBUG POPULATE 30000 k 500\r\nSAVE"), "+OK\r\n+OK\r\n");
    server.signal("TERM");
    server.ended();
    let image = from.path().join("dump.quire");
    // After the first piece the next one is an hour away.
    let words = ["image", "copy", image.to_str().unwrap(), to.path().to_str().unwrap(), "--max-bytes-per-second", "1"];
    let copy = quire(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while !names(to.path()).iter().any(|name| name.contains(".tmp-")) {
        assert!(Instant::now() < end, "the copy does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    let main_thread = ThreadId::from_raw(i32::try_from(copy.id()).unwrap()).unwrap();
    assert_eq!(IoPriority::of(main_thread), Some(IoPriority::IDLE));
    assert!(Command::new("kill").args(["-TERM", &copy.id().to_string()]).status().unwrap().success());
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("the copy was cancelled, and nothing of it is left"), "{}", complaint(&output));
    let left = names(to.path());
    assert!(!left.iter().any(|name| name == "dump.quire" || name.contains(".tmp-")), "{left:?}");
}
