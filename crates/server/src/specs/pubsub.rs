//! Specifications of the publish/subscribe commands.

use super::PATTERN_LENGTH;
use crate::cmd::introspect::help;
use crate::cmd::pubsub;
use crate::table::*;

const LISTENS: Flags = PUBSUB | NOSCRIPT | LOADING | STALE | WHILE_SUBSCRIBED;
const SENDS: Flags = PUBSUB | LOADING | STALE | FAST | COUNTS_AS_WRITE;
const ASKS: Flags = PUBSUB | LOADING | STALE;
const O_CHANNELS: &str = "O(N) where N is the number of channels to subscribe to.";
const O_PATTERNS: &str = "O(N) where N is the number of patterns to subscribe to.";
const O_UNSUBSCRIBED: &str = "O(N) where N is the number of channels to unsubscribe.";
const CHANNEL: Arg = Arg::string("channel");
const SHARDCHANNEL: Arg = Arg::string("shardchannel");
const SHARD: &[KeySpec] = &[KeySpec::one(1, NOT_KEY)];
const SHARDS: &[KeySpec] = &[KeySpec::range(1, -1, 1, NOT_KEY)];

const fn pubsub(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::PubSub, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    pubsub(CommandSpec::new("psubscribe", -2, pubsub::psubscribe), "2.0.0", O_PATTERNS)
        .flags(LISTENS)
        .channels(ChannelWords::Patterns)
        .differs(PATTERN_LENGTH)
        .summary("Listens to the channels whose names match patterns.")
        .args(&[Arg::block("pattern", &[Arg::pattern("pattern")]).multiple()]),
    pubsub(CommandSpec::new("publish", 3, pubsub::publish), "2.0.0", "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).")
        .flags(SENDS)
        .channels(ChannelWords::First)
        .summary("Sends a message to a channel.")
        .args(&[CHANNEL, Arg::string("message")]),
    CommandSpec::container("pubsub", SUBCOMMANDS)
        .group(CommandGroup::PubSub, "2.8.0", "Depends on subcommand.")
        .summary("Container of commands about channels."),
    pubsub(CommandSpec::new("punsubscribe", -1, pubsub::punsubscribe), "2.0.0", "O(N) where N is the number of patterns to unsubscribe.")
        .flags(LISTENS)
        .summary("Listens to the channels of some patterns, or of all, no more.")
        .args(&[Arg::pattern("pattern").optional().multiple()]),
    pubsub(CommandSpec::new("spublish", 3, pubsub::spublish), "7.0.0", "O(N) where N is the number of clients subscribed to the receiving shard channel.")
        .flags(SENDS)
        .keys(SHARD)
        .channels(ChannelWords::First)
        .summary("Sends a message to a shard channel.")
        .args(&[SHARDCHANNEL, Arg::string("message")]),
    pubsub(CommandSpec::new("ssubscribe", -2, pubsub::ssubscribe), "7.0.0", O_CHANNELS)
        .flags(LISTENS)
        .keys(SHARDS)
        .channels(ChannelWords::All)
        .summary("Listens to shard channels.")
        .args(&[SHARDCHANNEL.multiple()]),
    pubsub(CommandSpec::new("subscribe", -2, pubsub::subscribe), "2.0.0", O_CHANNELS)
        .flags(LISTENS)
        .channels(ChannelWords::All)
        .summary("Listens to channels.")
        .args(&[CHANNEL.multiple()]),
    pubsub(CommandSpec::new("sunsubscribe", -1, pubsub::sunsubscribe), "7.0.0", O_UNSUBSCRIBED)
        .flags(LISTENS)
        .keys(SHARDS)
        .summary("Listens to some shard channels, or to all, no more.")
        .args(&[SHARDCHANNEL.optional().multiple()]),
    pubsub(CommandSpec::new("unsubscribe", -1, pubsub::unsubscribe), "2.0.0", O_UNSUBSCRIBED)
        .flags(LISTENS)
        .summary("Listens to some channels, or to all, no more.")
        .args(&[CHANNEL.optional().multiple()]),
];

static SUBCOMMANDS: &[CommandSpec] = &[
    pubsub(CommandSpec::new("channels", -2, pubsub::channels), "2.8.0", "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)")
        .flags(ASKS)
        .differs(PATTERN_LENGTH)
        .summary("Tells which channels clients listen to.")
        .args(&[Arg::pattern("pattern").optional()]),
    pubsub(CommandSpec::new("help", 2, help), "6.2.0", "O(1)")
        .flags(LOADING | STALE)
        .summary("Tells what the subcommands are."),
    pubsub(CommandSpec::new("numpat", 2, pubsub::numpat), "2.8.0", "O(1)")
        .flags(ASKS)
        .summary("Tells to how many different patterns clients listen."),
    pubsub(CommandSpec::new("numsub", -2, pubsub::numsub), "2.8.0", "O(N) for the NUMSUB subcommand, where N is the number of requested channels")
        .flags(ASKS)
        .summary("Tells how many clients listen to channels.")
        .args(&[CHANNEL.optional().multiple()]),
    pubsub(CommandSpec::new("shardchannels", -2, pubsub::shardchannels), "7.0.0", "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).")
        .flags(ASKS)
        .differs(PATTERN_LENGTH)
        .summary("Tells which shard channels clients listen to.")
        .args(&[Arg::pattern("pattern").optional()]),
    pubsub(CommandSpec::new("shardnumsub", -2, pubsub::shardnumsub), "7.0.0", "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels")
        .flags(ASKS)
        .summary("Tells how many clients listen to shard channels.")
        .args(&[SHARDCHANNEL.optional().multiple()]),
];
