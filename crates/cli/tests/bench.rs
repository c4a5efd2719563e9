//! `quire bench` that is ended amid an experiment takes down what it has started and made.
//!
//! Relies on an experiment that needs nothing but Quire, and on its servers having the experiment's directory in their command line.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, quire};

/// Processes whose command line names `dir`: the supervisor, the worker, servers.
fn processes(dir: &str) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let lines = pids.map(|pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (pid, String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|(_, line)| line.contains(dir)).collect()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An experiment with a server that is up.
struct Running {
    supervisor: Child,
    dir: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        // A port that is free now. Another program that takes it meanwhile fails the experiment, which is then begun again.
        let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let end = Instant::now() + PATIENCE;
        loop {
            let dir = tempfile::tempdir().unwrap();
            let place = dir.path().to_str().unwrap();
            let words = ["bench", "clone", "--quick", "--keys", "1000", "--seconds", "1000", "--dir", place, "--port"];
            let mut command = quire(&[&words[..], &[&port()]].concat());
            let supervisor = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut running = Self { supervisor, dir };
            loop {
                if running.supervisor.try_wait().unwrap().is_some() {
                    break;
                }
                if running.server().is_some() {
                    return running;
                }
                assert!(Instant::now() < end, "no server is started");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn place(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn server(&self) -> Option<u32> {
        processes(self.place()).into_iter().find(|(_, line)| line.contains(" serve ")).map(|(pid, _)| pid)
    }

    fn worker(&self) -> u32 {
        processes(self.place()).into_iter().find(|(_, line)| line.contains(" --supervised ")).unwrap().0
    }

    fn check_nothing_is_left(&self, how: &str) {
        let running = processes(self.place());
        assert!(running.is_empty(), "{how}: {running:?}");
        let left: Vec<_> = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{how}: {left:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.supervisor.try_wait() {
            signal(self.supervisor.id(), "TERM");
            let _ = self.supervisor.wait();
        }
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_signal_ends_the_experiment_with_all_that_it_started() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let mut running = Running::start();
        signal(running.supervisor.id(), name);
        assert_eq!(running.supervisor.wait().unwrap().code(), Some(128 + number), "{name}");
        running.check_nothing_is_left(name);
    }
}

#[test]
fn whichever_process_is_killed_the_other_one_clears_up() {
    let mut running = Running::start();
    signal(running.worker(), "KILL");
    assert_eq!(running.supervisor.wait().unwrap().code(), Some(128 + 9));
    running.check_nothing_is_left("the worker was killed");

    let mut running = Running::start();
    signal(running.supervisor.id(), "KILL");
    running.supervisor.wait().unwrap();
    eventually("the worker and its server end", || processes(running.place()).is_empty());
    running.check_nothing_is_left("the supervisor was killed");
}

#[test]
fn an_experiment_that_fails_says_so_by_its_own_exit_code() {
    let running = Running::start();
    signal(running.server().unwrap(), "KILL");
    let mut running = running;
    assert_eq!(running.supervisor.wait().unwrap().code(), Some(1));
    running.check_nothing_is_left("a server was killed");
}
