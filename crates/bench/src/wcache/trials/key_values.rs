//! Trials of redis-server: every write is logged and synced before its answer, while snapshots and rewrites of the log
//! go on in children.
//!
//! Relies on the template being the log of a server that was filled. The bench itself orders snapshots and rewrites, in
//! turn and with a fixed pause, so that every trial has its share of both, however long it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::info::ServerInfo;
use crate::process::{Program, Server, ServerKind, find_on_path};
use crate::resp::{Connection, Value};
use crate::wcache::experiment_context::ExperimentContext;
use crate::wcache::scenarios::Scenario;
use crate::wcache::testbed::interrupt::Interrupt;
use crate::wcache::testbed::storage_stack::{StackSpec, StorageStack};
use crate::wcache::trial_observer::CounterObserver;
use crate::wcache::trial_stats::TrialStats;
use crate::wcache::ycsb::clients::{self, YcsbRun};
use crate::wcache::ycsb::records::YcsbWorkload;

/// A record's fields, its key and what the log has around them.
const RECORD_BYTES: u64 = 1400;
const LOGGED: [&str; 2] = ["--appendonly", "yes"];
/// The bench orders rewrites itself.
const NO_OWN_REWRITES: [&str; 2] = ["--auto-aof-rewrite-percentage", "0"];

/// A filled server's directory, from which others are copied.
#[derive(Debug)]
pub struct KeyValueTemplate {
    program: Program,
    dir: PathBuf,
}

impl KeyValueTemplate {
    /// Makes one.
    ///
    /// # Errors
    /// When redis-server is missing or fails, or there was an interrupt.
    pub fn make(context: &ExperimentContext) -> anyhow::Result<Self> {
        let binary = find_on_path("redis-server").context("redis-server is missing (Debian package redis-server)")?;
        let program = Program { name: "redis-server".into(), kind: ServerKind::Redis, binary };
        let template = Self { program, dir: context.run_dir.dir().join("template-redis") };
        let first = template.dir.join(server_dir(0));
        let words = [LOGGED[0], LOGGED[1], "--appendfsync", "no", NO_OWN_REWRITES[0], NO_OWN_REWRITES[1]];
        context.progress.say(&format!("filling redis-server with {} records", context.scale.stores.records));
        let mut server = Server::start_told(&template.program, context.port, &first, &[], &words)?;
        let mut control = server.ready()?;
        clients::fill(context.port, context.scale.stores.records, &context.interrupt)?;
        background(&mut control, "BGREWRITEAOF", "aof_rewrite_in_progress", &|| context.interrupt.check())?;
        server.kill();
        for number in 1..context.scale.stores.servers {
            let to = template.dir.join(server_dir(number));
            crate::wcache::testbed::command::run(std::process::Command::new("cp").arg("-a").arg(&first).arg(to))?;
        }
        Ok(template)
    }
}

fn server_dir(number: usize) -> String {
    format!("server-{number}")
}

/// Orders `command` and waits until INFO no longer says `field`; `check` may end the wait.
fn background(
    control: &mut Connection,
    command: &str,
    field: &str,
    check: &dyn Fn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Value::Error(text) = control.line(command)? {
        bail!("{command} was refused: {text}");
    }
    loop {
        check()?;
        let info = ServerInfo::ask(control, "persistence")?;
        if !info.flag(field) && !info.flag("aof_rewrite_scheduled") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a trial.
///
/// # Errors
/// When anything fails.
pub fn trial(
    template: &KeyValueTemplate,
    scenario: Scenario,
    workload: YcsbWorkload,
    context: &ExperimentContext,
) -> anyhow::Result<TrialStats> {
    let ExperimentContext { scale, run_dir, interrupt, .. } = context;
    let plan = StackSpec {
        quire: &context.quire,
        policy: scenario.policy,
        capacity_mib: scenario.capacity_mib,
        fast: scenario.fast,
        template: &template.dir,
        // A snapshot, a rewritten log and the log itself, several times over; sparse.
        disk_bytes: scale.stores.records * RECORD_BYTES * scale.stores.servers as u64 * 8 + (4 << 30),
        slow_speed: scale.slow_speed,
        fast_speed: scale.fast_speed,
        owner: None,
    };
    let mut stack = StorageStack::set(&plan, run_dir, interrupt)?;
    stack.warm(interrupt)?;
    let servers = start(template, stack.point(), context)?;
    stack.slow_down()?;
    let mut observer = CounterObserver::new(&mut stack);
    let stats = load(&servers, workload, context, &mut observer);
    let cache = observer.counted();
    servers.into_iter().for_each(end);
    let down = stack.take_down();
    let stats = stats?;
    down?;
    Ok(TrialStats { cache, ..stats })
}

fn start(template: &KeyValueTemplate, point: &Path, context: &ExperimentContext) -> anyhow::Result<Vec<Server>> {
    let mut servers = Vec::new();
    for number in 0..context.scale.stores.servers {
        let (port, dir) = (context.port + number as u16, point.join(server_dir(number)));
        let words = [LOGGED[0], LOGGED[1], "--appendfsync", "always", NO_OWN_REWRITES[0], NO_OWN_REWRITES[1]];
        servers.push(Server::start_told(&template.program, port, &dir, &[], &words)?);
    }
    for server in &mut servers {
        server.ready()?;
    }
    Ok(servers)
}

/// Ends a server with its children: one that is killed leaves the child that writes a snapshot at work.
fn end(server: Server) {
    let port = server.port();
    if let Ok(mut control) = Connection::open(port) {
        // It closes the connection instead of answering.
        let _ = control.line("SHUTDOWN NOSAVE");
    }
    let began = Instant::now();
    while Connection::open(port).is_ok() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
}

fn load(
    servers: &[Server],
    workload: YcsbWorkload,
    context: &ExperimentContext,
    observer: &mut CounterObserver<'_>,
) -> anyhow::Result<TrialStats> {
    let ExperimentContext { scale, interrupt, .. } = context;
    let ports: Vec<u16> = servers.iter().map(Server::port).collect();
    let run = YcsbRun {
        workload,
        ports: &ports,
        records: scale.stores.records,
        clients: scale.stores.clients,
        duration: scale.duration,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, ports) = (&stop, &ports);
        let saver = scope.spawn(move || save_in_turn(ports, scale.stores.snapshot_pause, stop, interrupt));
        let stats = clients::run(run, interrupt, observer);
        stop.store(true, Ordering::Relaxed);
        let (saves, seconds) = saver.join().expect("the saving thread does not panic")?;
        let mut stats = stats?;
        stats.count("saves", saves as f64);
        stats.count("saving_s", seconds);
        Ok(stats)
    })
}

/// Snapshots and rewrites of the log, in turn, of all servers at once; how many, and how long they took.
fn save_in_turn(
    ports: &[u16],
    pause: Duration,
    stop: &AtomicBool,
    interrupt: &Interrupt,
) -> anyhow::Result<(u64, f64)> {
    let mut controls = Vec::new();
    for &port in ports {
        controls.push(Connection::open(port).context("a connection for snapshots")?);
    }
    let (mut saves, mut seconds) = (0, 0.0);
    let check = || if stop.load(Ordering::Relaxed) { bail!("stopped") } else { interrupt.check() };
    for turn in 0_u64.. {
        let until = Instant::now() + pause;
        while Instant::now() < until && check().is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (command, field) = if turn % 2 == 0 {
            ("BGSAVE", "rdb_bgsave_in_progress")
        } else {
            ("BGREWRITEAOF", "aof_rewrite_in_progress")
        };
        let began = Instant::now();
        for control in &mut controls {
            if check().is_err() {
                return Ok((saves, seconds));
            }
            // Stopped while it runs: the server is about to end, and its child with it.
            if let Err(error) = background(control, command, field, &check) {
                return if check().is_err() { Ok((saves, seconds)) } else { Err(error) };
            }
            saves += 1;
        }
        seconds += began.elapsed().as_secs_f64();
    }
    Ok((saves, seconds))
}
