"""When two replies count as the same.

Byte for byte, unless the order or the moment of a reply is free: what is known of that is in the tables here, and so
are the differences to Redis that are meant.

The peer is Debian's redis-server 7.0.15, while Quire follows 7.2: commands and texts that only 7.2 has (WAITAOF, CLIENT NO-TOUCH,
CLIENT SETINFO, HELLO without a password), and times to live of hashes' fields, which 7.4 has (HEXPIRE and its kin), are left to the Rust
tests. The order of checks is the same in both.
"""

from _generate import called

SANITIZED = b"sanitize-payload"
# What a user may not do, as 7.2 says it, and as 7.0 does: to the client, and to a script.
DENIED = [
    (b" has no permissions to run the '", (b"this user has no permissions to run the '", b"can't run this command or subcommand")),
    (b"No permissions to access a key", (b"access one of the keys used as arguments", b"can't access at least one of the keys")),
    (b"No permissions to access a channel", (b"access one of the channels used as arguments", b"can't publish to the channel")),
]
# How far replies that tell a time may be apart; the two servers get the same command at different moments.
TIMES = {"TTL": 1, "PTTL": 1000, "EXPIRETIME": 1, "PEXPIRETIME": 1000}
# Instants in milliseconds are above this; how far those of the two servers may be apart.
LEAST_INSTANT_MS, NEAR_MS = 10**12, 5000
# Replies whose order is free where the keys, fields or directives are in a table.
UNORDERED = {"KEYS", "HKEYS", "HVALS", "HGETALL", "SMEMBERS", "SINTER", "SUNION", "SDIFF", "SPOP", "CONFIG GET"}
# Replies that are drawn by lot.
DRAWN = {"RANDOMKEY", "HRANDFIELD", "SRANDMEMBER", "ZRANDMEMBER", "ACL GENPASS", "DUMP"}
# Replies that only have to be of the same type. Redis shares the objects of 0 to 9999 between keys, and queued words
# with the keys that they become, which its counts of references and idle times show.
FREE = {"TIME", "INFO", "MEMORY", "DEBUG OBJECT", "CLIENT ID", "CLIENT INFO", "CLIENT LIST", "LASTSAVE"}
FREE |= {"OBJECT IDLETIME", "OBJECT REFCOUNT"}


def name_of(words):
    """The command's name in capitals, with its subcommand where the tables above need it."""
    if not words:
        return ""
    name = words[0].upper().decode("latin1")
    if name in ("OBJECT", "DEBUG", "CLIENT", "CONFIG", "ACL") and len(words) > 1:
        return f"{name} {words[1].upper().decode('latin1')}"
    return name


def shows_rubbish(words, ours, theirs):
    """Redis cuts the words of an unknown command at a NUL; Quire shows other characters for what is no UTF-8, in any error."""
    if ours[0] == theirs[0] == "-" and ours[1] != theirs[1] and ours[1] == theirs[1].decode(errors="replace").encode():
        return True
    both = ours[0] == theirs[0] == "-" and ours[1].startswith(b"ERR unknown") and theirs[1].startswith(b"ERR unknown")
    return both and any(byte < 32 or byte > 126 for word in words for byte in word)


def packs_sets(words, ours, theirs):
    """Redis packs small sets from 7.2 on; until then they are tables."""
    return name_of(words) == "OBJECT ENCODING" and ours == ("$", b"listpack") and theirs == ("$", b"hashtable")


def packs_lists(words, ours, theirs):
    """Redis packs short lists from 7.2 on; until then they are quicklists."""
    return name_of(words) == "OBJECT ENCODING" and ours == ("$", b"listpack") and theirs == ("$", b"quicklist")


def takes_withscore(words, ours, theirs):
    """Redis takes WITHSCORE behind the member from 7.2 on; until then the command has no fourth word."""
    return name_of(words) in ("ZRANK", "ZREVRANK") and len(words) > 3 and theirs[0] == "-" and b"number of arguments" in theirs[1]


def keeps_zsets_packed(words, ours, theirs):
    """SORT makes a large one of each sorted set that it reads, in Redis."""
    return name_of(words) == "OBJECT ENCODING" and ours == ("$", b"listpack") and theirs == ("$", b"skiplist")


def remembers_errors(words, ours, theirs):
    """Redis takes the last number of any command that was too large for one of the weights of SORT."""
    stale = theirs[0] == "-" and theirs[1].startswith(b"ERR One or more scores can't be converted")
    return name_of(words) in ("SORT", "SORT_RO") and stale and ours[0] == "*"


def sorts_zero_bytes(words, ours, theirs):
    """Texts that are shown are compared up to a zero byte in Redis, and as a whole in Quire."""
    if name_of(words) not in ("SORT", "SORT_RO") or ours[0] != "*" or theirs[0] != "*":
        return False
    has_zero = any(b"\x00" in (item[1] or b"") for item in theirs[1])
    return has_zero and any(word.upper() == b"ALPHA" for word in words) and as_bag("SORT", ours) == as_bag("SORT", theirs)


def says_as_7_2(words, ours, theirs):
    """Errors that have other words from 7.2 on."""
    if ours[0] != "-" or theirs[0] != "-":
        return False
    unbalanced = theirs[1].startswith(b"ERR Unbalanced XREAD list") and ours[1].startswith(b"ERR Unbalanced 'xread")
    no_number = theirs[1] == b"ERR Elements are too large to be stored" and b"equal or smaller than the target" in ours[1]
    return unbalanced or no_number


def says_what_is_denied(words, ours, theirs):
    """What a user may not do has other words from 7.2 on, in errors, in what scripts make of them, and in ACL DRYRUN."""
    if ours[0] != theirs[0] or not isinstance(ours[1], bytes) or not isinstance(theirs[1], bytes):
        return False
    if name_of(words) == "ACL DRYRUN":
        return len(words) > 2 and ours[1] == theirs[1].replace(b"This user", b"User " + words[2], 1)
    return any(new in ours[1] and any(old in theirs[1] for old in before) for new, before in DENIED)


def tells_rules_as_given(words, ours, theirs):
    """Rules of commands are told as they were given from 7.2 on; until then Redis finds the fewest that come to the same."""
    return name_of(words) in ("ACL LIST", "ACL GETUSER") and without_command_rules(ours) == without_command_rules(theirs)


def without_command_rules(tree):
    """What is told of users, without the rules of commands, and without the flag that 7.2 gives every new user."""
    marker, content = tree
    if isinstance(content, list):
        content = [tuple(map(without_command_rules, item)) if isinstance(item[0], tuple) else without_command_rules(item) for item in content]
        content = [item for item in content if item != ("$", SANITIZED)]
    elif isinstance(content, bytes) and content != SANITIZED:
        content = b" ".join(word for word in content.split(b" ") if word[:1] not in (b"+", b"-") and word != SANITIZED)
    return marker, content


# Differences that are meant: (what, why, whether a pair of replies is one).
KNOWN = [
    ("bytes in errors", "an error line of Quire is text", shows_rubbish),
    ("encodings of small sets", "Quire packs small sets as Redis does from 7.2 on", packs_sets),
    ("words of ZRANK", "Quire takes WITHSCORE as Redis does from 7.2 on", takes_withscore),
    ("encodings of sorted sets that were sorted", "Quire leaves them as they are", keeps_zsets_packed),
    ("weights of SORT after a number out of range", "Quire looks at the weights alone", remembers_errors),
    ("zero bytes in texts that are sorted", "Quire compares whole texts", sorts_zero_bytes),
    ("words of errors about streams", "Quire says them as Redis does from 7.2 on", says_as_7_2),
    ("rules of commands of users", "Quire tells them as they were given, as Redis does from 7.2 on", tells_rules_as_given),
    ("words of what a user may not do", "Quire says them as Redis does from 7.2 on", says_what_is_denied),
    ("encodings of short lists", "Quire packs short lists as Redis does from 7.2 on", packs_lists),
]


def known_difference(words, ours, theirs):
    """The difference that is meant, if these replies show one."""
    words = called(words) or words
    for what, _, shows in KNOWN:
        if shows(words, ours, theirs):
            return what
    return None


def as_bag(name, tree):
    """The elements in no order; a map that is sent flat is paired first."""
    items = tree[1] or []
    if name in ("HGETALL", "CONFIG GET") and tree[0] == "*":
        items = list(zip(items[::2], items[1::2]))
    return sorted(map(repr, items))


def same(words, ours, theirs, queued=()):
    """Whether two trees count as the same reply to `words`; `queued` are the commands that an EXEC runs."""
    if ours == theirs:
        return True
    if ours[0] != theirs[0]:
        return False
    # What a script only passes on counts as what it is.
    words = called(words) or words
    name = name_of(words)
    if name == "EXEC" and ours[0] == "*" and ours[1] is not None and theirs[1] is not None:
        pairs = list(zip(ours[1], theirs[1]))
        counts = len(ours[1]) == len(theirs[1]) == len(queued)
        return counts and all(
            same(command, *pair) or known_difference(command, *pair) or begins_scan(command, *pair)
            for command, pair in zip(queued, pairs)
        )
    if name in TIMES and ours[0] == ":":
        if ours[1] < 0 or theirs[1] < 0:
            return False
        return abs(ours[1] - theirs[1]) <= TIMES[name]
    if name in ("SORT", "SORT_RO") and b"nosort" in words and ours[0] == "*":
        # Members of sets come in the order of a table.
        return as_bag(name, ours) == as_bag(name, theirs)
    if name in UNORDERED:
        return as_bag(name, ours) == as_bag(name, theirs)
    if name[:1] == "Z" and same_scores(ours, theirs):
        return True
    if name in ("XPENDING", "XINFO", "XREADGROUP", "XCLAIM", "XAUTOCLAIM") and same_times(ours, theirs):
        return True
    if name in DRAWN:
        return same_draw(ours, theirs)
    if name == "ACL LOG":
        return denials(ours) == denials(theirs)
    if name == "HELLO":
        return without_id(ours) == without_id(theirs)
    return name in FREE or name.split()[0] in FREE


def same_times(ours, theirs, before=None):
    """Whether replies about streams differ only in times, which are of different moments, or in how many nodes Redis' trees have."""
    if ours[0] != theirs[0] or type(ours[1]) is not type(theirs[1]):
        return False
    if isinstance(ours[1], list):
        parts, others = without_activity(flat(ours[1])), flat(theirs[1])
        # The third of four parts of a pending entry is how long ago it was delivered.
        names = ["idle" if len(parts) == 4 and at == 2 else before for at, before in enumerate([None, *parts])]
        return len(parts) == len(others) and all(map(same_times, parts, others, names))
    if ours[0] != ":":
        return ours == theirs
    if before == ("$", b"radix-tree-nodes"):
        return True
    is_time = before in ("idle", ("$", b"idle")) or ours[1] >= LEAST_INSTANT_MS
    return abs(ours[1] - theirs[1]) <= (NEAR_MS if is_time else 0)


def without_activity(parts):
    """What is told of a consumer without the time at which it was last given something, which is told from 7.2 on."""
    told = (("$", b"inactive"), ("$", b"active-time"))
    return [part for before, part in zip([None, *parts], parts) if part not in told and before not in told]


def flat(parts):
    """A map's keys and values one after the other; other parts as they are."""
    return [item for pair in parts for item in pair] if parts and isinstance(parts[0][0], tuple) else parts


def same_scores(ours, theirs):
    """Whether replies of commands on sorted sets differ in the digits of doubles only: before 7.2 there are always seventeen."""
    if ours[0] != theirs[0] or ours[1] is None or theirs[1] is None:
        return ours == theirs
    if isinstance(ours[1], list):
        return len(ours[1]) == len(theirs[1]) and all(map(same_scores, ours[1], theirs[1]))
    if ours == theirs:
        return True
    try:
        # A member of a sorted set may look like a number, but then both sides show it the same.
        return ours[0] in "$," and (b"." in theirs[1] or b"e" in theirs[1]) and float(ours[1]) == float(theirs[1])
    except (TypeError, ValueError):
        return False


def without_id(tree):
    """HELLO's reply without the number of the connection and the version: the peer may be an older one."""
    pairs = tree[1] if tree[0] == "%" else zip(tree[1][::2], tree[1][1::2])
    return [pair for pair in pairs if pair[0] not in (("$", b"id"), ("$", b"version"))]


def denials(tree):
    """What was denied, without the moments, the connections, and what only entries of 7.2 have."""
    if tree[0] != "*":
        return tree
    entries = [list(entry[1] if entry[0] == "%" else zip(entry[1][::2], entry[1][1::2])) for entry in tree[1]]
    free = (b"age-seconds", b"client-info", b"entry-id", b"timestamp-created", b"timestamp-last-updated")
    return [[pair for pair in entry if pair[0][1] not in free] for entry in entries]


def begins_scan(words, ours, theirs):
    """The first part of a scan depends on the table's layout; inside EXEC it cannot be followed."""
    return name_of(words) in ("SCAN", "HSCAN", "SSCAN", "ZSCAN") and ours[0] == theirs[0] == "*"


def same_draw(ours, theirs):
    if ours[0] == "$":
        return (ours[1] is None) == (theirs[1] is None)
    return len(ours[1] or []) == len(theirs[1] or [])


def is_transaction_end(words):
    return name_of(words) in ("EXEC", "DISCARD", "RESET")
