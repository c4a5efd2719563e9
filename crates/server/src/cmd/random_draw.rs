//! Replies of elements that are drawn by chance: SRANDMEMBER, HRANDFIELD and ZRANDMEMBER with a count.
//!
//! Different elements are as many as there are. Of elements that may come again any number can be asked for, so they are drawn in pieces,
//! and the reply is bounded.

use crate::ctx::{CmdError, Ctx};

/// Bytes of a reply from which on no more elements that may come again are drawn.
const MOST_BYTES: usize = 1 << 28;
/// Elements that are drawn at once if they may come again.
const DRAWN_AT_ONCE: usize = 1000;

/// What is drawn at once.
#[derive(Clone, Copy, Debug)]
pub struct RandomDraw {
    /// So many elements.
    pub wanted: usize,
    /// No element twice.
    pub distinct: bool,
    /// The draw fails if the reply gets longer.
    pub limit_bytes: usize,
}

/// Writes the array of `count` different elements, or of `-count` that may come again. `write` writes the elements of one draw, and
/// returns how many elements of the reply that were: none if there is no such key.
pub fn reply_with(
    ctx: &mut Ctx<'_>,
    count: i64,
    mut write: impl FnMut(&mut Ctx<'_>, RandomDraw) -> Result<usize, CmdError>,
) -> Result<(), CmdError> {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let limit_bytes = ctx.reply.len() + MOST_BYTES;
    let mark = ctx.reply.begin_array();
    let mut shown = Ok(0);
    if count >= 0 {
        shown = write(ctx, RandomDraw { wanted, distinct: true, limit_bytes: usize::MAX });
    } else {
        for done in (0..wanted).step_by(DRAWN_AT_ONCE) {
            let wanted = (wanted - done).min(DRAWN_AT_ONCE);
            let part = write(ctx, RandomDraw { wanted, distinct: false, limit_bytes });
            shown = shown.and_then(|before| Ok(before + part?));
            // A key that is not there, or proves damaged, will be so next time too.
            if !matches!(shown, Ok(1..)) {
                break;
            }
        }
    }
    match shown {
        Ok(elements) => ctx.reply.end_array(mark, elements),
        Err(_) => ctx.reply.abandon_array(mark),
    }
    shown.map(drop)
}
