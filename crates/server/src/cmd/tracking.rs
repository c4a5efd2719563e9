//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: client-side caching. Relies on `tracking` for what clients have asked for.

use crate::client::CloseState;
use crate::ctx::{Args, CmdError, Ctx};
use crate::tracking::{CachingChoice, ClientTracking, TrackingMode, overlap_within};

const REDIRECTED_TWICE: CmdError = CmdError::fixed("ERR A client can only redirect to a single other client");
const NO_SUCH_CLIENT: CmdError = CmdError::fixed("ERR The client ID you want redirect to does not exist");
const PREFIX_NEEDS_BCAST: CmdError = CmdError::fixed("ERR PREFIX option requires BCAST mode to be enabled");
const OTHER_MODE: CmdError = CmdError::fixed(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a \
     different mode.",
);
const CHOICE_WITH_BCAST: CmdError = CmdError::fixed("ERR OPTIN and OPTOUT are not compatible with BCAST");
const BOTH_CHOICES: CmdError = CmdError::fixed("ERR You can't specify both OPTIN mode and OPTOUT mode");
const OTHER_CHOICE: CmdError = CmdError::fixed(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a \
     different mode.",
);
const CACHING_WITHOUT_TRACKING: CmdError = CmdError::fixed(
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
);
const YES_WITHOUT_OPTIN: CmdError =
    CmdError::fixed("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
const NO_WITHOUT_OPTOUT: CmdError =
    CmdError::fixed("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct Options<'a> {
    redirect: u64,
    broadcasts: bool,
    opts_in: bool,
    opts_out: bool,
    no_loop: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(ctx: &Ctx<'_>, args: Args<'a>) -> Result<Self, CmdError> {
        let mut options = Self::default();
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "REDIRECT") && has_value {
                at += 1;
                if options.redirect != 0 {
                    return Err(REDIRECTED_TWICE);
                }
                let id = u64::try_from(args.int(at)?).ok();
                let is_there = |id: &u64| ctx.server.clients.slot_of(*id).is_some();
                options.redirect = id.filter(is_there).ok_or(NO_SUCH_CLIENT)?;
            } else if args.is(at, "BCAST") {
                options.broadcasts = true;
            } else if args.is(at, "OPTIN") {
                options.opts_in = true;
            } else if args.is(at, "OPTOUT") {
                options.opts_out = true;
            } else if args.is(at, "NOLOOP") {
                options.no_loop = true;
            } else if args.is(at, "PREFIX") && has_value {
                at += 1;
                options.prefixes.push(args.at(at));
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    /// What is asked for, if it goes together and with what the client has asked for before.
    fn mode(&self, before: Option<&ClientTracking>) -> Result<TrackingMode, CmdError> {
        if !self.broadcasts && !self.prefixes.is_empty() {
            return Err(PREFIX_NEEDS_BCAST);
        }
        if before.is_some_and(|before| before.mode.broadcasts != self.broadcasts) {
            return Err(OTHER_MODE);
        }
        if self.broadcasts && (self.opts_in || self.opts_out) {
            return Err(CHOICE_WITH_BCAST);
        }
        let choice = match (self.opts_in, self.opts_out) {
            (true, true) => return Err(BOTH_CHOICES),
            (true, false) => CachingChoice::OptIn,
            (false, true) => CachingChoice::OptOut,
            (false, false) => CachingChoice::All,
        };
        let choice_before = before.map_or(CachingChoice::All, |before| before.mode.choice);
        if choice != choice_before && choice != CachingChoice::All && choice_before != CachingChoice::All {
            return Err(OTHER_CHOICE);
        }
        if self.broadcasts {
            self.check_prefixes(before)?;
        }
        Ok(TrackingMode { redirect: self.redirect, broadcasts: self.broadcasts, choice, no_loop: self.no_loop })
    }

    /// A client would be told twice of a key of which it has two prefixes.
    fn check_prefixes(&self, before: Option<&ClientTracking>) -> Result<(), CmdError> {
        let of_before = before.and_then(|before| {
            let mut all = self.prefixes.iter().enumerate();
            all.find_map(|(at, prefix)| Some((at, before.overlapping(prefix)?)))
        });
        let (prefix, other, which) = match (of_before, overlap_within(&self.prefixes)) {
            (None, None) => return Ok(()),
            (Some((at, other)), None) => (self.prefixes[at], other, "an existing prefix"),
            (Some((at, other)), Some((first, _))) if at <= first => (self.prefixes[at], other, "an existing prefix"),
            (_, Some((first, second))) => (self.prefixes[first], self.prefixes[second], "another provided prefix"),
        };
        let text = |prefix: &[u8]| String::from_utf8_lossy(prefix).replace(['\r', '\n'], " ");
        Err(CmdError::owned(format!(
            "ERR Prefix '{}' overlaps with {which} '{}'. Prefixes for a single client must not overlap.",
            text(prefix),
            text(other)
        )))
    }
}

/// CLIENT TRACKING ON | OFF [REDIRECT client] [PREFIX prefix …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
pub fn tracking(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let id = ctx.client.id;
    let options = Options::parse(ctx, ctx.args)?;
    if ctx.args.is(2, "ON") {
        let mode = options.mode(ctx.server.clients.tracking.of(id))?;
        ctx.server.clients.tracking.begin(id, mode, &options.prefixes);
        let held_bytes = ctx.server.clients.tracking.memory_bytes() + ctx.server.clients.memory_bytes();
        if !options.prefixes.is_empty() && held_bytes as u64 > ctx.server.client_memory_limit_bytes() {
            // The prefixes of one request can take many times its size.
            tracing::warn!(
                client = id,
                held_bytes,
                "closing a client whose prefixes take more than maxmemory-clients allows"
            );
            ctx.client.closing = CloseState::Now;
        }
    } else if ctx.args.is(2, "OFF") {
        ctx.server.clients.tracking.end(id);
    } else {
        return Err(CmdError::SYNTAX);
    }
    ctx.store.set_noting_key_events(ctx.server.wants_key_events());
    ctx.reply.ok();
    Ok(())
}

/// CLIENT CACHING YES | NO
pub fn caching(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let of = ctx.server.clients.tracking.of_mut(ctx.client.id).ok_or(CACHING_WITHOUT_TRACKING)?;
    if ctx.args.is(2, "YES") {
        if of.mode.choice != CachingChoice::OptIn {
            return Err(YES_WITHOUT_OPTIN);
        }
    } else if ctx.args.is(2, "NO") {
        if of.mode.choice != CachingChoice::OptOut {
            return Err(NO_WITHOUT_OPTOUT);
        }
    } else {
        return Err(CmdError::SYNTAX);
    }
    of.caching_given = true;
    ctx.reply.ok();
    Ok(())
}

/// CLIENT GETREDIR
pub fn getredir(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let redirect = redirect_of(ctx.server.clients.tracking.of(ctx.client.id));
    ctx.reply.int(redirect);
    Ok(())
}

fn redirect_of(of: Option<&ClientTracking>) -> i64 {
    of.map_or(-1, |of| of.mode.redirect.cast_signed())
}

/// CLIENT TRACKINGINFO
pub fn trackinginfo(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let of = ctx.server.clients.tracking.of(ctx.client.id);
    let flags = flags_of(of);
    let reply = &mut *ctx.reply;
    reply.map(3);
    reply.bulk_str("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk_str(flag));
    reply.bulk_str("redirect");
    reply.int(redirect_of(of));
    reply.bulk_str("prefixes");
    let prefixes: Vec<&[u8]> = of.map(|of| of.prefixes().collect()).unwrap_or_default();
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

fn flags_of(of: Option<&ClientTracking>) -> Vec<&'static str> {
    let Some(of) = of else { return vec!["off"] };
    let (opts_in, opts_out) = (of.mode.choice == CachingChoice::OptIn, of.mode.choice == CachingChoice::OptOut);
    let all = [
        (true, "on"),
        (of.mode.broadcasts, "bcast"),
        (opts_in, "optin"),
        (opts_in && of.caching_given, "caching-yes"),
        (opts_out, "optout"),
        (opts_out && of.caching_given, "caching-no"),
        (of.mode.no_loop, "noloop"),
        (of.is_broken, "broken_redirect"),
    ];
    all.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
}
