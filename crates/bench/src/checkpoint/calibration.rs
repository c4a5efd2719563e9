//! How often each load has to update so that a fork duplicates as much as the load is named for.
//!
//! A save takes longer the more is updated meanwhile, so the rate can't be computed from a save without updates: it is found by saves.
//!
//! Relies on the share of pages that uniform updates reach: `1 - exp(-updates / pages)`.

use quire_sys::mem::PAGE_SIZE;

use super::program::{SaveMethod, SaverProcess};
use super::{ALLOCATOR_BYTES, CheckpointArgs, TOLERANCE, UpdateRate, trial};

/// Saves at most for one load.
const ATTEMPTS: usize = 4;
/// A share nearer to 1 says little about the rate.
const MOST_SHARE: f64 = 0.97;

/// Updates a second for each load. `save_s` is the time of a save by stdio without updates.
///
/// # Errors
/// When a save fails.
pub(super) fn rates(
    args: &CheckpointArgs,
    savers: &mut [SaverProcess; 2],
    save_s: f64,
    say: &impl Fn(&str),
) -> anyhow::Result<Vec<f64>> {
    let pages = args.entries() as f64 * (args.value_bytes + ALLOCATOR_BYTES) as f64 / PAGE_SIZE as f64;
    let stdio = savers.iter_mut().find(|saver| saver.method() == SaveMethod::Stdio);
    let stdio = stdio.ok_or_else(|| anyhow::anyhow!("no program saves by stdio"))?;
    let mut rates = Vec::new();
    for &load in args.loads() {
        let wanted = match load.pace {
            UpdateRate::ForkGrowth(wanted) => wanted,
            UpdateRate::UpdatesPerPage(updates) => {
                rates.push(updates * pages / save_s);
                continue;
            }
        };
        let mut rate = updates_per_page(wanted) * pages / save_s;
        for attempt in 1..=ATTEMPTS {
            say(&format!("finding the rate of {}, save {attempt} of at most {ATTEMPTS}", load.name));
            let growth = trial::save(stdio, load, 0, rate, args.data_bytes())?.growth;
            if (growth - wanted).abs() <= TOLERANCE {
                break;
            }
            rate = nearer(rate, growth, wanted);
        }
        rates.push(rate);
    }
    Ok(rates)
}

/// A first guess of the rate at which a save of `bytes` of memory, which takes `save_s` without updates, duplicates `share` of them.
pub(super) fn first_rate(share: f64, bytes: u64, save_s: f64) -> f64 {
    updates_per_page(share) * bytes as f64 / PAGE_SIZE as f64 / save_s
}

/// Updates for each page after which the share of pages is reached.
fn updates_per_page(share: f64) -> f64 {
    -(1.0 - share.clamp(0.01, MOST_SHARE)).ln()
}

/// The rate for the share that is wanted, from one that gave another share.
pub(super) fn nearer(rate: f64, share: f64, wanted: f64) -> f64 {
    rate * updates_per_page(wanted) / updates_per_page(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_wanted_is_soon_found_though_saves_take_longer_under_updates() {
        // Pages reached in a save that takes a second, and longer the more is updated.
        let share = |rate: f64| 1.0 - (-rate * (1.0 + rate / 3.0)).exp();
        for wanted in [0.25, 0.5, 0.77] {
            let mut rate = updates_per_page(wanted);
            for _ in 0..ATTEMPTS {
                rate = nearer(rate, share(rate), wanted);
            }
            assert!((share(rate) - wanted).abs() < TOLERANCE, "{wanted}: {}", share(rate));
        }
    }

    #[test]
    fn shares_at_the_ends_give_finite_rates() {
        for share in [0.0, 1.0, 2.0] {
            assert!(nearer(100.0, share, 0.5).is_finite() && nearer(100.0, share, 0.5) > 0.0);
        }
    }
}
