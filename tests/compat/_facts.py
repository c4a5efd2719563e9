"""The facts that both servers tell: COMMAND INFO and COMMAND DOCS of each command, and which fields INFO has.

Summaries and costs are worded differently on purpose; histories and deprecations are not told by Quire.
"""

# Commands that scripts may call from 7.2 on.
BLOCKING = ["blmove", "blpop", "brpop", "brpoplpush", "bzpopmax", "bzpopmin", "wait"]
# What differs for a reason.
MEANT = {
    "flags of sintercard": "Quire does not tell keys that are counted",
    "key specs of sintercard": "Quire does not tell keys that are counted",
    "arguments of sintercard": "Quire does not tell keys that are counted",
    **{f"flags of {name}": "scripts may call it, as from 7.2 on" for name in BLOCKING},
    "arity of zrank": "has WITHSCORE, as from 7.2 on",
    "arguments of zrank": "has WITHSCORE, as from 7.2 on",
    "arity of zrevrank": "has WITHSCORE, as from 7.2 on",
    "arguments of zrevrank": "has WITHSCORE, as from 7.2 on",
    "arguments of bgsave": "has CANCEL",
    "arguments of hscan": "has NOVALUES, as from 7.4 on",
    "arguments of client|kill": "has MAXAGE",
    "arguments of debug": "has few subcommands, which are not containers' own",
    "arguments of shutdown": "told as alternatives",
    "arguments of command|getkeys": "Redis does not tell them",
    "arguments of command|getkeysandflags": "Redis does not tell them",
}
# Commands of replication, which Quire does not have (COMPAT.md).
LACKING = {"failover", "restore-asking"}


def plain(tree):
    """A tree without markers."""
    marker, content = tree
    if marker in "*~":
        return None if content is None else [plain(item) for item in content]
    if marker == "%":
        return {plain(key): plain(value) for key, value in content}
    return content


def markers(tree):
    """The types of the parts of a COMMAND INFO entry, subcommands aside."""
    return "".join(marker for marker, _ in tree[1]) if tree[1] else ""


def key_spec(spec):
    facts = {key: value for key, value in spec.items() if key != b"notes"}
    facts[b"flags"] = sorted(facts[b"flags"])
    return sorted(facts.items())


def infos(entries):
    """COMMAND INFO entries by full name, as comparable facts; entries of commands that do not exist are left out."""
    found = {}
    for entry in entries:
        if not entry:
            continue
        name, arity, flags, first, last, step, categories, tips, specs, subs = entry
        found[name.decode()] = {
            "arity": arity,
            "flags": sorted(flags),
            "keys": (first, last, step),
            "categories": sorted(categories),
            "tips": sorted(tips),
            "key specs": [key_spec(spec) for spec in specs],
        }
        found.update(infos(subs))
    return found


def docs(entries):
    """COMMAND DOCS by full name."""
    found = {}
    for name, doc in entries.items():
        found[name.decode()] = {
            "since": doc.get(b"since"),
            "group": doc.get(b"group"),
            "arguments": arguments(doc.get(b"arguments", [])),
        }
        found.update(docs(doc.get(b"subcommands", {})))
    return found


def arguments(listed):
    shown = []
    for argument in listed:
        fields = {key: value for key, value in argument.items() if key not in (b"display_text", b"summary")}
        fields[b"flags"] = sorted(fields.get(b"flags", []))
        fields[b"arguments"] = arguments(fields.get(b"arguments", []))
        shown.append(fields)
    return shown


# Fields of INFO that Redis has and Quire lacks: they tell of how Redis is built and of what it does in its own way.
LACKING_FIELDS = {
    "aof_rewrites_consecutive_failures", "atomicvar_api", "clients_in_timeout_table", "current_cow_size_age", "current_save_keys_processed",
    "current_save_keys_total", "dump_payload_sanitizations", "gcc_version", "module_fork_in_progress", "module_fork_last_cow_size",
    "reply_buffer_expands", "reply_buffer_shrinks",
}


def compare_info(pair):
    """The fields of INFO that Redis has and Quire lacks, and how many Redis has."""
    pair.reset()
    names = lambda side: {
        line.split(":")[0] for line in pair.open[side][0].call("INFO", "everything").tree[1].decode().splitlines() if ":" in line
    }
    ours, theirs = names(0), names(1)
    assert len(theirs) > 150, f"redis-server tells {len(theirs)} fields"
    # What each has of single commands and errors is what has run there.
    theirs = {name for name in theirs if not name.startswith(("cmdstat_", "errorstat_", "latency_percentiles_usec_"))}
    differences = [f"INFO lacks {name}" for name in theirs - ours - LACKING_FIELDS]
    differences += [f"INFO has {name}, which is listed as lacking" for name in ours & LACKING_FIELDS]
    return sorted(differences), len(theirs)


def compare(pair):
    """The differences as lines, and how many commands were compared."""
    pair.reset(resp3=True)
    ask = lambda side, *words: plain(pair.open[side][0].call(*words).tree)
    names = [entry[0] for entry in ask(0, "COMMAND")]
    differences, compared = [], 0
    lacking = {entry[0].decode() for entry in ask(1, "COMMAND")} - {name.decode() for name in names} - LACKING
    differences += [f"Quire lacks the command {name}" for name in sorted(lacking)]
    types = [markers(pair.open[side][0].call("COMMAND", "INFO", "get").tree[1][0]) for side in (0, 1)]
    if types[0] != types[1]:
        differences.append(f"types of COMMAND INFO\n    quire: {types[0]}\n    redis: {types[1]}")
    sides = [(infos(ask(side, "COMMAND", "INFO", *names)), docs(ask(side, "COMMAND", "DOCS", *names))) for side in (0, 1)]
    for kind in (0, 1):
        ours, theirs = sides[0][kind], sides[1][kind]
        for name in sorted(ours.keys() & theirs.keys()):
            compared += kind
            for fact, value in ours[name].items():
                if value != theirs[name][fact] and f"{fact} of {name}" not in MEANT:
                    differences.append(f"{fact} of {name}\n    quire: {value}\n    redis: {theirs[name][fact]}")
    return differences, compared
