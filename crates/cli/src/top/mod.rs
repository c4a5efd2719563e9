//! `quire top`: a live view of a running server in the terminal, or one frame of it for a pipe.
//!
//! Relies on INFO, so that any server of Redis' protocol is shown, with what it tells. A thread asks, so that a server that does not answer
//! holds up no key; the terminal is put back before anything else is said.

mod commands_table;
mod durations;
mod keys;
mod meter;
mod panels;
mod sample;
mod state;
mod theme;
mod view;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ArgMatches;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Terminal};

use crate::peer::{Credentials, Peer};
use keys::Action;
use sample::Sample;
use state::TopState;
use theme::Theme;

/// How long a key or a new sample is waited for before the screen is looked after.
const TURN: Duration = Duration::from_millis(50);
/// Columns and lines of a frame where nothing tells the terminal's.
const FRAME: (u16, u16) = (100, 34);

/// Runs `quire top`.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let named: &String = matches.get_one("server").context("HOST:PORT")?;
    let interval = Duration::from_millis(*matches.get_one::<u64>("interval").context("an interval")?);
    let file = matches.get_one::<std::path::PathBuf>("clone-password-file").map(std::path::PathBuf::as_path);
    let credentials = Credentials::find(matches.get_one("clone-user"), file)?;
    let once = matches.get_flag("once");
    if !once && !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal; `quire top --once` prints one frame");
    }
    let mut peer = Peer::connect(named)?;
    peer.authenticate(&credentials)?;
    let mut state = TopState::new(named, interval);
    state.push(Sample::take(&mut peer)?);
    if once {
        std::thread::sleep(interval);
        state.push(Sample::take(&mut peer)?);
        quire_sys::out!("{}", frame(&state)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    watch(peer, &mut state)?;
    Ok(ExitCode::SUCCESS)
}

/// One frame as text.
fn frame(state: &TopState) -> anyhow::Result<String> {
    let number =
        |name: &str| std::env::var(name).ok()?.parse::<u16>().ok().filter(|number| (20..=500).contains(number));
    let (columns, lines) = (number("COLUMNS").unwrap_or(FRAME.0), number("LINES").unwrap_or(FRAME.1));
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).context("making a frame")?;
    terminal.draw(|frame| view::draw(frame, state, Theme::Plain)).context("drawing a frame")?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for line in 0..lines {
        let row: String = (0..columns).map(|column| buffer[(column, line)].symbol()).collect();
        text.push_str(row.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// Shows the server until the user ends it or the server does.
fn watch(peer: Peer, state: &mut TopState) -> anyhow::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("waiting for signals")?;
    }
    let interval_ms = Arc::new(AtomicU64::new(state.interval.as_millis() as u64));
    let (sender, samples) = mpsc::sync_channel(1);
    let asked = Arc::clone(&interval_ms);
    std::thread::Builder::new()
        .name("quire-top".into())
        .spawn(move || ask(peer, &sender, &asked))
        .context("starting a thread")?;
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let shown = show(&mut terminal, state, &samples, &ended, &interval_ms);
    ratatui::restore();
    shown
}

/// Asks the server again and again, until it fails or the view has ended.
fn ask(mut peer: Peer, sender: &SyncSender<anyhow::Result<Sample>>, interval_ms: &AtomicU64) {
    loop {
        std::thread::sleep(Duration::from_millis(interval_ms.load(Ordering::Relaxed)));
        let sample = Sample::take(&mut peer);
        let failed = sample.is_err();
        if sender.send(sample).is_err() || failed {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    samples: &Receiver<anyhow::Result<Sample>>,
    ended: &AtomicBool,
    interval_ms: &AtomicU64,
) -> anyhow::Result<()> {
    let theme = Theme::of_environment();
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| view::draw(frame, state, theme)).context("drawing")?;
        if event::poll(TURN).context("waiting for a key")? {
            // A new size needs no more than the next frame.
            if let Event::Key(key) = event::read().context("reading a key")? {
                if keys::press(state, key) == Action::Quit {
                    return Ok(());
                }
                interval_ms.store(state.interval.as_millis() as u64, Ordering::Relaxed);
            }
        }
        match samples.try_recv() {
            Ok(sample) => state.push(sample?),
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => bail!("{} is asked no more", state.named),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_text_without_codes_of_a_terminal() {
        let mut state = TopState::new("127.0.0.1:6379", Duration::from_secs(1));
        state.push(sample::tests::at(0, sample::tests::SAVING));
        let text = frame(&state).unwrap();
        assert!(text.contains("127.0.0.1:6379") && text.contains("calls/s") && !text.contains('\x1b'), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }
}
