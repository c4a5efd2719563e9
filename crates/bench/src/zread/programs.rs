//! The parts `fio` and `nginx`: the real programs, as they are installed, without the library and with it.
//!
//! Relies on `fio` and `nginx` on the PATH; without them there is nothing to measure, and the figures say so. nginx reads into buffers
//! (`sendfile off`) and is loaded over loopback by clients of this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::scale::{ReadScale, make_files};
use super::spec::TrialCounts;
use super::workers::{ReadMode, TrialPair, set_environment};
use crate::progress::Progress;
use crate::report::{BetterDirection, Figure, Report};

/// Files that both read, and bytes of each.
const FILES: usize = 4;
const FILE_BYTES: u64 = 16 << 20;
/// Threads of fio, and clients of nginx.
const THREADS: usize = 4;
/// How long nginx may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the programs gave; the error says why there is nothing.
#[derive(Clone, Debug, Default)]
pub struct ProgramResults {
    /// By figure.
    pub programs: Vec<(&'static str, Result<TrialPair, String>)>,
}

/// Measures fio and nginx, whichever of both is asked for.
///
/// # Errors
/// Files can't be written. A program that is not there or fails is a result.
pub fn measure(
    names: &[&'static str],
    scale: &ReadScale,
    parent: &Path,
    progress: Progress,
) -> anyhow::Result<ProgramResults> {
    let dir = make_files(parent, "programs", FILES, FILE_BYTES)?;
    let mut results = ProgramResults::default();
    for &name in names {
        let mut pair = TrialPair::default();
        let measured = (0..scale.rounds).try_for_each(|round| {
            progress.say(&format!("{name}, round {} of {}", round + 1, scale.rounds));
            let one = |mode| if name == "fio" { fio(scale, &dir, mode) } else { nginx(scale, &dir, mode) };
            pair.read.push(one(ReadMode::Read)?);
            pair.zread.push(one(ReadMode::Zread)?);
            anyhow::Ok(())
        });
        results.programs.push((name, measured.map(|()| pair).map_err(|error| format!("{error:#}"))));
    }
    std::fs::remove_dir_all(dir)?;
    Ok(results)
}

/// One run of fio: threads that read 1 MiB blocks in random order.
fn fio(scale: &ReadScale, dir: &Path, mode: ReadMode) -> anyhow::Result<TrialCounts> {
    let names: Vec<String> = (0..FILES).map(|number| dir.join(number.to_string()).display().to_string()).collect();
    let mut command = Command::new("fio");
    command.args(["--name=reads", "--rw=randread", "--bs=1m", "--ioengine=psync", "--thread", "--invalidate=0"]);
    command.args(["--time_based", "--output-format=json", "--group_reporting", "--norandommap", "--iomem_align=4096"]);
    command.arg(format!("--numjobs={THREADS}")).arg(format!("--filename={}", names.join(":")));
    command.arg(format!("--runtime={}ms", scale.run_ms * 5)).arg(format!("--ramp_time={}ms", scale.warm_ms * 5));
    set_environment(&mut command, dir, mode)?;
    let done = command.stdin(Stdio::null()).current_dir(dir).output().context("fio is not installed")?;
    if !done.status.success() {
        bail!("fio: {}", String::from_utf8_lossy(&done.stderr).lines().last().unwrap_or_default());
    }
    let told = String::from_utf8_lossy(&done.stdout);
    let told: Value = serde_json::from_str(&told[told.find('{').unwrap_or(0)..]).context("fio's answer")?;
    let read = &told["jobs"][0]["read"];
    let number = |name: &str| read[name].as_u64().with_context(|| format!("fio does not tell {name}"));
    Ok(TrialCounts {
        operations: number("total_ios")?,
        bytes: number("io_bytes")?,
        seconds: number("runtime")? as f64 / 1e3,
    })
}

/// A server that ends with this.
struct RunningServer(Child);

impl Drop for RunningServer {
    fn drop(&mut self) {
        // Both fail only when the process has already ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nginx_configuration(dir: &Path, port: u16) -> String {
    let scratch = dir.display();
    format!(
        "daemon off; master_process off; pid {scratch}/pid; error_log stderr crit; events {{ worker_connections 64; }}\n\
         http {{ access_log off; sendfile off; output_buffers 2 1m; keepalive_requests 1000000000;\n\
         client_body_temp_path {scratch}/t1; proxy_temp_path {scratch}/t2; fastcgi_temp_path {scratch}/t3;\n\
         uwsgi_temp_path {scratch}/t4; scgi_temp_path {scratch}/t5;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ root {scratch}; }} }} }}\n"
    )
}

/// A port on which no program listens now.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("finding a port")?;
    Ok(listener.local_addr().context("finding a port")?.port())
}

/// One run of nginx under clients that fetch whole files.
fn nginx(scale: &ReadScale, dir: &Path, mode: ReadMode) -> anyhow::Result<TrialCounts> {
    let port = free_port()?;
    let configuration = dir.join("nginx.conf");
    std::fs::write(&configuration, nginx_configuration(dir, port)).context("writing nginx's configuration")?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&configuration).args(["-e", "stderr"]);
    set_environment(&mut command, dir, mode)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = RunningServer(command.spawn().context("nginx is not installed")?);
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begun.elapsed() > PATIENCE || server.0.try_wait().context("waiting for nginx")?.is_some() {
            bail!("nginx does not listen");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (fetched, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = |number: usize| {
            let (fetched, is_done) = (&fetched, &is_done);
            scope.spawn(move || fetch_on(port, number, fetched, is_done))
        };
        let clients: Vec<_> = (0..THREADS).map(client).collect();
        std::thread::sleep(Duration::from_millis(scale.warm_ms * 5));
        let (before, begun) = (fetched.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(Duration::from_millis(scale.run_ms * 5));
        let (after, seconds) = (fetched.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
        is_done.store(true, Ordering::Relaxed);
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))?;
        Ok(TrialCounts { operations: after - before, bytes: after - before, seconds })
    })
}

/// A client that fetches files over one connection; adds the bytes of their bodies.
fn fetch_on(port: u16, number: usize, fetched: &AtomicU64, is_done: &AtomicBool) -> anyhow::Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting to nginx")?;
    let (mut from, mut to) = (BufReader::with_capacity(16 << 10, stream.try_clone()?), stream);
    let mut buffer = vec![0; 256 << 10];
    let mut turn = number;
    while !is_done.load(Ordering::Relaxed) {
        turn += 1;
        write!(to, "GET /{} HTTP/1.1\r\nHost: bench\r\n\r\n", turn % FILES).context("asking nginx")?;
        let mut left = content_length(&mut from)?;
        while left > 0 {
            let most = left.min(buffer.len() as u64) as usize;
            let count = from.read(&mut buffer[..most]).context("nginx's answer")?;
            if count == 0 {
                bail!("nginx ended its answer early");
            }
            left -= count as u64;
            fetched.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Reads the head of an answer; the bytes of its body.
fn content_length(from: &mut impl BufRead) -> anyhow::Result<u64> {
    let (mut length, mut is_good) = (None, false);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).context("nginx's answer")? == 0 {
            bail!("nginx ended the connection");
        }
        let line = line.trim_end();
        is_good |= line.starts_with("HTTP/1.1 200");
        if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = told.trim().parse().ok();
        }
        if line.is_empty() {
            return length.filter(|_| is_good).context("nginx refuses");
        }
    }
}

/// Adds a figure for each program, for information.
pub fn add_figures(results: &ProgramResults, report: &mut Report) {
    for (name, measured) in &results.programs {
        let name = format!("{name}_gain");
        report.info.push(match measured {
            Ok(pair) => {
                let (read, zread) = pair.mib_per_s();
                let spread = pair.gain();
                Figure::new(name, spread.median, "x", BetterDirection::Higher)
                    .peer("read_mib_per_s", read)
                    .peer("zread_mib_per_s", zread)
                    .spread(spread)
            }
            Err(why) => Figure::new(name, f64::NAN, "x", BetterDirection::Higher).note(format!("not measured: {why}")),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_an_answer_tells_its_length() {
        let head = |text: &str| content_length(&mut BufReader::new(text.as_bytes()));
        assert_eq!(head("HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\nbody").unwrap(), 17);
        assert!(head("HTTP/1.1 503 Busy\r\nContent-Length: 17\r\n\r\n").is_err());
        assert!(head("HTTP/1.1 200 OK\r\n\r\n").is_err() && head("HTTP/1.1 200 OK\r\n").is_err());
    }

    #[test]
    fn a_program_that_is_not_there_is_a_figure_without_a_value() {
        let mut report = crate::experiment::tests::report::<super::super::ZreadArgs>();
        let programs = vec![("nginx", Err("nginx is not installed".to_owned())), ("fio", Ok(TrialPair::default()))];
        add_figures(&ProgramResults { programs }, &mut report);
        assert!(report.info[0].value.is_nan() && report.info[0].note.contains("not installed"));
        assert_eq!(report.info[1].name, "fio_gain");
    }
}
