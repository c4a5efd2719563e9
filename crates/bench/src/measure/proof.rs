//! One cut, step by step, with the proof of the slides: origin and duplicate share a frame until the origin is written.
//!
//! Relies on `/proc/PID/pagemap`, which shows frame numbers to those with CAP_SYS_ADMIN only; without it the steps that can
//! be told otherwise are told.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context, ensure};
use quire_snapshot::{Mechanism, PAGE_SIZE, View};
use quire_sys::map::{MapAdvice, advise};
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_units::format_duration;

use super::args::{MeasureArgs, StopPoint};
use super::candidate::Candidate;
use super::stall::touch;

/// What the origin's first byte becomes.
const WRITTEN: u8 = 0x55;

/// Where a view has its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstPageLocation {
    /// At another address of this process.
    Here(usize),
    /// At the same address of a child.
    Child(u32, usize),
    /// At no address: pages that are written are kept aside.
    Aside,
}

/// Makes the cut and tells every step.
///
/// # Errors
/// When the mechanism refuses, or the view is none.
pub fn tell(candidate: &Candidate, args: &MeasureArgs) -> anyhow::Result<String> {
    let mut text = String::new();
    let (origin, mechanism) = (candidate.origin(), candidate.origin().mechanism());
    let base = origin.base() as usize;
    let pages = origin.len() / PAGE_SIZE;
    let populated = if args.populate { "populated" } else { "untouched" };
    let _ = writeln!(text, "My PID: {}", std::process::id());
    let _ = writeln!(text, "Mechanism: {mechanism} ({})", mechanism.about());
    let _ = writeln!(text, "Working on {} MiB ({pages} pages of {PAGE_SIZE} B, {populated})", args.mib);
    let _ = writeln!(text, "Allocated {pages} pages at {base:#x}");
    candidate.access().store_u64(0, 0);
    let before = children();
    let start = Instant::now();
    let view = origin.cut().context("cutting")?;
    if args.until == StopPoint::Snap {
        touch(&*view)?;
    }
    let took = start.elapsed();
    let _ = writeln!(text, "{}ns ({}) {}", took.as_nanos(), format_duration(took), args.until.words());
    let place = match (view.as_ptr(), children().difference(&before).next()) {
        (Some(address), _) => FirstPageLocation::Here(address as usize),
        (None, Some(&child)) if mechanism == Mechanism::Fork => FirstPageLocation::Child(child, base),
        _ => FirstPageLocation::Aside,
    };
    tell_places(&mut text, base, place);
    let shared = tell_frames(&mut text, base, place);
    let _ = writeln!(text, "Testing the snapshot by writing {WRITTEN:#x} to the origin");
    candidate.access().store_u64(0, u64::from(WRITTEN));
    let (now, then) = (candidate.access().load_u64(0).to_ne_bytes()[0], first_byte(&*view)?);
    let _ = writeln!(text, "Origin first page: {now:#x}\nCopy first page: {then:#x}");
    let apart = tell_frames(&mut text, base, place);
    ensure!((now, then) == (WRITTEN, 0), "the write to the origin shows in the snapshot, or not in the origin");
    let _ = writeln!(text, "{}", verdict(mechanism, shared, apart));
    Ok(text)
}

fn first_byte(view: &dyn View) -> anyhow::Result<u8> {
    let mut byte = [0];
    view.read(0, &mut byte).context("reading the view")?;
    Ok(byte[0])
}

/// Processes that this one has started from its first thread.
fn children() -> BTreeSet<u32> {
    let own = std::process::id();
    let text = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn tell_places(text: &mut String, base: usize, place: FirstPageLocation) {
    let _ = writeln!(text, "Origin virtual address: {base:#x}");
    let _ = match place {
        FirstPageLocation::Here(address) => writeln!(text, "Duplicate virtual address: {address:#x}"),
        FirstPageLocation::Child(child, address) => {
            writeln!(text, "Duplicate virtual address: {address:#x} in process {child}")
        }
        FirstPageLocation::Aside => {
            writeln!(text, "Duplicate virtual address: none, pages are kept aside when they are written")
        }
    };
}

/// Writes the frames of both first pages; whether they are the same, where both are known.
fn tell_frames(text: &mut String, base: usize, place: FirstPageLocation) -> Option<bool> {
    let own = frame(None, base);
    let _ = writeln!(text, "Origin:\n    {base:#014x} -> {}", told(own));
    let (address, copy) = match place {
        FirstPageLocation::Here(address) => (address, frame(None, address)),
        FirstPageLocation::Child(child, address) => (address, frame(Some(child), address)),
        FirstPageLocation::Aside => return None,
    };
    let _ = writeln!(text, "Duplicate:\n    {address:#014x} -> {}", told(copy));
    Some(own?.frame? == copy?.frame?)
}

/// The page-table entry of the page at `address`, filled in first where that is up to us.
fn frame(process: Option<u32>, address: usize) -> Option<PagemapEntry> {
    if process.is_none() {
        // Refused, the page is shown as it is: absent.
        let _ = advise(address as *mut u8, PAGE_SIZE, MapAdvice::PopulateRead);
    }
    Pagemap::open(process).ok()?.read(address, 1).ok()?.first().copied()
}

fn told(entry: Option<PagemapEntry>) -> String {
    match entry {
        None => "not told: no page map".into(),
        Some(PagemapEntry { present: false, .. }) => "no frame".into(),
        Some(PagemapEntry { frame: Some(number), .. }) => format!("{:#018x}", number * PAGE_SIZE as u64),
        Some(PagemapEntry { exclusive, .. }) => {
            let mapped = if exclusive { "mapped here only" } else { "mapped elsewhere, too" };
            format!("a frame, {mapped} (its number is told with CAP_SYS_ADMIN only)")
        }
    }
}

fn verdict(mechanism: Mechanism, shared: Option<bool>, apart: Option<bool>) -> &'static str {
    match (shared, apart) {
        (Some(true), Some(false)) => "Proven: one frame before the write, two after it.",
        (Some(false), _) if mechanism == Mechanism::Memcpy => "Proven: a copy of its own from the start.",
        (Some(false), _) => "Proven by content; the frames were apart before the write.",
        (Some(true), _) => "Proven by content; the frames were still shared when looked at.",
        (None, _) if mechanism.needs_announcement() || mechanism == Mechanism::Uffd => {
            "Proven by content: the origin kept its frame, its old page was put aside before the write."
        }
        (None, _) => "Proven by content; frame numbers are not told here.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::args::MechanismSelection;
    use crate::measure::candidate::PageKind;
    use quire_snapshot::OriginOptions;

    fn args() -> MeasureArgs {
        MeasureArgs {
            which: MechanismSelection::All,
            mib: 4,
            populate: true,
            single_shot: true,
            until: StopPoint::Snap,
            verbose: false,
            thp: false,
            coverage: false,
            flat_out: false,
            repeat: 1,
            json: None,
        }
    }

    #[test]
    fn the_old_content_is_shown_beside_the_new_one() {
        for mechanism in [Mechanism::Memcpy, Mechanism::Barrier] {
            let candidate =
                Candidate::new(mechanism, 4 << 20, PageKind::Small, true, &OriginOptions::default()).unwrap();
            let text = tell(&candidate, &args()).unwrap();
            assert!(text.contains("Origin first page: 0x55\nCopy first page: 0x0\n"), "{text}");
            assert!(text.lines().last().unwrap().starts_with("Proven"), "{text}");
        }
    }

    #[test]
    fn frames_are_told_as_far_as_they_may_be() {
        let entry = PagemapEntry { present: true, frame: Some(0x1242a3), ..PagemapEntry::default() };
        assert_eq!(told(Some(entry)), "0x00000001242a3000");
        assert_eq!(told(Some(PagemapEntry::default())), "no frame");
        let hidden = PagemapEntry { present: true, exclusive: true, ..PagemapEntry::default() };
        assert!(told(Some(hidden)).contains("CAP_SYS_ADMIN"));
    }
}
