#!/bin/bash
# The path of a new user with the packages OLD and NEW, on this Debian: install, start, load, save, look, upgrade over the data, restart, remove, purge.
# What each step prints is shown behind "| ", and has to name what to do next.
# Runs as root in a root directory that may be thrown away; the server gets the port PORT, its metrics METRICS. KIND is `bare` where there are no
# tools of developers; with `full` the package's files are looked at by these, too.
set -eu
old=$1 new=$2 port=$3 metrics=$4 kind=$5
log=/var/log/quire/out.log
fail() { echo "FAIL: $*"; exit 1; }
has() { grep -q -- "$2" <<< "$1" || fail "no \"$2\" in: $1"; }
# Shows what a step has printed; each further word has to stand in it.
told() {
    local text=$1
    sed 's/^/| /' <<< "$text"
    for word in "${@:2}"; do has "$text" "$word"; done
}
start() {
    setpriv --reuid quire --regid quire --init-groups --inh-caps=-all --bounding-set=-all /usr/bin/quire serve /etc/quire/quire.conf --port "$port" --metrics-port "$metrics" > $log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        # Not before it has said how to go on.
        if redis-cli -p "$port" ping 2> /dev/null | grep -q PONG && grep -q '^  stop ' $log; then break; fi
        kill -0 $server 2> /dev/null || fail "the server ended: $(cat $log)"
        sleep 0.1
    done
    told "$(sed -n '/^Quire /,/^  stop /p' $log)" "connect    redis-cli -p $port" "data       /var/lib/quire/dump.quire" "metrics    http://127.0.0.1:$metrics/metrics" "stop       Ctrl-C, or SHUTDOWN"
}
# Ends the server as an init system does.
stop() {
    kill -TERM $server
    wait $server || fail "the server ended with $?: $(cat $log)"
}

echo "# install"
told "$(dpkg -i "$old" 2>&1)" "look at /etc/quire/quire.conf" "systemctl enable --now quire" "redis-cli ping" "quire doctor" "documents: /usr/share/doc/quire"
[ "$(stat -c '%U:%G %a' /etc/quire/quire.conf)" = "root:quire 640" ] || fail "the configuration may be read by all"
[ "$(stat -c '%U %a' /var/lib/quire)" = "quire 750" ] || fail "the data directory"
[ "$(dpkg-deb --contents "$old" | awk '{print $2}' | sort -u)" = root/root ] || fail "files of others"
for file in /usr/share/man/man1/quire-serve.1.gz /usr/share/bash-completion/completions/quire /usr/lib/systemd/system/quire.service \
    /usr/share/doc/quire/copyright /usr/share/doc/quire/README.md /usr/share/doc/quire/crates/preload/README.md /etc/logrotate.d/quire /usr/share/quire/monitoring/grafana-dashboard.json \
    /usr/share/quire/monitoring/grafana-dashboard-mount.json /usr/share/quire/monitoring/prometheus-alerts.yml; do
    [ -s "$file" ] || fail "no $file"
done
grep -q THIRD-PARTY /usr/share/doc/quire/copyright && grep -q '^clap ' /usr/share/doc/quire/THIRD-PARTY || fail "the licences of others"
for name in libquire.so libquire_preload.so libquire_sqlite.so; do
    grep -q "/$name\$" <<< "$(dpkg -L quire)" || fail "no $name in the package"
done
told "$(quire doctor --dir /var/lib/quire)" "works"
[ "$(quire --version)" = "quire $(dpkg-query -W -f '${Version}' quire | cut -d- -f1)" ] || fail "the version: $(quire --version)"
if [ "$kind" = full ]; then
    units=$(systemd-analyze verify /usr/lib/systemd/system/quire.service /usr/lib/systemd/system/quire-mount@.service 2>&1 | grep -v "Command 'man " || true)
    [ -z "$units" ] || fail "units: $units"
    readelf -S /usr/bin/quire | grep -q gnu_debuglink || fail "no link to debug symbols"
    if readelf -S /usr/bin/quire | grep -q debug_info; then fail "the binary is not stripped"; fi

    echo "# a C program"
    cat > /tmp/trial.c <<'C'
#include <quire.h>
int main(void) { quire_range *range; return quire_range_create(1 << 21, QUIRE_BEST, NULL, &range) == QUIRE_OK ? 0 : 1; }
C
    cc -o /tmp/trial /tmp/trial.c $(pkg-config --cflags --libs quire)
    /tmp/trial || fail "the library"
fi

echo "# start, load, save"
echo "maxclients 500" >> /etc/quire/quire.conf
start
redis-benchmark -p "$port" -n 20000 -r 20000 -d 100 -P 16 -t set -q > /dev/null
redis-cli -p "$port" set greeting hello > /dev/null
keys=$(redis-cli -p "$port" dbsize)

echo "# look"
top=$(quire top "127.0.0.1:$port" --once --interval 100)
has "$top" "commands/s"
page=$(curl -s "http://127.0.0.1:$metrics/metrics")
has "$page" "quire_save_last_ok 1"
has "$(curl -s "http://127.0.0.1:$metrics/")" "/metrics"
told "$(quire report --from /usr/share/doc/quire/docs/results --out /tmp/report)" "/tmp/report/index.html" "open it in a browser"
grep -q "goal missed" /tmp/report/index.html || fail "the page of results"
[ "$(redis-cli -p "$port" save)" = OK ] || fail "SAVE"
[ "$(stat -c '%U' /var/lib/quire/dump.quire)" = quire ] || fail "the image's owner"
told "$(quire image verify /var/lib/quire/dump.quire)" "ok: "

echo "# upgrade while it serves"
told "$(dpkg -i "$new" 2>&1)" "upgraded from" "systemctl restart quire" "the way back: a backup"
grep -q "maxclients 500" /etc/quire/quire.conf || fail "the upgrade has lost a setting"
[ "$(redis-cli -p "$port" get greeting)" = hello ] || fail "the old server does not serve any more"
redis-cli -p "$port" set late yes > /dev/null
stop
start
[ "$(redis-cli -p "$port" get late)" = yes ] || fail "SIGTERM has not saved"
[ "$(redis-cli -p "$port" dbsize)" = $((keys + 1)) ] || fail "keys are missing"
[ "$(redis-cli -p "$port" config get maxclients | tail -1)" = 500 ] || fail "the setting is not in force"
stop

echo "# remove and purge"
told "$(dpkg -r quire 2>&1)" "the data stays in /var/lib/quire" "apt purge quire removes it"
[ ! -e /usr/bin/quire ] && [ -s /var/lib/quire/dump.quire ] && [ -s /etc/quire/quire.conf ] || fail "remove"
told "$(dpkg -P quire 2>&1)" "are removed" "userdel quire"
for path in /var/lib/quire /var/log/quire /etc/quire /etc/logrotate.d/quire /usr/share/doc/quire /usr/share/quire; do
    [ ! -e $path ] || fail "$path is left: $(find $path)"
done
getent passwd quire > /dev/null || fail "the user is gone, and with it the names of files elsewhere"
echo "# done"
