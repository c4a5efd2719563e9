//! `quire doctor`: what this kernel allows, which ways to a snapshot work here, and what Quire does without.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use quire_snapshot::{Mechanism, MechanismError, MechanismSupport};
use quire_sys::probe::{self, Feature, FeatureState};
use serde_json::json;

/// Prints every feature.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(program) = matches.get_one::<PathBuf>("preload") {
        return crate::doctor_preload::run(program, matches.get_flag("json"));
    }
    if let Some(file) = matches.get_one::<PathBuf>("file") {
        return crate::doctor_file::run(file, matches.get_flag("json"));
    }
    let dir = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_else(|| PathBuf::from("."));
    let features = probe::all(&dir);
    let mechanisms: Vec<_> = quire_snapshot::support().into_iter().map(finding).collect();
    if matches.get_flag("json") {
        let list: Vec<_> = features.iter().map(as_json).chain(mechanisms.iter().map(finding_as_json)).collect();
        quire_sys::outln!("{}", serde_json::Value::from(list))?;
        return Ok(ExitCode::SUCCESS);
    }
    let colors = std::io::stdout().is_terminal();
    for feature in &features {
        quire_sys::outln!("{} {:<24} {}", mark(feature.state, colors), feature.name, feature.detail)?;
        if feature.state != FeatureState::Works && !feature.advice.is_empty() {
            quire_sys::outln!("         {:<24} {}", "", feature.advice)?;
        }
    }
    quire_sys::outln!("\nSnapshots of memory (`quire measure -m all` times them):")?;
    for Finding { mechanism, state, detail, advice } in &mechanisms {
        quire_sys::outln!("{} {:<24} {detail}", mark(*state, colors), mechanism.name())?;
        if !advice.is_empty() {
            quire_sys::outln!("         {:<24} {advice}", "")?;
        }
    }
    let states = features.iter().map(|feature| feature.state).chain(mechanisms.iter().map(|finding| finding.state));
    let lacking = states.filter(|state| *state != FeatureState::Works).count();
    match lacking {
        0 => quire_sys::outln!("\nEverything that Quire uses works here. `quire serve --dir DIR` starts a server.")?,
        _ => quire_sys::outln!(
            "\nQuire works here; what is marked above works with a fallback. `quire serve --dir DIR` starts a server."
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be said of a mechanism.
struct Finding {
    mechanism: Mechanism,
    state: FeatureState,
    detail: String,
    advice: String,
}

fn finding(MechanismSupport { mechanism, result }: MechanismSupport) -> Finding {
    let (state, detail, advice) = match result {
        Ok(()) if mechanism == Mechanism::Scoot => match quire_snapshot::merges_in_background() {
            Ok(()) => (FeatureState::Works, mechanism.about().to_owned(), String::new()),
            Err(reason) => (
                FeatureState::Limited,
                format!("{}, but nothing is merged in the background: {reason}", mechanism.about()),
                "Allow userfaultfd for the kernel's faults too, or cuts copy what was written since the last one"
                    .into(),
            ),
        },
        Ok(()) => (FeatureState::Works, mechanism.about().to_owned(), String::new()),
        Err(MechanismError::Unsupported { reason, suggestion, .. }) => {
            (FeatureState::Missing, reason, suggestion.into())
        }
        Err(other) => (FeatureState::Missing, other.to_string(), String::new()),
    };
    Finding { mechanism, state, detail, advice }
}

fn finding_as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "name": format!("snapshot {}", finding.mechanism),
        "state": name(finding.state),
        "detail": finding.detail,
        "advice": finding.advice,
    })
}

fn name(state: FeatureState) -> &'static str {
    match state {
        FeatureState::Works => "works",
        FeatureState::Limited => "limited",
        FeatureState::Missing => "missing",
    }
}

fn mark(state: FeatureState, colors: bool) -> String {
    let (code, text) = match state {
        FeatureState::Works => (32, "works  "),
        FeatureState::Limited => (33, "limited"),
        FeatureState::Missing => (31, "missing"),
    };
    if colors { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn as_json(feature: &Feature) -> serde_json::Value {
    json!({
        "name": feature.name,
        "state": name(feature.state),
        "detail": feature.detail,
        "advice": feature.advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mechanism_is_missing_with_its_reason_and_advice() {
        let mechanism = Mechanism::Uffd;
        let refused = MechanismError::Unsupported { mechanism, reason: "no such call".into(), suggestion: "Use fork." };
        let found = finding(MechanismSupport { mechanism, result: Err(refused) });
        assert_eq!(
            (found.state, found.detail.as_str(), found.advice.as_str()),
            (FeatureState::Missing, "no such call", "Use fork.")
        );
        let found = finding(MechanismSupport { mechanism: Mechanism::Barrier, result: Ok(()) });
        assert_eq!((found.state, found.advice.as_str()), (FeatureState::Works, ""));
        assert_eq!(finding_as_json(&found)["name"], "snapshot barrier");
    }
}
