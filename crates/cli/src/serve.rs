//! `quire serve`: settings, logs, data, sockets, banner, and then the server until it ends.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgMatches;
use quire_server::config::{Config, table};
use quire_server::lock_file;
use quire_server::net::{Server, ServerError};
use quire_server::saving;
use quire_server::state::ServerHooks;

use crate::banner::{self, ClientAccess};
use crate::logging;

/// Starts the server and serves until it is asked to end.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    // Beside the reading of settings and of the image: neither needs much of the code yet.
    let prefault = std::thread::spawn(quire_sys::proc::prefault_own_code);
    // A save or the log must fail then, not the server end.
    quire_sys::limits::refuse_longer_files();
    let config = settings(matches)?;
    let set_log_level = logging::start(&config)?;
    prepare_dir(&config)?;
    let image_lock = lock_file::of_image(&config).map_err(anyhow::Error::msg)?;
    if !config.pidfile.is_empty() {
        std::fs::write(&config.pidfile, format!("{}\n", std::process::id()))
            .with_context(|| format!("cannot write the pidfile {}", config.pidfile))?;
    }
    let (store, restored) = saving::open(&config).map_err(anyhow::Error::msg)?;
    let pidfile = config.pidfile.clone();
    let (shown, data) = (config.clone(), restored.clone());
    let hooks = ServerHooks { set_log_level: Some(set_log_level), image_lock, ..ServerHooks::default() };
    // If it panicked there is nothing to lose but time.
    let _ = prefault.join();
    let mut server = Server::start(config, store, restored, hooks).map_err(advised)?;
    server.watch_signals()?;
    let text = banner::text(&shown, &data, server.brought_back());
    banner::print(&text, server.addresses(), ClientAccess::of(&shown));
    tracing::info!(addresses = server.addresses().join(", "), pid = std::process::id(), "ready to accept connections");
    let ended = server.run();
    if !pidfile.is_empty() {
        // It may have been removed already.
        let _ = std::fs::remove_file(pidfile);
    }
    ended?;
    Ok(ExitCode::SUCCESS)
}

fn advised(error: ServerError) -> anyhow::Error {
    anyhow::Error::from(error)
}

fn settings(matches: &ArgMatches) -> anyhow::Result<Config> {
    let mut config = Config::default();
    if let Some(file) = matches.get_one::<std::path::PathBuf>("config") {
        config.apply_file(file)?;
    }
    config.apply_env(|name| std::env::var(name).ok()).context("in the environment")?;
    for directive in table::directives() {
        if let Some(values) = matches.get_many::<String>(directive.name) {
            let values: Vec<&str> = values.map(String::as_str).collect();
            config.set(directive.name, &values.join(" "))?;
        }
    }
    Ok(config)
}

/// Makes the data directory and finds out now, not at the first save, whether it can be written.
fn prepare_dir(config: &Config) -> anyhow::Result<()> {
    let dir = &config.dir;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make the data directory {}; choose another with --dir", dir.display()))?;
    let dir = std::fs::canonicalize(dir).with_context(|| format!("cannot use {}", dir.display()))?;
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
