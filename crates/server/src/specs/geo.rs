//! Specifications of the commands on places.

use crate::cmd::{geo, geo_search};
use crate::table::*;

const O_ADD: &str = "O(log(N)) for each item added, where N is the number of elements in the sorted set.";
const O_HASH: &str = "O(log(N)) for each member requested, where N is the number of elements in the sorted set.";
const O_POS: &str = "O(N) where N is the number of members requested.";
const O_RADIUS: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.";
const O_SEARCH: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape";
const COLLECTS: &str =
    "As in Redis it is one step. Members that are equally far away come in the order in which they are found.";

const KEY: Arg = Arg::key("key");
const MEMBER: Arg = Arg::string("member");
const LONGITUDE: Arg = Arg::double("longitude");
const LATITUDE: Arg = Arg::double("latitude");
const UNITS: &[Arg] = &[Arg::word("m", "M"), Arg::word("km", "KM"), Arg::word("ft", "FT"), Arg::word("mi", "MI")];
const UNIT: Arg = Arg::one_of("unit", UNITS);
const RADIUS: Arg = Arg::double("radius");
const WITH_COORD: Arg = Arg::word("withcoord", "WITHCOORD").optional();
const WITH_DIST: Arg = Arg::word("withdist", "WITHDIST").optional();
const WITH_HASH: Arg = Arg::word("withhash", "WITHHASH").optional();
const ORDER: Arg = Arg::one_of("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional();
const COUNTED: Arg = Arg::int("count").token("COUNT");
const ANY: Arg = Arg::word("any", "ANY").optional();
const COUNT: Arg = Arg::block("count", &[COUNTED, ANY]).optional();
const COUNT_ANY_LATER: Arg = Arg::block("count", &[COUNTED, ANY.since("6.2.0")]).optional();
const STORE_KEY: Arg = Arg::key("key").token("STORE").optional();
const STORE_DISTANCES_KEY: Arg = Arg::key("key").token("STOREDIST").optional();
const FROM: Arg = Arg::one_of(
    "from",
    &[
        Arg::string("member").token("FROMMEMBER"),
        Arg::block("longitude_latitude", &[LONGITUDE, LATITUDE]).token("FROMLONLAT"),
    ],
);
const BY: Arg = Arg::one_of(
    "by",
    &[
        Arg::block("circle", &[RADIUS.token("BYRADIUS"), UNIT]),
        Arg::block("box", &[Arg::double("width").token("BYBOX"), Arg::double("height"), UNIT]),
    ],
);
const AROUND_PLACE: &[Arg] =
    &[KEY, LONGITUDE, LATITUDE, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT_ANY_LATER, ORDER];
const AROUND_MEMBER: &[Arg] = &[KEY, MEMBER, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER];

const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];

const fn geo(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Geo, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    geo(CommandSpec::new("geoadd", -5, geo::geoadd), "3.2.0", O_ADD)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .summary("Adds places to a sorted set, or moves them.")
        .args(&[
            KEY,
            Arg::one_of("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional().since("6.2.0"),
            Arg::word("change", "CH").optional().since("6.2.0"),
            Arg::block("longitude_latitude_member", &[LONGITUDE, LATITUDE, MEMBER]).multiple(),
        ]),
    geo(CommandSpec::new("geodist", -4, geo::geodist), "3.2.0", "O(log(N))")
        .flags(READONLY)
        .keys(READ)
        .summary("Returns the distance between two places.")
        .args(&[KEY, Arg::string("member1"), Arg::string("member2"), UNIT.optional()]),
    geo(CommandSpec::new("geohash", -2, geo::geohash), "3.2.0", O_HASH)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns the standard geohashes of places.")
        .args(&[KEY, MEMBER.multiple()]),
    geo(CommandSpec::new("geopos", -2, geo::geopos), "3.2.0", O_POS)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns the longitudes and latitudes of places.")
        .args(&[KEY, MEMBER.multiple()]),
    geo(CommandSpec::new("georadius", -6, geo_search::georadius), "3.2.0", O_RADIUS)
        .flags(WRITE | DENYOOM)
        .keys(&[
            KeySpec::one(1, RO | ACCESS),
            KeySpec::keyword("STORE", 6, OW | UPDATE),
            KeySpec::keyword("STOREDIST", 6, OW | UPDATE),
        ])
        .differs(COLLECTS)
        .summary("Returns or stores the places around a point; the old form of GEOSEARCH and GEOSEARCHSTORE.")
        .args(&[
            KEY,
            LONGITUDE,
            LATITUDE,
            RADIUS,
            UNIT,
            WITH_COORD,
            WITH_DIST,
            WITH_HASH,
            COUNT_ANY_LATER,
            ORDER,
            STORE_KEY,
            STORE_DISTANCES_KEY,
        ]),
    geo(CommandSpec::new("georadius_ro", -6, geo_search::georadius_ro), "3.2.10", O_RADIUS)
        .flags(READONLY)
        .keys(READ)
        .differs(COLLECTS)
        .summary("Returns the places around a point; an old form of GEOSEARCH.")
        .args(AROUND_PLACE),
    geo(CommandSpec::new("georadiusbymember", -5, geo_search::georadiusbymember), "3.2.0", O_RADIUS)
        .flags(WRITE | DENYOOM)
        .keys(&[
            KeySpec::one(1, RO | ACCESS),
            KeySpec::keyword("STORE", 5, OW | UPDATE),
            KeySpec::keyword("STOREDIST", 5, OW | UPDATE),
        ])
        .differs(COLLECTS)
        .summary("Returns or stores the places around another one; the old form of GEOSEARCH and GEOSEARCHSTORE.")
        .args(&[
            KEY,
            MEMBER,
            RADIUS,
            UNIT,
            WITH_COORD,
            WITH_DIST,
            WITH_HASH,
            COUNT,
            ORDER,
            STORE_KEY,
            STORE_DISTANCES_KEY,
        ]),
    geo(CommandSpec::new("georadiusbymember_ro", -5, geo_search::georadiusbymember_ro), "3.2.10", O_RADIUS)
        .flags(READONLY)
        .keys(READ)
        .differs(COLLECTS)
        .summary("Returns the places around another one; an old form of GEOSEARCH.")
        .args(AROUND_MEMBER),
    geo(CommandSpec::new("geosearch", -7, geo_search::geosearch), "6.2.0", O_SEARCH)
        .flags(READONLY)
        .keys(READ)
        .differs(COLLECTS)
        .summary("Returns the places in a circle or a rectangle.")
        .args(&[KEY, FROM, BY, ORDER, COUNT, WITH_COORD, WITH_DIST, WITH_HASH]),
    geo(CommandSpec::new("geosearchstore", -8, geo_search::geosearchstore), "6.2.0", O_SEARCH)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::one(2, RO | ACCESS)])
        .differs(COLLECTS)
        .summary("Stores the places in a circle or a rectangle, or their distances.")
        .args(&[
            Arg::key("destination"),
            Arg::key("source"),
            FROM,
            BY,
            ORDER,
            COUNT,
            Arg::word("storedist", "STOREDIST").optional(),
        ]),
];
