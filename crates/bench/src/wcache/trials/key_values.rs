//! Trials of redis-server: every write is logged and synced before its answer, while snapshots and rewrites of the log
//! go on in children.
//!
//! Relies on the template being the log of a server that was filled. The bench itself orders snapshots and rewrites, in
//! turn and with a fixed pause, so that every trial has its share of both, however long it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::info::Info;
use crate::process::{Flavor, Program, Server, find_on_path};
use crate::resp::{Connection, Value};
use crate::wcache::cells::Cell;
use crate::wcache::context::Context;
use crate::wcache::lab::interrupt::Interrupt;
use crate::wcache::lab::stage::{Plan, Stage};
use crate::wcache::tally::Tally;
use crate::wcache::watch::StageWatch;
use crate::wcache::ycsb::clients::{self, Run};
use crate::wcache::ycsb::records::Workload;

/// A record's fields, its key and what the log has around them.
const RECORD_BYTES: u64 = 1400;
const LOGGED: [&str; 2] = ["--appendonly", "yes"];
/// The bench orders rewrites itself.
const NO_OWN_REWRITES: [&str; 2] = ["--auto-aof-rewrite-percentage", "0"];

/// A filled server's directory, from which others are copied.
#[derive(Debug)]
pub struct Template {
    program: Program,
    dir: PathBuf,
}

impl Template {
    /// Makes one.
    ///
    /// # Errors
    /// When redis-server is missing or fails, or there was an interrupt.
    pub fn make(context: &Context) -> anyhow::Result<Self> {
        let binary = find_on_path("redis-server").context("redis-server is missing (Debian package redis-server)")?;
        let program = Program { name: "redis-server".into(), flavor: Flavor::Redis, binary };
        let template = Self { program, dir: context.testbed.dir().join("template-redis") };
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
            crate::wcache::lab::command::run(std::process::Command::new("cp").arg("-a").arg(&first).arg(to))?;
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
        let info = Info::ask(control, "persistence")?;
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
pub fn trial(template: &Template, cell: Cell, workload: Workload, context: &Context) -> anyhow::Result<Tally> {
    let Context { scale, testbed, interrupt, .. } = context;
    let plan = Plan {
        quire: &context.quire,
        policy: cell.policy,
        capacity_mib: cell.capacity_mib,
        fast: cell.fast,
        template: &template.dir,
        // A snapshot, a rewritten log and the log itself, several times over; sparse.
        disk_bytes: scale.stores.records * RECORD_BYTES * scale.stores.servers as u64 * 8 + (4 << 30),
        slow_speed: scale.slow_speed,
        fast_speed: scale.fast_speed,
        owner: None,
    };
    let mut stage = Stage::set(&plan, testbed, interrupt)?;
    stage.warm(interrupt)?;
    let servers = start(template, stage.point(), context)?;
    stage.slow_down()?;
    let mut watch = StageWatch::new(&mut stage);
    let tally = load(&servers, workload, context, &mut watch);
    let cache = watch.counted();
    servers.into_iter().for_each(end);
    let down = stage.take_down();
    let tally = tally?;
    down?;
    Ok(Tally { cache, ..tally })
}

fn start(template: &Template, point: &Path, context: &Context) -> anyhow::Result<Vec<Server>> {
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
    workload: Workload,
    context: &Context,
    watch: &mut StageWatch<'_>,
) -> anyhow::Result<Tally> {
    let Context { scale, interrupt, .. } = context;
    let ports: Vec<u16> = servers.iter().map(Server::port).collect();
    let run =
        Run { workload, ports: &ports, records: scale.stores.records, clients: scale.stores.clients, span: scale.span };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, ports) = (&stop, &ports);
        let saver = scope.spawn(move || save_in_turn(ports, scale.stores.snapshot_pause, stop, interrupt));
        let tally = clients::run(run, interrupt, watch);
        stop.store(true, Ordering::Relaxed);
        let (saves, seconds) = saver.join().expect("the saving thread does not panic")?;
        let mut tally = tally?;
        tally.count("saves", saves as f64);
        tally.count("saving_s", seconds);
        Ok(tally)
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
