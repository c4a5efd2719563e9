//! Specifications of the bits commands.

use crate::cmd::{bitfield, bits};
use crate::key_uses;
use crate::table::*;

const O_1: &str = "O(1)";
const O_N: &str = "O(N)";
const GROWS: &str = "A string that outgrows its place, or gets more than 1 MiB of zeros, is copied and filled in steps of 1 MiB before the command runs, between which other clients are served; what would change it waits meanwhile. The second place counts as memory. In a transaction it is one step.";
const FIELDS: &str = "A string that outgrows its place, or gets more than 1 MiB of zeros, is made longer in steps as by SETBIT. One that gets longer counts as changed, and is told to be, though each field fails to be written. A SET that saturates, of a value so far below the least one that 64 bits do not hold the difference, sets the least one; Redis sets the largest.";

const KEY: Arg = Arg::key("key");
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];

const fn bitmap(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Bitmap, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    bitmap(CommandSpec::new("bitcount", -2, bits::bitcount), "2.6.0", O_N)
        .flags(READONLY)
        .keys(READ)
        .summary("Counts the bits that are set in a string or a part of it.")
        .args(&[KEY, Arg::block("index", &[Arg::int("start"), Arg::int("end"), UNIT]).optional()]),
    bitmap(CommandSpec::new("bitfield", -2, bitfield::bitfield), "3.2.0", "O(1) for each subcommand specified")
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, RW | UPDATE | ACCESS | VARIABLE)])
        .key_uses_by(key_uses::of_bitfield)
        .differs(FIELDS)
        .summary("Reads and changes integers of any width in a string, which is padded with zeros if need be.")
        .args(&[KEY, Arg::one_of("operation", FIELD_OPERATIONS).multiple().optional()]),
    bitmap(CommandSpec::new("bitfield_ro", -2, bitfield::bitfield_ro), "6.0.0", "O(1) for each subcommand specified")
        .flags(READONLY | FAST)
        .keys(READ)
        .summary("Reads integers of any width in a string.")
        .args(&[KEY, Arg::block("encoding_offset", &[ENCODING, OFFSET]).token("GET").optional().multiple_token()]),
    bitmap(CommandSpec::new("bitop", -4, bits::bitop), "2.6.0", O_N)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(2, OW | UPDATE), KeySpec::range(3, -1, 1, RO | ACCESS)])
        .summary("Combines strings bit by bit and stores the result.")
        .args(&[Arg::string("operation"), Arg::key("destkey"), KEY.multiple()]),
    bitmap(CommandSpec::new("bitpos", -3, bits::bitpos), "2.8.7", O_N)
        .flags(READONLY)
        .keys(READ)
        .summary("Finds the first bit that is set, or not set, in a string or a part of it.")
        .args(&[
            KEY,
            Arg::int("bit"),
            Arg::block("index", &[Arg::int("start"), Arg::block("end_index", &[Arg::int("end"), UNIT]).optional()])
                .optional(),
        ]),
    bitmap(CommandSpec::new("getbit", 3, bits::getbit), "2.2.0", O_1)
        .flags(READONLY | FAST)
        .keys(READ)
        .summary("Returns a bit of a string.")
        .args(&[KEY, Arg::int("offset")]),
    bitmap(CommandSpec::new("setbit", 4, bits::setbit), "2.2.0", O_1)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .differs(GROWS)
        .summary("Sets or clears a bit of a string, which is padded with zeros if need be.")
        .args(&[KEY, Arg::int("offset"), Arg::int("value")]),
];

const UNIT: Arg =
    Arg::one_of("index_unit", &[Arg::word("byte", "BYTE"), Arg::word("bit", "BIT")]).optional().since("7.0.0");

const ENCODING: Arg = Arg::string("encoding");
const OFFSET: Arg = Arg::int("offset");

static FIELD_OPERATIONS: &[Arg] = &[
    Arg::block("encoding_offset", &[ENCODING, OFFSET]).token("GET"),
    Arg::block(
        "write",
        &[
            Arg::one_of(
                "wrap_sat_fail",
                &[Arg::word("wrap", "WRAP"), Arg::word("sat", "SAT"), Arg::word("fail", "FAIL")],
            )
            .token("OVERFLOW")
            .optional(),
            Arg::one_of(
                "write_operation",
                &[
                    Arg::block("encoding_offset_value", &[ENCODING, OFFSET, Arg::int("value")]).token("SET"),
                    Arg::block("encoding_offset_increment", &[ENCODING, OFFSET, Arg::int("increment")]).token("INCRBY"),
                ],
            ),
        ],
    ),
];
