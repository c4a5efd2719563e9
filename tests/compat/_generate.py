"""Random commands of all families, from a seeded generator.

A step is (connection, requests, brief): the requests are sent in one write, so that pipelines are tried too; `brief` says
that a key may expire a moment later, so that both sides must be given that moment. A word that begins as DUMPED stands for the payload
which one of the sides dumps of a key.

Numbers at which 32 or 64 bits end come where they are counts, places and values. As offsets of bits they would make strings of half a
gigabyte, and as negative counts of what is drawn replies of as many parts.
"""

DATABASES = (0, 1, 2)
STRINGS = [b"s%d" % n for n in range(8)]
HASHES = [b"h%d" % n for n in range(4)]
FIELDS = [b"f%d" % n for n in range(12)] + [b"", b"12", b"field with spaces", b"\x00\xff"]
SETS = [b"t%d" % n for n in range(4)]
MEMBERS = [b"%d" % n for n in range(-6, 12)] + [b"m%d" % n for n in range(12)]
MEMBERS += [b"", b"007", b"70000", b"-9223372036854775808", b"9223372036854775808", b"member with spaces", b"\x00\xff"]
LISTS = [b"l%d" % n for n in range(4)]
ZSETS = [b"z%d" % n for n in range(4)]
HLLS = [b"p%d" % n for n in range(3)]
GEOS = [b"g%d" % n for n in range(3)]
STREAMS = [b"x%d" % n for n in range(4)]
GROUPS = [b"g%d" % n for n in range(3)]
CONSUMERS = [b"c%d" % n for n in range(3)]
ODD_IDS = [b"*", b"-", b"+", b"$", b">", b"", b"x", b"5-", b"-5", b"5-x", b"5-*", b"0-0", b"0", b"(5", b"(0-0", b"(18446744073709551615-18446744073709551615",
           b"18446744073709551615", b"18446744073709551616", b"+5", b"05-01", b" 5", b"5 ", b"5--1", b"5-7-9", b"1" * 130]  # fmt: skip
KEYS = [*STRINGS, *HASHES, *SETS, *LISTS, *ZSETS, *HLLS, *GEOS, *STREAMS, b"none"]
BRIEF_MS = 40
LONG_S = 10_000

INTEGERS = [b"0", b"1", b"-1", b"2", b"3", b"-5", b"7", b"10", b"64", b"-100", b"1000"]
ODD_INTEGERS = [
    b"", b"abc", b"1.5", b" 1", b"1 ", b"+1", b"01", b"-0", b"0x10", b"1e3", b"9223372036854775807", b"-9223372036854775808",
    b"9223372036854775808", b"-9223372036854775809", b"4611686018427387904", b"99999999999999999999999",
]  # fmt: skip
# The ends of 31, 32, 53 and 64 bits, some of them below and above; the first ones would make large strings as offsets of bits.
EDGES = [b"%d" % (2**bits + above) for bits in (31, 32) for above in (-1, 0)]
EDGES += [b"%d" % number for number in (-(2**31), -(2**31) - 1, -(2**32), 2**53 - 1, 2**53 + 1, -(2**63) + 1, 2**64 - 1, 2**64)]
ODD_INTEGERS += EDGES
# As offsets or counts these would make much of something.
LARGE_OFFSETS = EDGES[:4]
ENDLESS = [edge for edge in EDGES if edge.startswith(b"-")]
DRAWS = {b"SRANDMEMBER", b"HRANDFIELD", b"ZRANDMEMBER"}
# What a payload of a key in database 0 stands for: the side that dumps it (0: Quire, 1: Redis), whether a bit of it is wrong, the key.
DUMPED = b"\x00payload of "
# Scripts that call what they are given, and functions that do.
CALLS = [b"return redis.call(unpack(ARGV))", b"return redis.pcall(unpack(ARGV))"]
FUNCTIONS = [b"call%d" % n for n in range(3)]
LIBRARIES = [
    b"#!lua name=lib%d\nredis.register_function('call%d', function(keys, args) return redis.%s(unpack(args)) end)" % (n, n, how)
    for n, how in enumerate([b"call", b"pcall", b"call"])
]
# Scripts of one key and one argument: conversions to and from Lua.
SCRIPTS = [
    b"return tonumber(ARGV[1])", b"return ARGV", b"return {KEYS[1], ARGV[1], true, false, 3.99, {ok = 'fine'}}", b"return {1, nil, 3}",
    b"return redis.status_reply('fine')", b"return redis.error_reply(KEYS[1])", b"return {err = 'MY error'}", b"return redis.sha1hex(ARGV[1])",
    b"return tostring(tonumber(ARGV[1]))", b"return redis.call('INCRBY', KEYS[1], ARGV[1])", b"return redis.pcall('HINCRBY', KEYS[1], 'n', ARGV[1])",
    b"local t = {} for i = 1, 3 do t[i] = redis.call('INCRBYFLOAT', KEYS[1], ARGV[1]) end return t", b"return bit.tohex(tonumber(ARGV[1]) or 0)",
    b"return #redis.call('KEYS', '*') > 0", b"return redis.call('TYPE', KEYS[1])", b"error(ARGV[1])", b"return redis.call()", b"return nosuch", b"return (",
    b"return type(redis.call('GET', KEYS[1]))", b"redis.setresp(3) return redis.call('HGETALL', KEYS[1])", b"#!lua flags=no-writes\nreturn redis.call('DEL', KEYS[1])",
]  # fmt: skip
USERS = [b"u%d" % n for n in range(3)]
RULES = [
    b"on", b"off", b"nopass", b"resetpass", b">pw", b"<pw", b"allkeys", b"resetkeys", b"~s*", b"~*", b"%R~h*", b"%W~l*", b"%RW~z*", b"%X~a", b"allchannels", b"resetchannels",
    b"&news*", b"+@all", b"-@all", b"+@read", b"-@write", b"+get", b"-get", b"+set", b"+config|get", b"-config|set", b"+client|id", b"nocommands", b"allcommands", b"reset",
    b"(+get ~s*)", b"clearselectors", b"+nosuch", b"+@nosuch", b"junk",
]  # fmt: skip
# Directives with the same values on both sides.
DIRECTIVES = [
    b"hash-max-listpack-value", b"zset-max-listpack-entries", b"zset-max-ziplist-value", b"set-max-intset-entries", b"list-max-listpack-size", b"stream-node-max-entries",
    b"stream-node-max-bytes", b"hll-sparse-max-bytes", b"maxmemory", b"maxmemory-policy", b"databases", b"timeout", b"tcp-keepalive", b"notify-keyspace-events", b"no-such-directive",
]  # fmt: skip
FLOATS = [b"0.1", b"-0.1", b"3.0", b"10.5", b"1e3", b"5e-3", b"1.23456789012345678", b"-2.5e10", b".5", b"5.", b"+1.5"]
ODD_FLOATS = [b"nan", b"inf", b"-inf", b"infinity", b"1e400", b"1e5000", b"1e-400", b" 1.5", b"1.5 ", b"1,5", b"", b"abc", b"1e", b"--1"]
TIMED = {b"SET", b"GETEX", b"SETEX", b"PSETEX", b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT"}
SCORES = [b"0", b"1", b"-1", b"2.5", b"3", b"0.1", b"1e3", b"-2.5e10", b"1e300", b"inf", b"-inf", b"+inf", b"1.7976931348623157e308", b"1e-5", b"0x10", b"2147483648", b"9007199254740993", b"9223372036854775807", b"-9223372036854775808"]
ODD_SCORES = [b"nan", b"", b"abc", b"1,5", b" 1", b"1 ", b"1e400", b"1e-400", b"--1", b"(1"]
PATTERNS = [b"*", b"s*", b"h?", b"s[0-3]", b"[^s]*", b"s\\1", b"", b"*0", b"none", b"f[1-", b"**", b"f1*"]


def called(words):
    """The command that a script or function calls which calls what it is given."""
    name = words[0].upper() if words else b""
    is_script = name in (b"EVAL", b"EVAL_RO") and words[1:2] and words[1] in CALLS
    is_function = name in (b"FCALL", b"FCALL_RO") and words[1:2] and words[1] in FUNCTIONS
    return words[3:] if (is_script or is_function) and words[2:3] == [b"0"] else None


def consumers_of(words):
    """Commands that make the consumers which a command asks for: it makes them itself from 7.2 on, and in older versions only if there is something to read."""
    words = called(words) or words
    name = words[0].upper() if words else b""
    if name in (b"XCLAIM", b"XAUTOCLAIM"):
        return [[b"XGROUP", b"CREATECONSUMER", *words[1:4]]]
    if name == b"XREADGROUP" and b"STREAMS" in words:
        streams = words[words.index(b"STREAMS") + 1 :]
        return [[b"XGROUP", b"CREATECONSUMER", key, *words[2:4]] for key in streams[: len(streams) // 2]]
    return []


class Generator:
    """Draws steps; `random` is a seeded random.Random."""

    def __init__(self, random):
        self.random = random
        families = [
            (30, self.string), (12, self.counter), (9, self.part), (10, self.bits), (24, self.hash), (20, self.set), (24, self.list), (30, self.zset), (40, self.stream), (10, self.generic),
            (7, self.hyperloglog), (12, self.geo), (6, self.bitfield), (6, self.sort), (10, self.expire), (7, self.database), (7, self.transaction), (4, self.server), (2, self.lcs),
            (10, self.payload), (8, self.script), (6, self.client), (6, self.user),
        ]  # fmt: skip
        self.weights = [weight for weight, _ in families]
        self.makers = [maker for _, maker in families]
        self.brief = False

    def step(self):
        connection = int(self.random.random() < 0.2)
        count = self.random.choice([1, 1, 1, 1, 1, 1, 2, 5, 20])
        self.brief = False
        requests = []
        while len(requests) < count and not self.brief:
            words = self.command()
            # A scan goes on after its first reply, which it cannot in the middle of a pipeline.
            if count == 1 or not words or words[0].upper() not in (b"SCAN", b"HSCAN", b"SSCAN", b"ZSCAN"):
                requests += [*consumers_of(words), words]
        return connection, requests, self.brief

    def command(self):
        maker = self.random.choices(self.makers, self.weights)[0]
        words = maker()
        if self.chance(0.03):
            words = self.mangled(words)
        if words[:1] and words[0].startswith(b"Z"):
            # In Quire no score is -0.
            words = [b"0" if word == b"-0" else word for word in words]
        if self.chance(0.2):
            words = [self.any_case(words[0]), *words[1:]]
        if self.chance(0.04) and not self.brief and words[0].upper() not in (b"SCAN", b"HSCAN", b"SSCAN", b"ZSCAN"):
            # A scan can't be followed there, and a key that expires soon is looked for at the place of its command's key.
            words = self.within_script(words)
        return words

    def within_script(self, words):
        kind = self.random.randrange(4)
        if kind < 2:
            return [b"EVAL", self.pick(CALLS), b"0", *words]
        return [b"EVAL_RO", self.pick(CALLS), b"0", *words] if kind == 2 else [self.pick([b"FCALL", b"FCALL_RO"]), self.pick(FUNCTIONS), b"0", *words]

    def any_case(self, word):
        return bytes(self.random.choice([word[at : at + 1].lower(), word[at : at + 1].upper()])[0] for at in range(len(word)))

    def mangled(self, words):
        """A word too many, too few or another; nothing that could make a slow or endless command."""
        name = words[0]
        # Words of these mean other things in 7.2: ZRANK takes one more, which matters to MULTI, and XSETID takes no ID below one that was deleted.
        if name in (b"ZRANK", b"ZREVRANK", b"XSETID"):
            return words
        if name in (b"SORT", b"SORT_RO"):
            # Members of sets come as they come with other patterns and limits, so only what is no command follows.
            return [*words, *self.pick([[b"junk"], [b"LIMIT"], [b"LIMIT", b"0"], [b"BY"], [b"GET"], [b"STORE"], [b"LIMIT", b"x", b"1"]])]
        at = self.random.randrange(1, len(words) + 1)
        # A small number in the place of a time would let the key expire at a moment that no step waits for; SPOP would draw as many.
        small = [] if name in TIMED or name == b"SPOP" else INTEGERS
        junk = self.pick([*ODD_INTEGERS, *small, b"NX", b"GET", b"junk", b"PERSIST", b"EX"])
        if name in (b"SETBIT", b"BITFIELD") and junk in [*LARGE_OFFSETS, *ENDLESS, b"-9223372036854775808"] or name in DRAWS and junk in ENDLESS:
            junk = b"junk"
        kind = self.random.randrange(3)
        if kind == 0:
            return [*words[:at], junk, *words[at:]]
        if kind == 1 and len(words) > 1 and name != b"SPOP":
            return words[:-1]
        return [*words[:at], junk, *words[at + 1 :]]

    def chance(self, part):
        return self.random.random() < part

    def pick(self, choices):
        return self.random.choice(choices)

    def key(self, usual=STRINGS):
        return self.pick(usual) if self.chance(0.93) else self.pick(KEYS)

    def field(self):
        return self.pick(FIELDS)

    def integer(self):
        if self.chance(0.1):
            return self.pick(ODD_INTEGERS)
        return self.pick(INTEGERS) if self.chance(0.5) else b"%d" % self.random.randint(-100, 100)

    def index(self):
        return b"%d" % self.random.randint(-30, 30) if self.chance(0.85) else self.integer()

    def drawn_count(self):
        count = self.index()
        return b"-7" if count in ENDLESS else count

    def value(self):
        kind = self.random.randrange(10)
        if kind < 3:
            return self.integer()
        if kind == 3:
            return self.pick(FLOATS) if self.chance(0.7) else self.pick(ODD_FLOATS)
        if kind == 4:
            return self.random.randbytes(self.random.choice([0, 1, 8, 43, 44, 45, 63, 64, 65, 300]))
        if kind == 5:
            return bytes([self.pick(b"\x00\xffa")]) * self.random.choice([1, 7, 44, 45, 64, 65, 2000])
        if kind == 6 and self.chance(0.1):
            return self.random.randbytes(self.random.choice([1000, 20_000, 70_000]))
        return bytes(self.pick(b"abcde \r\n") for _ in range(self.random.randrange(30)))

    def lifetime(self, words=(b"EX", b"PX", b"EXAT", b"PXAT")):
        """An option with a time: usually far away, now and then over soon or wrong."""
        word = self.pick(words)
        if self.chance(0.15):
            return [word, self.pick([b"0", b"-1", *ODD_INTEGERS[:11], b"-9223372036854775808", b"9223372036854776"])]
        if self.chance(0.1):
            self.brief = True
            return [b"PX", b"%d" % BRIEF_MS] if self.chance(0.7) else [b"PXAT", b"1"]
        far = LONG_S + self.random.randrange(1000)
        return [word, {b"EX": b"%d", b"PX": b"%d000", b"EXAT": b"5%09d", b"PXAT": b"5%09d000"}[word] % far]

    def string(self):
        key = self.key()
        kind = self.random.randrange(20)
        if kind < 4:
            return [b"SET", key, self.value()]
        if kind < 8:
            options = []
            if self.chance(0.4):
                options.append([self.pick([b"NX", b"XX", b"nx"])])
            if self.chance(0.4):
                options.append([b"GET"])
            if self.chance(0.6):
                options.append(self.lifetime() if self.chance(0.8) else [b"KEEPTTL"])
            self.random.shuffle(options)
            return [b"SET", key, self.value(), *(word for option in options for word in option)]
        if kind < 12:
            return [b"GET", key]
        if kind == 12:
            return [b"GETEX", key, *self.pick([[], [b"PERSIST"], self.lifetime()])]
        if kind == 13:
            return self.pick([[b"GETDEL", key], [b"GETSET", key, self.value()]])
        if kind == 14:
            return [b"SETNX", key, self.value()]
        if kind == 15:
            if self.chance(0.7):
                return [b"SETEX", key, b"%d" % LONG_S, self.value()]
            return [b"PSETEX", key, self.pick([b"99999999", b"0", b"-1", b"abc"]), self.value()]
        if kind == 16:
            return [b"MGET", *(self.key(KEYS) for _ in range(self.random.randrange(1, 6)))]
        if kind == 17:
            pairs = [word for _ in range(self.random.randrange(1, 4)) for word in (self.key(), self.value())]
            return [self.pick([b"MSET", b"MSETNX"]), *pairs]
        if kind == 18:
            return [b"APPEND", key, self.value()]
        return [b"STRLEN", key]

    def counter(self):
        key = self.key(STRINGS[:4])
        kind = self.random.randrange(6)
        if kind < 2:
            return [self.pick([b"INCR", b"DECR"]), key]
        if kind < 4:
            return [self.pick([b"INCRBY", b"DECRBY"]), key, self.integer()]
        by = self.pick(FLOATS) if self.chance(0.6) else self.pick(ODD_FLOATS) if self.chance(0.4) else self.integer()
        return [b"INCRBYFLOAT", key, by] if kind == 4 else [b"SET", key, self.pick([*INTEGERS, *ODD_INTEGERS, *FLOATS])]

    def part(self):
        key = self.key()
        if self.chance(0.6):
            return [self.pick([b"GETRANGE", b"GETRANGE", b"SUBSTR"]), key, self.index(), self.index()]
        offset = b"%d" % self.random.choice([0, 1, 5, 44, 100, 3000]) if self.chance(0.8) else self.pick(
            [b"-1", b"536870912", b"9223372036854775807", b"abc", b""]
        )
        return [b"SETRANGE", key, offset, self.value()]

    def bits(self):
        key = self.key()
        kind = self.random.randrange(10)
        offset = b"%d" % self.random.randrange(200) if self.chance(0.8) else self.pick(
            [b"-1", b"4294967296", b"9000", b"abc", b"", b"9223372036854775807"]
        )
        unit = [] if self.chance(0.4) else [self.pick([b"BYTE", b"BIT", b"bit", b"byte", b"BITS"])]
        if kind < 3:
            return [b"SETBIT", key, offset, self.pick([b"0", b"1", b"1", b"1", b"2", b"-1", b"x"])]
        if kind == 3:
            return [b"GETBIT", key, offset]
        if kind < 6:
            return [b"BITCOUNT", key, *self.pick([[], [self.index(), self.index(), *unit], [self.index()]])]
        if kind < 8:
            ends = self.pick([[], [self.index()], [self.index(), self.index(), *unit], [self.index(), self.index(), *unit]])
            return [b"BITPOS", key, self.pick([b"0", b"1", b"0", b"1", b"2", b"x"]), *ends]
        op = self.pick([b"AND", b"OR", b"XOR", b"NOT", b"xor", b"NOR"])
        sources = [self.key(KEYS) for _ in range(1 if op == b"NOT" and self.chance(0.8) else self.random.randrange(1, 4))]
        return [b"BITOP", op, self.key(), *sources]

    def bitfield(self):
        words = [self.pick([b"BITFIELD", b"BITFIELD", b"BITFIELD", b"BITFIELD_RO"]), self.key()]
        # A value too far below the least one makes the largest of it in Redis.
        value = lambda: self.pick([self.integer(), b"%d" % self.random.randint(-(2**62), 2**63 - 1)]).replace(b"-92233720368547758", b"-46116860184273879")
        for _ in range(self.random.randrange(5)):
            if self.chance(0.3):
                words += [b"OVERFLOW", self.pick([b"WRAP", b"SAT", b"FAIL", b"sat", b"NONE"] if self.chance(0.2) else [b"SAT", b"FAIL"])]
            kind = self.pick([b"u%d", b"i%d"]) % self.random.choice([1, 2, 5, 7, 8, 16, 31, 32, 33, 62, 63, 64])
            if kind == b"u64" and self.chance(0.8):
                kind = b"u8"
            offset = self.pick([b"#", b"", b""]) + (b"%d" % self.random.randrange(100) if self.chance(0.97) else self.pick([b"-1", b"x", b"", b"4294967296"]))
            action = self.pick([b"GET", b"SET", b"INCRBY", b"incrby"]) if words[0] == b"BITFIELD" or self.chance(0.1) else b"GET"
            words += [action, kind, offset, *([] if action == b"GET" else [value()])]
        return words

    def hyperloglog(self):
        key = self.key(HLLS)
        keys = lambda: [self.key(HLLS) for _ in range(self.random.randrange(1, 4))]
        kind = self.random.randrange(10)
        if kind < 4:
            return [b"PFADD", key, *(self.pick(MEMBERS) for _ in range(self.random.randrange(4)))]
        if kind == 4:
            many = self.random.choice([20, 100, 1000]) if self.chance(0.5) else 5
            first = self.random.randrange(5000)
            return [b"PFADD", key, *(b"%d" % (first + n) for n in range(many))]
        if kind < 7:
            return [b"PFCOUNT", *keys()]
        if kind == 7:
            return [b"PFMERGE", *keys()]
        return [b"PFDEBUG", self.pick([b"ENCODING", b"DECODE", b"GETREG", b"TODENSE", b"NOTHING"]), key] if kind == 8 else [b"GET", key]

    def place(self):
        """A place of its own for each member, near to others: of members that are equally far away any may come first."""
        member = self.random.randrange(30)
        longitude, latitude = 10 + member * 0.013 + self.random.randrange(4) * 7.7, 40 + member * 0.0071 - self.random.randrange(3) * 21.3
        return [b"%.6f" % longitude, b"%.6f" % latitude] if self.chance(0.97) else self.pick([[b"181", b"0"], [b"0", b"-86"], [b"x", b"0"], [b"0", b""], [b"180", b"85"]]), b"place%d" % member

    def area(self):
        unit = self.pick([b"m", b"km", b"ft", b"mi", b"KM", b"km", b"km"]) if self.chance(0.98) else b"x"
        size = lambda: self.pick([b"0", b"1", b"10.5", b"100", b"500", b"2000", b"1e4", b"1e6"]) if self.chance(0.97) else self.pick([b"-1", b"x", b"inf"])
        return size, unit

    def geo(self):
        key = self.key(GEOS)
        kind = self.random.randrange(12)
        member = lambda: b"place%d" % self.random.randrange(30)
        if kind < 4:
            words = [b"GEOADD", key, *self.pick([[], [], [b"CH"], [b"NX"], [b"XX", b"CH"]])]
            for _ in range(self.random.randrange(1, 8)):
                (longitude, latitude), name = self.place()
                words += [longitude, latitude, name]
            return words
        if kind == 4:
            return [b"GEODIST", key, member(), member(), *self.pick([[], [b"km"], [b"MI"], [b"ft"], [b"x"]])]
        if kind == 5:
            return [self.pick([b"GEOPOS", b"GEOHASH"]), key, *(member() for _ in range(self.random.randrange(4)))]
        size, unit = self.area()
        (longitude, latitude), _ = self.place()
        # Which of equally distant ones are among the first is said by nothing, and random commands may make such.
        options = [*self.pick([[], [b"ASC"], [b"DESC"]]), *self.pick([[], [], [b"COUNT", b"1000"], [b"COUNT", b"1000", b"ANY"], [b"ANY"], [b"COUNT", b"0"]])]
        shows = [word for word in (b"WITHDIST", b"WITHCOORD", b"WITHHASH") if self.chance(0.3)]
        if kind < 9:
            start = [b"FROMMEMBER", member()] if self.chance(0.4) else [b"FROMLONLAT", longitude, latitude]
            form = [b"BYRADIUS", size(), unit] if self.chance(0.5) else [b"BYBOX", size(), size(), unit]
            parts = [start, form, options] if self.chance(0.97) else [start, options]
            self.random.shuffle(parts)
            words = [word for part in parts for word in part]
            if self.chance(0.3):
                return [b"GEOSEARCHSTORE", key, self.key(GEOS), *words, *self.pick([[], [b"STOREDIST"]])]
            return [b"GEOSEARCH", key, *words, *shows]
        start = [longitude, latitude] if self.chance(0.5) else [member()]
        name = b"GEORADIUS" if len(start) == 2 else b"GEORADIUSBYMEMBER"
        if self.chance(0.3):
            return [name + b"_RO", key, *start, size(), unit, *options, *shows]
        stores = [self.pick([b"STORE", b"STOREDIST"]), self.key(GEOS)] if self.chance(0.3) else shows
        return [name, key, *start, size(), unit, *options, *stores]

    def sort(self):
        words = [self.pick([b"SORT", b"SORT", b"SORT_RO"]), self.key([*LISTS, *SETS, *ZSETS])]
        by = self.pick([[], [], [b"BY", b"s*"], [b"BY", b"h*->f1"], [b"BY", b"nosort"], [b"BY", b"none*"]])
        words += by
        if not by and self.chance(0.6):
            words.append(b"ALPHA")
        if self.chance(0.3):
            words.append(self.pick([b"ASC", b"DESC", b"desc"]))
        if self.chance(0.3) and b"nosort" not in by:
            words += [b"LIMIT", self.pick([b"0", b"1", b"-1", b"3", *EDGES]), self.pick([b"0", b"2", b"-1", b"100", b"x", *EDGES])]
        for _ in range(self.pick([0, 0, 0, 1, 2])):
            words += [b"GET", self.pick([b"#", b"s*", b"h*->f1", b"h*->f2", b"none"])]
        # Weights that are numbers are refused for no reason of theirs at times, by Redis.
        if self.chance(0.5) and (b"ALPHA" in words or b"nosort" in by):
            words += [b"STORE", self.key(LISTS)]
        return words

    def lcs(self):
        words = [b"LCS", self.key(), self.key()]
        for option in ([b"LEN"], [b"IDX"], [b"MINMATCHLEN", self.index()], [b"WITHMATCHLEN"]):
            if self.chance(0.35):
                words += option
        return words

    def hash(self):
        key = self.key(HASHES)
        kind = self.random.randrange(22)
        if kind < 6:
            pairs = [word for _ in range(self.random.randrange(1, 5)) for word in (self.field(), self.value())]
            return [self.pick([b"HSET", b"HSET", b"HMSET"]), key, *pairs]
        if kind == 6:
            many = self.random.choice([20, 60, 130, 300]) if self.chance(0.3) else 5
            return [b"HSET", key, *(word for n in range(many) for word in (b"m%d" % n, b"v%d" % n))]
        if kind == 7:
            return [b"HSETNX", key, self.field(), self.value()]
        if kind < 10:
            return [b"HGET", key, self.field()]
        if kind == 10:
            return [b"HMGET", key, *(self.field() for _ in range(self.random.randrange(1, 5)))]
        if kind < 13:
            return [b"HDEL", key, *(self.field() for _ in range(self.random.randrange(1, 9)))]
        if kind == 13:
            return [b"HINCRBY", key, self.field(), self.integer()]
        if kind == 14:
            by = self.pick(FLOATS) if self.chance(0.7) else self.pick(ODD_FLOATS)
            return [b"HINCRBYFLOAT", key, self.field(), by]
        if kind == 15:
            count = self.pick([[], [self.drawn_count()], [self.drawn_count(), b"WITHVALUES"], [b"100", b"WITHVALUES"], [b"0"]])
            return [b"HRANDFIELD", key, *count]
        if kind == 16:
            return self.scanned([b"HSCAN", key])
        if kind == 17:
            return [self.pick([b"HSTRLEN", b"HEXISTS"]), key, self.field()]
        return [self.pick([b"HGETALL", b"HLEN", b"HKEYS", b"HVALS"]), key]

    def set(self):
        key = self.key(SETS)
        members = lambda most: [self.pick(MEMBERS) for _ in range(self.random.randrange(1, most))]
        keys = lambda: [self.key(SETS) for _ in range(self.random.randrange(1, 4))]
        kind = self.random.randrange(20)
        if kind < 6:
            return [b"SADD", key, *members(5)]
        if kind == 6:
            many = self.random.choice([20, 130, 520, 600]) if self.chance(0.3) else 5
            prefix = self.pick([b"", b"m"])
            return [b"SADD", key, *(prefix + b"%d" % n for n in range(many))]
        if kind < 9:
            return [b"SREM", key, *members(9)]
        if kind == 9:
            return [b"SMOVE", key, self.key(SETS), self.pick(MEMBERS)]
        if kind == 10:
            # What is drawn must be the same on both sides: everything.
            return [b"SPOP", key, self.pick([b"1000", b"1000", b"0", b"-1", b"x", b"2147483648", b"9223372036854775807"])]
        if kind == 11:
            return [b"SRANDMEMBER", key, *self.pick([[], [self.drawn_count()], [b"100"], [b"0"]])]
        if kind == 12:
            return self.scanned([b"SSCAN", key])
        if kind < 15:
            return [self.pick([b"SINTER", b"SUNION", b"SDIFF"]), *keys()]
        if kind < 17:
            return [self.pick([b"SINTERSTORE", b"SUNIONSTORE", b"SDIFFSTORE"]), key, *keys()]
        if kind == 17:
            words = keys()
            count = b"%d" % len(words) if self.chance(0.8) else self.pick([b"0", b"9", b"x", b"1"])
            return [b"SINTERCARD", count, *words, *self.pick([[], [b"LIMIT", self.index()], [b"LIMIT"]])]
        if kind == 18:
            return [self.pick([b"SISMEMBER", b"SMISMEMBER"]), key, self.pick(MEMBERS)]
        return [self.pick([b"SMEMBERS", b"SCARD"]), key]

    def list(self):
        key, other = self.key(LISTS), self.key(LISTS)
        element = lambda: self.pick(MEMBERS) if self.chance(0.7) else self.value()
        end = lambda: self.pick([b"LEFT", b"RIGHT"])
        kind = self.random.randrange(24)
        if kind < 6:
            return [self.pick([b"LPUSH", b"RPUSH"]), key, *(element() for _ in range(self.random.randrange(1, 5)))]
        if kind == 6:
            many = self.random.choice([20, 130, 1500]) if self.chance(0.3) else 5
            prefix = self.pick([b"", b"m", b"element" * 9])
            return [self.pick([b"LPUSH", b"RPUSH"]), key, *(prefix + b"%d" % n for n in range(many))]
        if kind == 7:
            return [self.pick([b"LPUSHX", b"RPUSHX"]), key, element()]
        if kind < 10:
            return [self.pick([b"LPOP", b"RPOP"]), key, *self.pick([[], [], [self.index()], [b"0"], [b"100"]])]
        if kind < 12:
            return [b"LRANGE", key, self.index(), self.index()] if self.chance(0.5) else [b"LRANGE", key, b"0", b"-1"]
        if kind == 12:
            return [b"LINDEX", key, self.index()]
        if kind == 13:
            return [b"LLEN", key]
        if kind < 16:
            return [b"LSET", key, self.index(), element()]
        if kind < 18:
            return [b"LINSERT", key, self.pick([b"BEFORE", b"AFTER", b"AFTER", b"junk"] if self.chance(0.1) else [b"BEFORE", b"AFTER"]), self.pick(MEMBERS), element()]
        if kind == 18:
            return [b"LREM", key, self.pick([b"0", b"1", b"-1", b"2", b"-2", b"x", *EDGES]), self.pick(MEMBERS)]
        if kind == 19:
            return [b"LTRIM", key, self.pick([b"0", b"1", b"-100"]), self.pick([b"-1", b"-2", b"100", b"20"])]
        if kind == 20:
            words = [b"LPOS", key, self.pick(MEMBERS)]
            for option in (b"RANK", b"COUNT", b"MAXLEN"):
                if self.chance(0.4):
                    words += [option, self.pick([b"0", b"1", b"2", b"-1", b"-2", b"5", b"x"])]
            return words
        if kind == 21:
            return [b"LMOVE", key, other, end(), end() if self.chance(0.95) else b"UP"]
        if kind == 22:
            return [b"RPOPLPUSH", key, other]
        words = [b"LMPOP", self.pick([b"2", b"2", b"2", b"1", b"0", b"x", b"9"]), key, other, end()]
        return words + self.pick([[], [b"COUNT", b"3"], [b"COUNT", b"0"], [b"COUNT"], [b"COUNT", b"x"]])

    def score(self):
        if self.chance(0.03):
            return self.pick(ODD_SCORES)
        return self.pick(SCORES) if self.chance(0.3) else b"%d" % self.random.randrange(-5, 20)

    def score_bound(self):
        return (b"(" if self.chance(0.3) else b"") + self.score()

    def lex_bound(self):
        return self.pick([b"-", b"+", b"", b"m", b"[", b"("] if self.chance(0.3) else [b"[", b"("]) + (self.pick(MEMBERS) if self.chance(0.9) else b"")

    def limit(self):
        return self.pick([[], [], [b"LIMIT", self.pick([b"0", b"1", b"-1", b"3"]), self.pick([b"0", b"2", b"-1", b"100"])], [b"LIMIT", self.integer(), self.integer()], [b"LIMIT", b"1"]])

    def with_scores(self):
        return [b"WITHSCORES"] if self.chance(0.5) else []

    def zset(self):
        key = self.key(ZSETS)
        members = lambda most: [self.pick(MEMBERS) for _ in range(self.random.randrange(1, most))]
        kind = self.random.randrange(24)
        if kind < 5:
            flags = [self.pick([b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR", b"ch"]) for _ in range(self.pick([0, 0, 0, 1, 1, 2]))]
            return [b"ZADD", key, *flags, *(word for member in members(4) for word in (self.score(), member))]
        if kind == 5:
            many = self.random.choice([20, 129, 300, 700]) if self.chance(0.3) else 5
            prefix = self.pick([b"", b"m", b"member" * 11])
            same = self.chance(0.5)
            return [b"ZADD", key, *(word for n in range(many) for word in (b"0" if same else b"%d" % (n * 7 % 40), prefix + b"%d" % n))]
        if kind == 6:
            return [b"ZINCRBY", key, self.score(), self.pick(MEMBERS)]
        if kind < 9:
            return [b"ZREM", key, *members(9)]
        if kind == 9:
            return [self.pick([b"ZSCORE", b"ZMSCORE"]), key, self.pick(MEMBERS)]
        if kind == 10:
            return [self.pick([b"ZRANK", b"ZREVRANK"]), key, self.pick(MEMBERS)]
        if kind == 11:
            return [b"ZCARD", key] if self.chance(0.3) else [b"ZCOUNT", key, self.score_bound(), self.score_bound()]
        if kind == 12:
            return [self.pick([b"ZPOPMIN", b"ZPOPMAX"]), key, *self.pick([[], [], [self.index()], [b"0"], [b"100"]])]
        if kind == 13:
            words = [b"ZMPOP", self.pick([b"2", b"2", b"2", b"1", b"0", b"x", b"9"]), key, self.key(ZSETS), self.pick([b"MIN", b"MAX", b"max"])]
            return words + self.pick([[], [b"COUNT", b"3"], [b"COUNT", b"0"], [b"COUNT"], [b"COUNT", b"x"]])
        if kind == 14:
            return [b"ZRANDMEMBER", key, *self.pick([[], [self.drawn_count()], [self.drawn_count(), b"WITHSCORES"], [b"1000", b"WITHSCORES"], [b"0"]])]
        if kind == 15:
            return self.scanned([b"ZSCAN", key])
        if kind == 16:
            return [self.pick([b"ZREMRANGEBYRANK"]), key, self.index(), self.index()]
        if kind == 17:
            return [b"ZREMRANGEBYSCORE", key, self.score_bound(), self.score_bound()]
        if kind < 20:
            return self.zset_range(key)
        return self.zset_algebra(key)

    def zset_range(self, key):
        kind = self.random.randrange(8)
        if kind < 2:
            return [self.pick([b"ZRANGE", b"ZREVRANGE"]), key, self.index(), self.index(), *self.with_scores()]
        if kind < 4:
            name = self.pick([b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE"])
            return [name, key, self.score_bound(), self.score_bound(), *self.with_scores(), *self.limit()]
        if kind == 4:
            # What an order of bytes gives of members with several scores is said by nothing.
            many = [word for n in range(10) for word in (b"0", self.pick(MEMBERS))]
            name = self.pick([b"ZRANGEBYLEX", b"ZREVRANGEBYLEX", b"ZLEXCOUNT", b"ZREMRANGEBYLEX"])
            return [b"ZADD", b"zlex", *many] if self.chance(0.4) else [name, b"zlex", self.lex_bound(), self.lex_bound()]
        by = self.pick([[], [b"BYSCORE"], [b"BYSCORE"]])
        ends = [self.score_bound(), self.score_bound()] if by else [self.index(), self.index()]
        rest = [*by, *self.pick([[], [b"REV"]]), *self.limit()]
        if kind == 5:
            return [b"ZRANGESTORE", key, self.key(ZSETS), *ends, *rest]
        return [b"ZRANGE", key, *ends, *rest, *self.with_scores()]

    def zset_algebra(self, key):
        words = [self.key([*ZSETS, *SETS] if self.chance(0.2) else ZSETS) for _ in range(self.random.randrange(1, 4))]
        count = b"%d" % len(words) if self.chance(0.9) else self.pick([b"0", b"9", b"x", b"1", b"-1"])
        kind = self.random.randrange(8)
        if kind == 0:
            return [b"ZINTERCARD", count, *words, *self.pick([[], [b"LIMIT", self.index()], [b"LIMIT"]])]
        if kind == 1:
            return [b"ZDIFF", count, *words, *self.with_scores()]
        if kind == 2:
            return [b"ZDIFFSTORE", key, count, *words]
        options = []
        if self.chance(0.4):
            # In Quire no score is -0, which a large sorted set of Redis may get from these.
            stores = kind >= 5
            weights = [b"1", b"2", b"0.5", b"3", *([] if stores else [b"-1", b"0"])]
            options += [b"WEIGHTS", *(self.pick(weights) if stores or self.chance(0.95) else self.score() for _ in words)]
        if self.chance(0.4):
            options += [b"AGGREGATE", self.pick([b"SUM", b"MIN", b"MAX", b"min", b"AVG"])]
        if kind < 5:
            return [self.pick([b"ZUNION", b"ZINTER"]), count, *words, *options, *self.with_scores()]
        return [self.pick([b"ZUNIONSTORE", b"ZINTERSTORE"]), key, count, *words, *options]

    def stream_id(self, odd=0.04):
        if self.chance(odd):
            return self.pick([odd for odd in ODD_IDS if odd != b"*"])
        ms = self.random.randrange(60)
        return b"%d" % ms if self.chance(0.4) else b"%d-%d" % (ms, self.random.randrange(4))

    def stream_trim(self):
        operator = self.pick([[], [b"="], [b"~"], [b"~"]])
        limit = self.pick([[], [], [], [b"LIMIT", self.pick([b"0", b"1", b"10", b"120", b"-1", b"x"])]])
        if self.chance(0.6):
            return [self.pick([b"MAXLEN", b"maxlen"]), *operator, b"%d" % self.random.randrange(120) if self.chance(0.95) else self.integer(), *limit]
        return [b"MINID", *operator, self.stream_id(), *limit]

    def stream(self):
        key, kind = self.key(STREAMS), self.random.randrange(30)
        count = self.pick([[], [], [b"COUNT", b"%d" % self.random.randrange(1, 9)], [b"COUNT", self.integer()]])
        if kind < 7:
            options = [*self.pick([[], [], [], [b"NOMKSTREAM"]]), *(self.stream_trim() if self.chance(0.15) else [])]
            names = [b"a", b"b"] if self.chance(0.7) else [self.field() for _ in range(self.random.randrange(1, 4))]
            id = self.pick([b"%d-*" % self.random.randrange(60), self.stream_id(), b"%d-%d" % (60 + self.random.randrange(40), self.random.randrange(3))])
            return [b"XADD", key, *options, id, *(word for name in names for word in (name, self.value()))]
        if kind == 7:
            return [b"XDEL", key, *(self.stream_id() for _ in range(self.random.randrange(1, 5)))]
        if kind == 8:
            return [b"XTRIM", key, *self.stream_trim()]
        if kind == 9:
            return [b"XLEN", key]
        if kind < 12:
            start, end = self.pick([b"-", self.stream_id()]), self.pick([b"+", self.stream_id()])
            start = b"(" + start if self.chance(0.1) else start
            return [b"XRANGE", key, start, end, *count] if self.chance(0.6) else [b"XREVRANGE", key, end, start, *count]
        if kind == 12:
            rest = self.pick([[], [], [b"ENTRIESADDED", self.index()], [b"MAXDELETEDID", self.stream_id()]])
            return [b"XSETID", key, b"%d" % (100 + self.random.randrange(20)), *rest]
        if kind < 15:
            keys = [self.key(STREAMS) for _ in range(self.random.randrange(1, 4))]
            return [b"XREAD", *count, b"STREAMS", *keys, *(self.pick([self.stream_id(), b"0", b"$"]) for _ in keys)]
        return self.stream_group(key, kind, count)

    def stream_group(self, key, kind, count):
        group, consumer = self.pick(GROUPS), self.pick(CONSUMERS)
        ids = [self.stream_id() for _ in range(self.random.randrange(1, 4))]
        if kind < 17:
            rest = self.pick([[], [b"MKSTREAM"], [b"MKSTREAM"], [b"ENTRIESREAD", self.index()]])
            return [b"XGROUP", b"CREATE", key, group, self.pick([b"0", b"$", self.stream_id()]), *rest]
        if kind == 17:
            name = self.pick([b"CREATECONSUMER", b"DELCONSUMER", b"SETID", b"DESTROY"])
            rest = {b"SETID": [self.stream_id()], b"DESTROY": []}.get(name, [consumer])
            return [b"XGROUP", name, key, group, *rest]
        if kind < 22:
            keys = [key] if self.chance(0.8) else [key, self.key(STREAMS)]
            no_ack = [b"NOACK"] if self.chance(0.1) else []
            return [b"XREADGROUP", b"GROUP", group, consumer, *count, *no_ack, b"STREAMS", *keys, *(self.pick([b">", b">", b"0", self.stream_id()]) for _ in keys)]
        if kind < 24:
            return [b"XACK", key, group, *ids]
        if kind == 24:
            idle = self.pick([[], [], [b"IDLE", self.pick([b"0", b"1000000", b"x"])]])
            rest = [*idle, self.pick([b"-", self.stream_id()]), self.pick([b"+", self.stream_id()]), b"%d" % self.random.randrange(9), *self.pick([[], [consumer]])]
            return [b"XPENDING", key, group, *(rest if self.chance(0.6) else [])]
        if kind < 27:
            options = self.pick([[], [], [b"FORCE"], [b"JUSTID"], [b"RETRYCOUNT", self.index()], [b"IDLE", b"1000"], [b"TIME", b"1000"], [b"LASTID", self.stream_id()]])
            return [b"XCLAIM", key, group, consumer, self.pick([b"0", b"0", b"1000000", b"-1"]), *ids, *options]
        if kind == 27:
            return [b"XAUTOCLAIM", key, group, consumer, self.pick([b"0", b"0", b"1000000"]), self.pick([b"-", b"0", self.stream_id()]), *count, *self.pick([[], [b"JUSTID"]])]
        return self.pick([
            [b"XINFO", b"STREAM", key], [b"XINFO", b"STREAM", key, b"FULL"], [b"XINFO", b"STREAM", key, b"FULL", *count], [b"XINFO", b"GROUPS", key],
            [b"XINFO", b"CONSUMERS", key, group],
        ])  # fmt: skip

    def scanned(self, words):
        """The options of a scan; the runner follows its cursor to the end."""
        if self.chance(0.4):
            words = [*words, b"MATCH", self.pick(PATTERNS)]
        if self.chance(0.3):
            words = [*words, b"COUNT", self.pick([b"1", b"3", b"1000", b"0", b"-1", b"x"])]
        if words[0] == b"SCAN" and self.chance(0.3):
            words = [*words, b"TYPE", self.pick([b"string", b"hash", b"HASH", b"set", b"list", b"zset", b"stream", b"nothing"])]
        at = 1 if words[0] == b"SCAN" else 2
        return [*words[:at], b"0" if self.chance(0.9) else self.pick([b"x", b"+0", b"", b"1.5"]), *words[at:]]

    def generic(self):
        key = self.key(KEYS)
        kind = self.random.randrange(12)
        if kind < 2:
            return [self.pick([b"DEL", b"UNLINK"]), *(self.key(KEYS) for _ in range(self.random.randrange(1, 4)))]
        if kind < 4:
            return [self.pick([b"EXISTS", b"TOUCH"]), *(self.key(KEYS) for _ in range(self.random.randrange(1, 4)))]
        if kind == 4:
            return [b"TYPE", key]
        if kind == 5:
            return [self.pick([b"RENAME", b"RENAMENX"]), key, self.key(KEYS)]
        if kind == 6:
            return self.pick([[b"KEYS", self.pick(PATTERNS)], [b"RANDOMKEY"]])
        if kind == 7:
            return self.scanned([b"SCAN"])
        if kind < 10:
            return [b"OBJECT", b"ENCODING", key]
        return [b"OBJECT", self.pick([b"FREQ", b"IDLETIME", b"REFCOUNT", b"NOTHING"]), key]

    def expire(self):
        key = self.key(KEYS)
        if self.chance(0.45):
            return [self.pick([b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME", b"PERSIST"]), key]
        name, unit = self.pick([(b"EXPIRE", b"EX"), (b"PEXPIRE", b"PX"), (b"EXPIREAT", b"EXAT"), (b"PEXPIREAT", b"PXAT")])
        _, at = self.lifetime((unit,))
        if self.brief:
            name = b"PEXPIRE" if at == b"%d" % BRIEF_MS else b"PEXPIREAT"
        options = [self.pick([b"NX", b"XX", b"GT", b"LT", b"gt", b"ZZ"]) for _ in range(self.pick([0, 0, 1, 1, 2]))]
        return [name, key, at, *options]

    def database(self):
        key = self.key(KEYS)
        number = self.pick([b"0", b"0", b"1", b"1", b"2", b"2", b"16", b"-1", b"abc"])
        kind = self.random.randrange(14)
        if kind < 4:
            return [b"SELECT", number]
        if kind < 6:
            return [b"DBSIZE"]
        if kind < 8:
            return [b"MOVE", key, number]
        if kind < 11:
            options = self.pick([[], [b"REPLACE"], [b"DB", number], [b"DB", number, b"REPLACE"], [b"REPLACE", b"REPLACE"]])
            return [b"COPY", key, self.key(KEYS), *options]
        if kind == 11:
            return [b"SWAPDB", number, self.pick([b"0", b"1", b"2", b"99", b"x"])]
        flush = self.pick([b"FLUSHDB", b"FLUSHDB", b"FLUSHALL"])
        return [flush, *self.pick([[], [b"ASYNC"], [b"SYNC"], [b"NOW"]])] if self.chance(0.5) else [b"DBSIZE"]

    def payload(self):
        """DUMP, and RESTORE of what one of the sides dumps."""
        key, kind = self.key(KEYS), self.random.randrange(8)
        if kind == 0:
            return [b"DUMP", key]
        payload = b"%s%d%d%s" % (DUMPED, self.random.randrange(2), self.chance(0.05), key)
        if kind == 1:
            payload = self.pick([payload, b"", b"junk", self.value()])
        time = b"0" if self.chance(0.8) else self.pick([b"100000000", b"4294967296", b"-1", b"x"])
        options = self.pick([[], [b"REPLACE"], [b"REPLACE"], [b"replace"], [b"REPLACE", b"IDLETIME", b"10"], [b"FREQ", b"3", b"REPLACE"], [b"IDLETIME", b"-1"], [b"FREQ", b"256"], [b"junk"]])
        return [b"RESTORE", self.key(KEYS), time, payload, *options]

    def script(self):
        kind = self.random.randrange(12)
        if kind < 6:
            argument = self.pick([self.integer(), self.pick(FLOATS), self.pick(ODD_FLOATS), self.value()])
            return [self.pick([b"EVAL", b"EVAL", b"EVAL_RO"]), self.pick(SCRIPTS), b"1" if self.chance(0.95) else self.integer(), self.key(KEYS), argument]
        if kind < 9:
            return [b"FUNCTION", b"LOAD", *self.pick([[], [b"REPLACE"], [b"REPLACE"], [b"junk"]]), self.pick(LIBRARIES)]
        return self.pick([
            [b"FUNCTION", b"DELETE", b"lib%d" % self.random.randrange(4)], [b"FUNCTION", b"LIST", b"LIBRARYNAME", b"lib%d" % self.random.randrange(3), *self.pick([[], [b"WITHCODE"], [b"junk"]])],
            [b"FUNCTION", b"FLUSH", *self.pick([[], [b"SYNC"], [b"ASYNC"], [b"junk"]])], [b"FUNCTION", b"STATS"], [b"FUNCTION", b"KILL"], [b"FUNCTION", b"NOSUCH"], [b"FUNCTION", b"RESTORE", b"junk"],
            [b"SCRIPT", b"LOAD", self.pick(SCRIPTS)], [b"SCRIPT", b"EXISTS", b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", b"x"], [b"SCRIPT", b"KILL"], [b"SCRIPT", b"FLUSH", *self.pick([[], [b"junk"]])],
            [b"EVALSHA", b"0" * 40, b"0"], [b"FCALL", b"none", b"0"], [b"FCALL", self.pick(FUNCTIONS), self.pick([b"x", b"-1", b"5", b"0"])],
        ])  # fmt: skip

    def client(self):
        number = self.pick([b"0", b"-1", b"999999999", b"x", *EDGES])
        return self.pick([
            [b"CLIENT", b"GETNAME"], [b"CLIENT", b"SETNAME", self.pick([b"name", b"a b", b"", b"x\n"])], [b"CLIENT", b"NO-EVICT", self.pick([b"on", b"off", b"x"])], [b"CLIENT", b"GETREDIR"],
            [b"CLIENT", b"UNBLOCK", number, *self.pick([[], [b"TIMEOUT"], [b"ERROR"], [b"x"]])], [b"CLIENT", b"TRACKINGINFO"], [b"CLIENT", b"CACHING", self.pick([b"yes", b"no", b"x"])],
            [b"CLIENT", b"KILL", b"ID", number], [b"CLIENT", b"KILL", b"1.2.3.4:5"], [b"CLIENT", b"KILL", b"TYPE", b"x"], [b"CLIENT", b"KILL", b"USER", b"absent"], [b"CLIENT", b"KILL", b"x", b"y", b"z"],
            [b"CLIENT", b"LIST", b"TYPE", b"x"], [b"CLIENT", b"LIST", b"ID", b"x"], [b"CLIENT", b"LIST", b"x"], [b"CLIENT", b"UNPAUSE"], [b"CLIENT", b"PAUSE", self.pick([b"x", b"-1"])], [b"CLIENT", b"PAUSE", b"0", b"x"],
            [b"CLIENT", b"TRACKING", b"x"], [b"CLIENT", b"TRACKING", b"on", b"x"], [b"CLIENT", b"TRACKING", b"off"], [b"CLIENT", b"REPLY", b"x"], [b"CLIENT"],
            [b"CONFIG", b"GET", *(self.pick(DIRECTIVES) for _ in range(self.random.randrange(1, 4)))], [b"CONFIG", b"GET"], [b"CONFIG", b"RESETSTAT"], [b"CONFIG", b"NOSUCH"],
            [b"CONFIG", b"SET", b"no-such-directive", b"1"], [b"CONFIG", b"SET", b"timeout"], [b"CONFIG", b"SET", b"timeout", self.pick([b"x", b"-1"])], [b"CONFIG", b"SET", b"timeout", b"0", b"timeout", b"0"],
            [b"COMMAND", self.pick([b"GETKEYS", b"GETKEYSANDFLAGS"]), *self.command()],
        ])  # fmt: skip

    def user(self):
        user, kind = self.pick(USERS), self.random.randrange(10)
        if kind < 4:
            return [b"ACL", b"SETUSER", user, *(self.pick(RULES) for _ in range(self.random.randrange(5)))]
        if kind == 4:
            return [b"ACL", b"DELUSER", user, *self.pick([[], [b"absent"], [b"default"]])]
        if kind < 7:
            return [b"ACL", b"DRYRUN", user if self.chance(0.95) else b"absent", *self.command()]
        return self.pick([[b"ACL", b"GETUSER", user], [b"ACL", b"LIST"], [b"ACL", b"USERS"], [b"ACL", b"WHOAMI"], [b"ACL", b"CAT"], [b"ACL", b"CAT", b"x"], [b"ACL", b"GENPASS", self.pick([b"0", b"5", b"4097", b"x"])], [b"ACL", b"x"]])

    def transaction(self):
        kind = self.random.randrange(9)
        if kind < 3:
            return [b"MULTI"]
        if kind < 6:
            return [b"EXEC"]
        if kind == 6:
            return [b"DISCARD"]
        if kind == 7:
            return [b"WATCH", *(self.key(KEYS) for _ in range(self.random.randrange(1, 3)))]
        return [b"UNWATCH"]

    def server(self):
        return self.pick([
            [b"PING"], [b"PING", self.value()], [b"ECHO", self.value()], [b"NOSUCH", self.value()], [b"CLIENT", b"NOSUCH"],
            [b"TIME"], [b"OBJECT", b"ENCODING"], [b"COMMAND", b"GETKEYS", b"MSET", b"a", b"1", b"b", b"2"],
            [b"CLIENT", b"GETNAME"], [b"CLIENT", b"SETNAME", self.pick([b"name", b"a b", b""])], [b"HELLO", b"9"],
            [b"DEBUG", b"DIGEST-VALUE", self.key(KEYS), self.key(KEYS)], [b"SELECT"], [b"GET"],
        ])  # fmt: skip
