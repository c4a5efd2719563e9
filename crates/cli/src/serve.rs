//! `quire serve`: settings, logs, data, sockets, banner, and then the server until it ends.

use std::fs::File;
use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgMatches;
use quire_server::clone_origin::CloneOrigin;
use quire_server::cloning;
use quire_server::config::{Config, table};
use quire_server::lock_file::{self, SharedLock};
use quire_server::net::{LoadingServer, ServerError};
use quire_server::saving;
use quire_server::state::ServerHooks;
use quire_sys::thread;

use crate::banner::{self, ClientAccess};
use crate::clone::CloneRequest;
use crate::foreign_flags::ForeignFlag;
use crate::logging;

/// Starts the server and serves until it is asked to end.
pub fn run(matches: &ArgMatches, foreign_flags: &[ForeignFlag]) -> anyhow::Result<ExitCode> {
    // Beside the reading of settings and of the image: neither needs much of the code yet.
    let prefault = std::thread::spawn(quire_sys::proc::prefault_own_code);
    // A save or the log must fail then, not the server end.
    quire_sys::limits::refuse_longer_files();
    let (mut config, left_out) = settings(matches, foreign_flags)?;
    let set_log_level = logging::start(&config)?;
    if let Some(logfile) = left_out {
        tracing::warn!(
            logfile,
            "this logfile of the configuration is the original's, so the clone logs to standard error; give it a --logfile of its own"
        );
    }
    if !config.file.without_effect.is_empty() {
        let directives = config.file.without_effect.join(" ");
        tracing::info!(directives, "these directives change nothing here");
    }
    // Before an original is asked for a save, and before all data is read.
    Pidfile::check(&config.pidfile)?;
    let wanted = CloneRequest::find(matches)?;
    if wanted.is_some() && config.read_only {
        run_behind_others(config.clone_nice);
    }
    let image_lock = prepare_place(&mut config, wanted.as_ref().map(|wanted| &wanted.origin))?;
    let shown = config.clone();
    let hooks = ServerHooks {
        set_log_level: Some(set_log_level),
        image_lock,
        // Nothing is to be done before the end: the data is where it was.
        leave_loading: Some(Box::new(|| std::process::exit(0))),
        ..ServerHooks::default()
    };
    let mut loading = LoadingServer::open(config, hooks).map_err(advised)?;
    loading.watch_signals()?;
    let server = loading.load(|config, progress| {
        let Some(wanted) = wanted else { return saving::open_telling(config, progress) };
        let (store, restored) = cloning::open(config, wanted.origin.clone())?;
        wanted.check(&restored).map_err(|error| format!("{error:#}"))?;
        Ok((store, restored))
    });
    // If it panicked there is nothing to lose but time.
    let _ = prefault.join();
    let server = server.map_err(advised)?;
    let data = server.restored().clone();
    // Not before it is sure that this server runs: the file may be that of one which uses the same settings.
    let pidfile = Pidfile::write(&shown.pidfile)?;
    let text = banner::text(&shown, &data, server.brought_back());
    let access = ClientAccess::of(server.asks_for_password(), shown.acl.protected_mode);
    banner::print(&text, server.addresses(), access, shown.tls.port);
    tracing::info!(addresses = server.addresses().join(", "), pid = std::process::id(), "ready to accept connections");
    let ended = server.run();
    drop(pidfile);
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Lowers this thread's priority, and that of all threads that it starts from now on: what a clone is scanned for can wait, and the
/// writes of the original, on the same processors, can't.
fn run_behind_others(nice: u8) {
    let own = thread::current();
    let Some(before) = thread::nice_of(own).filter(|_| nice > 0) else { return };
    if !thread::set_nice(own, before.saturating_add(i32::from(nice))) {
        tracing::warn!(nice, "the system does not let this clone run behind other programs");
    }
}

/// The file that tells this process's number, until it is dropped.
struct Pidfile(String);

impl Pidfile {
    /// Writes it, if there is to be one.
    fn write(path: &str) -> anyhow::Result<Option<Self>> {
        if path.is_empty() {
            return Ok(None);
        }
        std::fs::write(path, Self::text()).with_context(|| format!("cannot write the pidfile {path}"))?;
        Ok(Some(Self(path.to_owned())))
    }

    /// Finds out whether it could be written, and leaves it as it is.
    fn check(path: &str) -> anyhow::Result<()> {
        if path.is_empty() {
            return Ok(());
        }
        let cannot = || format!("cannot write the pidfile {path}");
        match File::options().append(true).open(path) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let probe = format!("{path}.tmp-{}", std::process::id());
                File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).with_context(cannot)
            }
            Err(error) => Err(error).with_context(cannot),
        }
    }

    fn text() -> String {
        format!("{}\n", std::process::id())
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        // Another process may have written its own number there since.
        if std::fs::read_to_string(&self.0).is_ok_and(|text| text == Self::text()) {
            // It may have been removed already.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn advised(error: ServerError) -> anyhow::Error {
    anyhow::Error::from(error)
}

/// Prepares the directory for images and logs, if there is one, and keeps other servers from the image. From here on the directory goes by
/// its real path, whatever a link to it leads to later.
fn prepare_place(config: &mut Config, origin: Option<&CloneOrigin>) -> anyhow::Result<Option<SharedLock>> {
    if let Some(origin) = origin {
        cloning::check_place(config, origin).map_err(anyhow::Error::msg)?;
        if !config.has_dir() {
            return Ok(None);
        }
    }
    prepare_dir(config)?;
    lock_file::of_image(config).map_err(anyhow::Error::msg)
}

/// The settings, and the logfile that a clone leaves out.
fn settings(matches: &ArgMatches, foreign_flags: &[ForeignFlag]) -> anyhow::Result<(Config, Option<String>)> {
    let is_clone = matches.contains_id("clone");
    let mut left_out = None;
    let mut config = if is_clone { Config::of_clone() } else { Config::default() };
    if let Some(file) = matches.get_one::<std::path::PathBuf>("config") {
        config.apply_file(file)?;
        if is_clone {
            // It may be the original's: CONFIG REWRITE must not write the clone's settings into it, and what leads to the original must not
            // lead to the clone.
            config.file.path = None;
            config.pidfile.clear();
            config.unixsocket.clear();
            // Lines of both in one file could not be told apart.
            left_out = Some(std::mem::take(&mut config.logfile));
        }
    }
    config.apply_env(|name| std::env::var(name).ok()).context("in the environment")?;
    if is_clone && foreign_flags.iter().any(|(name, _)| name == "include") {
        // Its lines would come after what leads to the original was left out.
        anyhow::bail!("a clone takes no --include: name one file of its own, which may include others");
    }
    config.apply_flags(foreign_flags)?;
    for directive in table::directives() {
        if let Some(values) = matches.get_many::<String>(directive.name) {
            let values: Vec<&str> = values.map(String::as_str).collect();
            config.set(directive.name, &values.join(" "))?;
        }
    }
    Ok((config, left_out.filter(|logfile| !logfile.is_empty())))
}

/// Makes the data directory and finds out now, not at the first save, whether it can be written.
fn prepare_dir(config: &mut Config) -> anyhow::Result<()> {
    let dir = config.dir.clone();
    std::fs::create_dir_all(&dir)
        .with_context(|| format!("cannot make the data directory {}; choose another with --dir", dir.display()))?;
    config.resolve_dir().with_context(|| format!("cannot use {}", dir.display()))?;
    let dir = &config.dir;
    if !dir.is_dir() {
        bail!("{} is not a directory; choose another with --dir", dir.display());
    }
    let probe = dir.join(format!(".quire-probe.tmp-{}", std::process::id()));
    match std::fs::write(&probe, b"") {
        Ok(()) => {
            let _ = std::fs::remove_file(probe);
        }
        Err(error) if !config.save.is_empty() || config.appendonly => bail!(
            "the data directory {} can't be written: {error}. Make it writable for this user, choose another with --dir, or \
             serve what is there without ever saving: --save \"\" --appendonly no",
            dir.display()
        ),
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "the data directory can't be written: saves will fail")
        }
    }
    Ok(())
}
