//! `quire critical`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgMatches;
use quire_fuse::CriticalityHint;
use quire_sys::xattr;

use crate::mount::stats;

const ATTRIBUTE: &str = "user.quire.critical";

/// Gives a hint, takes it back, or lists those in force.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let words: Vec<&String> = matches.get_many("words").into_iter().flatten().collect();
    let (forget, comm) = (matches.get_flag("forget"), matches.get_one::<String>("comm"));
    let (hint, path) = match (comm, words.as_slice()) {
        (Some(comm), [path]) => (
            Some(if forget { CriticalityHint::ForgetName(comm.clone()) } else { CriticalityHint::Name(comm.clone()) }),
            path,
        ),
        (None, [process, path]) => {
            let process: u32 = process.parse().with_context(|| format!("{process:?} is no process number"))?;
            if !forget && quire_sys::task::identity(process).is_none() {
                bail!("there is no process {process}");
            }
            (
                Some(if forget { CriticalityHint::ForgetProcess(process) } else { CriticalityHint::Process(process) }),
                path,
            )
        }
        (None, [path]) if !forget => (None, path),
        _ => bail!("say who and where: quire critical PID MOUNTPOINT, or quire critical --comm PATTERN MOUNTPOINT"),
    };
    let path = Path::new(path);
    // On another directory the hint would become a plain attribute, and no mount would hear it.
    stats::of(path)?;
    let asked = match hint {
        Some(hint) => xattr::set_at(path, ATTRIBUTE, hint.to_string().as_bytes()).map(|()| None),
        None => xattr::get_at(path, ATTRIBUTE).map(Some),
    };
    let told = asked.with_context(|| format!("telling the mount at {}", path.display()))?;
    if let Some(hints) = told {
        quire_sys::outln!("{}", String::from_utf8_lossy(&hints))?;
    }
    Ok(ExitCode::SUCCESS)
}
