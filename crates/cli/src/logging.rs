//! Logs: structured lines to standard error or a file, as text or JSON, at a level that can change while running.

use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use quire_server::config::{Config, LogFormat, LogLevel};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, reload};

/// Starts logging; returns what changes the level.
pub fn start(config: &Config) -> anyhow::Result<Box<dyn Fn(LogLevel) + Send>> {
    let (filter, handle) = reload::Layer::new(filter_of(config.loglevel));
    let to_terminal = config.logfile.is_empty() && std::io::stderr().is_terminal();
    let writer = if config.logfile.is_empty() {
        BoxMakeWriter::new(std::io::stderr)
    } else {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&config.logfile)
            .with_context(|| format!("cannot open the logfile {}", config.logfile))?;
        BoxMakeWriter::new(Mutex::new(file))
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(to_terminal).with_target(false);
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(Box::new(move |level| {
        // Fails only after the subscriber is gone, so never.
        let _ = handle.reload(filter_of(level));
    }))
}

/// Starts plain logging, to a file if one is given.
pub fn plain(file: Option<&Path>) -> anyhow::Result<()> {
    let to_terminal = file.is_none() && std::io::stderr().is_terminal();
    let writer = match file {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            let file = File::options().create(true).append(true).open(path);
            BoxMakeWriter::new(Mutex::new(file.with_context(|| format!("cannot open {}", path.display()))?))
        }
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(to_terminal).with_target(false);
    tracing_subscriber::registry().with(LevelFilter::INFO).with(lines).init();
    Ok(())
}

fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}
