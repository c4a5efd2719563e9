//! `quire log info|verify|dump DIR`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;
use quire_device::DiskDirectory;
use quire_sys::output::OutputError;
use quire_wal::{BaseImage, DirectoryScan, LogError, MalformedRecord, Record, Recovery, RecoverySummary};
use serde_json::json;

/// A log that can't be read is read so often again.
const MOST_TRIES: u32 = 3;

/// Runs the subcommand; 1 if the log is damaged.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (what, matches) = matches.subcommand().context("info, verify or dump")?;
    let path: &PathBuf = matches.get_one("dir").context("a directory")?;
    let directory = DiskDirectory::new(path);
    let survey = DirectoryScan::with_damage(&directory, None)?;
    match what {
        "info" => {
            let text = if matches.get_flag("json") { as_json(&survey) } else { as_text(&survey) };
            quire_sys::out!("{text}")?;
            Ok(ExitCode::SUCCESS)
        }
        "verify" => verify(&directory),
        _ => dump(&directory, matches.get_one("from").copied().unwrap_or(0)),
    }
}

fn as_text(survey: &DirectoryScan) -> String {
    let mut text =
        format!("{:<22} {:>14} {:>12} {:>10} {:<8} dataset\n", "segment", "first record", "bytes", "image", "state");
    for segment in &survey.segments {
        let meta = segment.meta;
        let state = if meta.in_force { "in force" } else { "pending" };
        text += &format!(
            "{:<22} {:>14} {:>12} {:>10} {state:<8} {:016x}\n",
            segment.name,
            meta.first_sequence,
            segment.bytes(),
            meta.base_epoch,
            meta.dataset
        );
    }
    for name in survey.spares.iter().chain(&survey.blank_spares) {
        text += &format!("{name:<22} {:>14}\n", "spare");
    }
    for damaged in &survey.damaged {
        text += &format!("{:<22} {:>14}\n", damaged.name, "damaged");
    }
    text
}

fn as_json(survey: &DirectoryScan) -> String {
    let segments = survey.segments.iter().map(|segment| {
        let meta = segment.meta;
        json!({
            "file": segment.name,
            "index": meta.index,
            "first_record": meta.first_sequence,
            "bytes": segment.bytes(),
            "base_image": meta.base_epoch,
            "in_force": meta.in_force,
            "dataset": format!("{:016x}", meta.dataset),
            "created_unix_ms": meta.created_unix_ms,
        })
    });
    let spares: Vec<_> = survey.spares.iter().chain(&survey.blank_spares).collect();
    let damaged: Vec<_> = survey.damaged.iter().map(|damaged| &damaged.name).collect();
    let object = json!({ "segments": segments.collect::<Vec<_>>(), "spares": spares, "damaged": damaged });
    format!("{object}\n")
}

/// Reads every record that can be read; returns what was found, damage included.
fn read(
    directory: &DiskDirectory,
    mut each: impl FnMut(&Record<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Option<RecoverySummary>> {
    let survey = DirectoryScan::with_damage(directory, None)?;
    let base = match BaseImage::of_all(&survey) {
        Some(base) => base,
        None if survey.damaged.is_empty() => return Ok(None),
        // Nothing says what the image holds: all records count.
        None => BaseImage { dataset: 0, epoch: 0, position: 0 },
    };
    let mut recovery = Recovery::of_damaged(directory, base)?;
    while let Some(record) = recovery.next_record()? {
        each(&record)?;
    }
    Ok(Some(recovery.end()))
}

fn malformed(record: &Record<'_>, error: MalformedRecord) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("record {}: {error}", record.sequence))
}

fn verify(directory: &DiskDirectory) -> anyhow::Result<ExitCode> {
    let mut read = read_all(directory);
    for _ in 0..MOST_TRIES {
        // A server that writes meanwhile may have taken segments away, or been ahead of the reader.
        let again = match &read {
            Ok(Some((found, _))) => !found.damage.is_empty(),
            Ok(None) => false,
            Err(error) => error.is::<LogError>(),
        };
        if !again {
            break;
        }
        read = read_all(directory);
    }
    match read {
        Ok(Some((found, commands))) => {
            for damage in &found.damage {
                quire_sys::errln!("damaged: {damage}");
            }
            let (records, segments) = (found.records, found.segments);
            let (ok, how) = if found.damage.is_empty() { ("ok", "all as written") } else { ("readable", "as written") };
            quire_sys::outln!("{ok}: {records} records with {commands} commands in {segments} segments, {how}")?;
            if let Some(torn) = found.torn {
                let (sequence, file, offset) = (torn.sequence, torn.file, torn.offset);
                quire_sys::outln!(
                    "the last record, {sequence} in {file} at byte {offset}, was not written to its end"
                )?;
            }
            Ok(if found.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Ok(None) => {
            quire_sys::outln!("there is no log")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.is::<LogError>() => {
            quire_sys::errln!("damaged: {error}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

/// Reads every word of every record; returns what was found, and the number of commands.
fn read_all(directory: &DiskDirectory) -> anyhow::Result<Option<(RecoverySummary, u64)>> {
    let (mut commands, mut words) = (0, Vec::new());
    let found = read(directory, |record| {
        let mut each = record.commands();
        while each.next_into(&mut words).map_err(|error| malformed(record, error))?.is_some() {
            commands += 1;
        }
        Ok(())
    })?;
    Ok(found.map(|found| (found, commands)))
}

fn dump(directory: &DiskDirectory, from: u64) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut words = Vec::new();
    let found = read(directory, |record| {
        if record.sequence < from {
            return Ok(());
        }
        let now_ms = record.now_ms().map_err(|error| malformed(record, error))?;
        let mut commands = record.commands();
        while let Some(db) = commands.next_into(&mut words).map_err(|error| malformed(record, error))? {
            let mut line = format!("{} {now_ms} db{db}", record.sequence);
            for word in &words {
                line += &format!(" \"{}\"", record.body()[word.clone()].escape_ascii());
            }
            writeln!(out, "{line}").map_err(OutputError::from)?;
        }
        Ok(())
    })?;
    out.flush().map_err(OutputError::from)?;
    match found.and_then(|found| found.damage.into_iter().next()) {
        Some(damage) => Err(damage.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}
