//! Logs: structured lines to standard error or a file, as text or JSON, at a level that can change while running. The file is opened anew
//! when SIGHUP comes, so that it can be moved away.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use quire_server::config::{Config, LogFormat, LogLevel};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
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
        let cannot = || format!("cannot open the logfile {}", config.logfile);
        let file = Arc::new(LogFile::open(&config.logfile).with_context(cannot)?);
        LogFile::reopen_on_hangup(&file).context("cannot wait for SIGHUP")?;
        BoxMakeWriter::new(file)
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

/// A file to log to.
struct LogFile {
    /// Its path from the root: the process may change its directory.
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    fn open(path: &str) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let file = Mutex::new(appending(&path)?);
        Ok(Self { path, file })
    }

    /// From here on SIGHUP has the file opened anew: what has moved it away sends that.
    fn reopen_on_hangup(this: &Arc<Self>) -> io::Result<()> {
        let (file, mut hangups) = (Arc::clone(this), Signals::new([SIGHUP])?);
        let wait = move || hangups.forever().for_each(|_| file.reopen());
        std::thread::Builder::new().name("quire-logfile".to_owned()).spawn(wait).map(drop)
    }

    fn reopen(&self) {
        match appending(&self.path) {
            Ok(file) => {
                *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
                tracing::info!("the logfile was opened anew, as SIGHUP asks");
            }
            Err(error) => tracing::warn!(%error, "cannot open the logfile anew; lines go on to the one that is open"),
        }
    }
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

fn appending(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Starts plain logging, to a file if one is given.
pub fn plain(file: Option<&Path>) -> anyhow::Result<()> {
    let to_terminal = file.is_none() && std::io::stderr().is_terminal();
    let writer = match file {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            let file = appending(path).with_context(|| format!("cannot open {}", path.display()))?;
            BoxMakeWriter::new(Mutex::new(file))
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
