//! Puts a mechanism on a range, says which ones work here, and picks the best.
//!
//! Relies on each mechanism's own probe.

use std::sync::Arc;

use quire_sys::huge_pages::HugePages;

use crate::barrier;
use crate::fork;
use crate::mechanism::{Mechanism, OriginOptions};
use crate::memcpy;
use crate::mmapcopy;
use crate::origin::{MechanismError, Origin, PreimageConsumer};
use crate::scoot;
use crate::span::PageRange;
use crate::uffd;

/// Puts `mechanism` on `span`.
///
/// # Errors
/// [`MechanismError`] says what the kernel or the container forbids, and what to do about it.
///
/// ```
/// use quire_snapshot::{Mechanism, OriginAccess, OriginOptions, PageRange, attach};
///
/// let origin = attach(Mechanism::Memcpy, PageRange::allocate(1 << 20)?, &OriginOptions::default())?;
/// let memory = OriginAccess::new(origin.into());
/// memory.store_u64(8, 1);
/// let view = memory.origin().cut()?;
/// memory.store_u64(8, 2);
/// let mut word = [0; 8];
/// view.read(8, &mut word)?;
/// assert_eq!((u64::from_ne_bytes(word), memory.load_u64(8)), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attach(
    mechanism: Mechanism,
    span: PageRange,
    options: &OriginOptions,
) -> Result<Box<dyn Origin>, MechanismError> {
    if !options.is_sound() {
        return Err(MechanismError::Region { region_bytes: options.region_bytes });
    }
    match mechanism {
        Mechanism::Scoot => Ok(Box::new(scoot::ScootOrigin::new(span, options)?)),
        Mechanism::Barrier => Ok(Box::new(barrier::attach(span, options, None)?)),
        Mechanism::Uffd => Ok(Box::new(uffd::attach(span, options, None)?)),
        Mechanism::MmapCopy => Ok(Box::new(mmapcopy::MmapCopyOrigin::new(span)?)),
        Mechanism::Fork => Ok(Box::new(fork::ForkOrigin::new(span)?)),
        Mechanism::Memcpy => Ok(Box::new(memcpy::MemcpyOrigin::new(span)?)),
    }
}

/// As [`attach`], with pre-images handed to `consumer` instead of being stored. Only [`Mechanism::Barrier`] and
/// [`Mechanism::Uffd`] see pre-images.
///
/// # Errors
/// As [`attach`].
///
/// ```
/// use quire_snapshot::{Mechanism, OriginAccess, OriginOptions, PageRange, PreimageConsumer, attach_consumer};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// struct Counted(AtomicUsize);
/// // SAFETY: it counts, and touches nothing else.
/// unsafe impl PreimageConsumer for Counted {
///     fn preimage(&self, _offset: usize, _bytes: *const u8, len: usize) {
///         self.0.fetch_add(len, Ordering::Relaxed);
///     }
/// }
///
/// let counted = Arc::new(Counted(AtomicUsize::new(0)));
/// let range = PageRange::allocate(1 << 20)?;
/// let origin = attach_consumer(Mechanism::Barrier, range, &OriginOptions::default(), counted.clone())?;
/// let memory = OriginAccess::new(origin.into());
/// let _view = memory.origin().cut()?;
/// memory.store_u64(0, 1);
/// assert!(counted.0.load(Ordering::Relaxed) >= 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attach_consumer(
    mechanism: Mechanism,
    span: PageRange,
    options: &OriginOptions,
    consumer: Arc<dyn PreimageConsumer>,
) -> Result<Box<dyn Origin>, MechanismError> {
    if !options.is_sound() {
        return Err(MechanismError::Region { region_bytes: options.region_bytes });
    }
    match mechanism {
        Mechanism::Barrier => Ok(Box::new(barrier::attach(span, options, Some(consumer))?)),
        Mechanism::Uffd => Ok(Box::new(uffd::attach(span, options, Some(consumer))?)),
        other => Err(MechanismError::Unsupported {
            mechanism: other,
            reason: "the kernel makes its copies, so there are no pre-images to hand over".into(),
            suggestion: "Use barrier or uffd.",
        }),
    }
}

/// What the user of a range can do, and what the user needs of its views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Every write will be announced by [`Origin::prepare_write`].
    pub announces: bool,
    /// Views must be ordinary memory ([`crate::View::as_ptr`]).
    pub addressable: bool,
}

/// What [`Mechanism::best`] picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MechanismChoice {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why this one, and why not those that would have been better.
    pub why: String,
}

/// Up to here a plain copy is over sooner than any trick has begun.
const SMALL_BYTES: usize = 64 << 10;

/// What a range consists of, as far as the choice depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Huge pages, or scoot would have to fold small ones at each cut.
    Huge,
    Small,
}

impl Pages {
    fn of(span: &PageRange) -> Self {
        let start = span.base() as usize;
        let is_huge = HugePages::of(&(start..start + span.len())).is_some_and(|pages| pages.prevail());
        if is_huge || scoot::merges_in_background().is_err() { Self::Huge } else { Self::Small }
    }
}

/// The mechanisms that do what is wanted, the best first, each with its reason.
fn ranked(len: usize, wants: Requirements, pages: Pages) -> Vec<(Mechanism, &'static str)> {
    let mut ranked = Vec::new();
    if len <= SMALL_BYTES {
        ranked.push((Mechanism::Memcpy, "the range is so small that a plain copy is the fastest"));
    }
    if wants.announces && !wants.addressable {
        ranked.push((Mechanism::Barrier, "writes are announced, so a cut takes constant time and nothing faults"));
    }
    let uffd = |why: &'static str| (!wants.addressable).then_some((Mechanism::Uffd, why));
    let scoot = (Mechanism::Scoot, "a cut is one remap, and views are ordinary memory");
    match pages {
        Pages::Huge => {
            ranked.extend(uffd("a cut protects whole huge pages, and first writes copy whole regions"));
            ranked.push(scoot);
        }
        // On 2 GiB of small pages a cut by uffd takes 52 ms and one by scoot 0.6.
        Pages::Small => {
            ranked.push((
                Mechanism::Scoot,
                "the range lies on small pages: a cut is one remap, where uffd protects each page",
            ));
            ranked.extend(uffd("it works on small pages too"));
        }
    }
    if !wants.addressable {
        ranked.push((Mechanism::Fork, "it works everywhere"));
    }
    ranked.push((Mechanism::MmapCopy, "views share their memory"));
    ranked.push((Mechanism::Memcpy, "nothing else works here"));
    ranked
}

impl Mechanism {
    /// Picks the mechanism for `span` that stalls writers least among those that work here and do what is wanted.
    ///
    /// ```
    /// use quire_snapshot::{Mechanism, OriginOptions, PageRange, Requirements, attach};
    ///
    /// let range = PageRange::allocate(8 << 20)?;
    /// let choice = Mechanism::best(&range, Requirements { announces: true, ..Requirements::default() });
    /// println!("{}: {}", choice.mechanism, choice.why);
    /// let origin = attach(choice.mechanism, range, &OriginOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn best(span: &PageRange, wants: Requirements) -> MechanismChoice {
        let mut why_not = String::new();
        for (mechanism, reason) in ranked(span.len(), wants, Pages::of(span)) {
            match probe(mechanism) {
                Ok(()) => return MechanismChoice { mechanism, why: format!("{reason}{why_not}") },
                Err(refusal) => why_not.push_str(&format!("; {refusal}")),
            }
        }
        MechanismChoice { mechanism: Mechanism::Memcpy, why: format!("nothing else works here{why_not}") }
    }
}

/// Whether a mechanism works here.
#[derive(Debug)]
pub struct MechanismSupport {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// `Ok`, or what forbids it.
    pub result: Result<(), MechanismError>,
}

/// Tries every mechanism on a little memory of its own.
///
/// ```
/// for support in quire_snapshot::support() {
///     match support.result {
///         Ok(()) => println!("{}: works", support.mechanism),
///         Err(why) => println!("{}: {why}", support.mechanism),
///     }
/// }
/// ```
pub fn support() -> Vec<MechanismSupport> {
    Mechanism::ALL.into_iter().map(|mechanism| MechanismSupport { mechanism, result: probe(mechanism) }).collect()
}

/// Snapshots two huge pages of its own and looks whether the view is one.
///
/// # Errors
/// [`MechanismError`]: what forbids `mechanism` here.
///
/// ```
/// use quire_snapshot::{Mechanism, probe};
///
/// assert!(probe(Mechanism::Barrier).is_ok());
/// ```
pub fn probe(mechanism: Mechanism) -> Result<(), MechanismError> {
    let span = PageRange::allocate(4 << 20)?;
    let origin = attach(mechanism, span, &OriginOptions { background: false, ..OriginOptions::default() })?;
    let write = |value: u8| {
        origin.prepare_write(0..1);
        // SAFETY: the first byte of a range that no other code knows.
        unsafe { origin.base().write_volatile(value) };
    };
    write(1);
    let view = origin.cut()?;
    write(2);
    let mut byte = [0];
    match view.read(0, &mut byte) {
        Ok(()) if byte == [1] => Ok(()),
        Ok(()) => Err(MechanismError::Unsupported {
            mechanism,
            reason: "a view showed a later write".into(),
            suggestion: "Report this kernel; use barrier or memcpy.",
        }),
        Err(error) => Err(MechanismError::Unsupported {
            mechanism,
            reason: error.to_string(),
            suggestion: "Use barrier or memcpy.",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_range_is_copied_and_announced_writes_take_the_barrier() {
        let small = PageRange::allocate(4096).unwrap();
        let large = PageRange::allocate(8 << 20).unwrap();
        assert_eq!(Mechanism::best(&small, Requirements::default()).mechanism, Mechanism::Memcpy);
        let announces = Requirements { announces: true, addressable: false };
        assert_eq!(Mechanism::best(&large, announces).mechanism, Mechanism::Barrier);
        let addressable = Requirements { announces: true, addressable: true };
        let choice = Mechanism::best(&large, addressable);
        assert!([Mechanism::Scoot, Mechanism::MmapCopy].contains(&choice.mechanism), "{choice:?}");
        assert!(!choice.why.is_empty());
    }

    #[test]
    fn a_range_on_small_pages_is_scooted_where_that_folds_in_the_background() {
        let first = |pages: Pages| ranked(8 << 20, Requirements::default(), pages)[0].0;
        assert_eq!((first(Pages::Huge), first(Pages::Small)), (Mechanism::Uffd, Mechanism::Scoot));
        let small = PageRange::allocate(8 << 20).unwrap();
        quire_sys::map::advise(small.base(), small.len(), quire_sys::map::MapAdvice::NoHuge).unwrap();
        // SAFETY: the first byte of a range that only this test knows.
        unsafe { small.base().write_volatile(1) };
        let choice = Mechanism::best(&small, Requirements::default());
        if scoot::merges_in_background().is_ok() {
            assert_eq!(choice.mechanism, Mechanism::Scoot, "{choice:?}");
        }
    }

    #[test]
    fn what_needs_no_kernel_feature_works_everywhere() {
        let works = |wanted| support().iter().any(|support| support.mechanism == wanted && support.result.is_ok());
        assert!(works(Mechanism::Barrier) && works(Mechanism::Memcpy));
    }

    #[test]
    fn a_region_size_that_is_none_is_refused() {
        let options = OriginOptions { region_bytes: 5000, ..OriginOptions::default() };
        let error = attach(Mechanism::Memcpy, PageRange::allocate(4096).unwrap(), &options).unwrap_err();
        assert!(error.to_string().contains("power of two"), "{error}");
    }
}
