//! Users and what they may do: rules hold for clients at once, in transactions and scripts too; where users are kept; what is denied is
//! noted, and no password is shown.

use std::path::Path;

use crate::common::{self, Client, Running, Value, config_in, refused, start, start_in, start_with};

const NO_KEY: &str = "NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "NOPERM No permissions to access a channel";
const NOAUTH: &str = "NOAUTH Authentication required.";

/// A client that has logged in.
fn log_in(server: &Running, name: &str, password: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.text(&format!("AUTH {name} {password}")), "OK");
    client
}

fn no_command(user: &str, name: &str) -> String {
    format!("NOPERM User {user} has no permissions to run the '{name}' command")
}

/// The entries of ACL LOG: reason, context, object, user and count of each.
fn denials(client: &mut Client) -> Vec<[String; 5]> {
    let log = client.call("ACL LOG 100");
    let field = |entry: &Value, name: &str| {
        let items = entry.items();
        let at = items.iter().step_by(2).position(|item| item.text() == name).unwrap();
        items[2 * at + 1].text()
    };
    let names = ["reason", "context", "object", "username", "count"];
    log.items().iter().map(|entry| names.map(|name| field(entry, name))).collect()
}

#[test]
fn rules_hold_for_a_client_at_once() {
    let server = start(&[]);
    let mut admin = server.client();
    assert_eq!(admin.text("ACL SETUSER alice on >secret ~a* +get"), "OK");
    let mut alice = log_in(&server, "alice", "secret");
    assert_eq!(alice.text("ACL WHOAMI"), no_command("alice", "acl|whoami"));
    assert_eq!(alice.text("GET a"), "(nil)");
    assert_eq!(alice.text("GET b"), NO_KEY);
    assert_eq!(alice.text("SET a 1"), no_command("alice", "set"));
    for (request, may) in [("SET a 1", "run the 'set' command"), ("GET b", "access the 'b' key")] {
        let told = admin.text(&format!("ACL DRYRUN alice {request}"));
        assert_eq!(told, format!("User alice has no permissions to {may}"));
    }
    admin.text("ACL SETUSER alice +set ~b");
    assert_eq!((alice.text("SET a 1"), alice.text("SET b 2")), ("OK".into(), "OK".into()));
    admin.text("ACL SETUSER alice allkeys allchannels +@all");
    assert_eq!(alice.text("ACL WHOAMI"), "alice");
    assert_eq!(alice.text("GET z"), "(nil)");
    admin.text("ACL SETUSER alice -@all");
    assert_eq!(alice.text("GET a"), no_command("alice", "get"));
    assert_eq!(alice.text("AUTH alice secret"), "OK", "every user may log in");
    assert_eq!(alice.text("RESET"), "RESET");
    assert_eq!(alice.text("ACL WHOAMI"), "default");
}

#[test]
fn a_pipeline_is_held_to_the_rules_that_hold_when_each_request_runs() {
    let server = start(&[]);
    let mut client = server.client();
    let lines = [
        "ACL SETUSER me on nopass ~* +get +acl",
        "AUTH me x",
        "GET a",
        "ACL SETUSER me -get",
        "GET a",
        "AUTH default x",
        "GET a",
    ];
    client.send(lines.map(common::request).concat());
    let replies: Vec<String> = lines.iter().map(|_| client.reply().text()).collect();
    assert_eq!(replies, ["OK", "OK", "(nil)", "OK", &no_command("me", "get"), "OK", "(nil)"]);
}

#[test]
fn clients_of_a_user_that_is_removed_are_closed() {
    let server = start(&[]);
    let mut admin = server.client();
    admin.text("ACL SETUSER alice on >p allkeys +@all");
    admin.text("ACL SETUSER bob on >p allkeys +@all");
    let (mut alice, mut bob) = (log_in(&server, "alice", "p"), log_in(&server, "bob", "p"));
    assert!(admin.text("CLIENT LIST").contains(" user=alice "));
    assert_eq!(admin.call("ACL DELUSER alice nosuch"), Value::Int(1));
    assert_eq!(alice.try_call("GET a"), None);
    assert_eq!(bob.text("GET a"), "(nil)");
    assert_eq!(bob.call("ACL DELUSER bob"), Value::Int(1), "who removes itself is told so");
    assert_eq!(bob.try_call("GET a"), None);
    admin.text("ACL SETUSER carol on nopass +@all");
    let mut carols = [log_in(&server, "carol", "x"), log_in(&server, "carol", "x")];
    assert_eq!(admin.call("CLIENT KILL USER carol"), Value::Int(2));
    assert!(carols.iter_mut().all(|carol| carol.try_call("PING").is_none()));
    assert_eq!(admin.text("PING"), "PONG");
}

#[test]
fn clients_that_listen_to_what_they_may_not_use_any_more_are_closed() {
    let server = start(&[]);
    let mut admin = server.client();
    let listen = |rules: &str, line: &str, admin: &mut Client| {
        admin.text(&format!("ACL SETUSER ps reset on nopass +@all {rules}"));
        let mut client = log_in(&server, "ps", "x");
        client.call(line);
        client
    };
    for (rules, line, change, ends) in [
        ("&a &b", "SUBSCRIBE a", "resetchannels &a", false),
        ("&a &b", "SUBSCRIBE b", "resetchannels &a", true),
        ("&*", "PSUBSCRIBE a*", "resetchannels &a", true),
        ("&*", "PSUBSCRIBE a*", "resetchannels &a*", false),
        ("&a*", "SSUBSCRIBE ab", "resetchannels", true),
        ("&a*", "SUBSCRIBE ab", "-@all", false),
        ("&a*", "SUBSCRIBE ab", "allchannels", false),
    ] {
        let mut client = listen(rules, line, &mut admin);
        assert_eq!(admin.text(&format!("ACL SETUSER ps {change}")), "OK");
        assert_eq!(client.try_call("PING").is_none(), ends, "{line} with {rules}, then {change}");
    }
}

#[test]
fn a_transaction_is_looked_at_when_it_is_put_together_and_when_it_runs() {
    let server = start(&[]);
    let mut admin = server.client();
    admin.text("ACL SETUSER alice on nopass ~a* &* +@all");
    let mut alice = log_in(&server, "alice", "x");
    alice.text("MULTI");
    assert_eq!(alice.text("SET b 1"), NO_KEY);
    assert!(alice.text("EXEC").starts_with("EXECABORT"));
    alice.text("MULTI");
    for line in ["SET a 1", "INCR a", "PUBLISH c x", "GET a"] {
        assert_eq!(alice.text(line), "QUEUED");
    }
    admin.text("ACL SETUSER alice -incr resetchannels");
    let replies = alice.call("EXEC");
    let texts: Vec<String> = replies.items().iter().map(Value::text).collect();
    assert_eq!((&*texts[0], &*texts[3]), ("OK", "1"));
    assert!(texts[1].ends_with("following reason: no permission to execute the command or subcommand"), "{texts:?}");
    assert!(texts[2].ends_with("no permission to access one of the channels used as arguments"));
    let noted = denials(&mut admin);
    assert_eq!(noted[0].each_ref().map(String::as_str), ["channel", "multi", "c", "alice", "1"]);
    assert_eq!(noted[1].each_ref().map(String::as_str), ["command", "multi", "incr", "alice", "1"]);
    assert_eq!(noted[2].each_ref().map(String::as_str), ["key", "multi", "b", "alice", "1"]);
}

#[test]
fn scripts_call_what_their_callers_may() {
    let server = start(&[]);
    let mut admin = server.client();
    admin.text("ACL SETUSER alice on nopass ~a* +@all -incr");
    let mut alice = log_in(&server, "alice", "x");
    let mut run = |script: &str| alice.words(&[b"EVAL", script.as_bytes(), b"0"]).text();
    assert_eq!(run("return redis.call('set', 'a', '1')"), "OK");
    assert!(
        run("return redis.call('get', 'b')").starts_with("ERR ACL failure in script: No permissions to access a key")
    );
    assert!(
        run("return redis.call('incr', 'a')")
            .starts_with("ERR ACL failure in script: User alice has no permissions to run the 'incr' command")
    );
    assert!(
        run("return redis.call('publish', 'c', '1')")
            .starts_with("ERR ACL failure in script: No permissions to access a channel")
    );
    assert_eq!(run("return tostring(redis.acl_check_cmd('get', 'a'))"), "true");
    assert_eq!(run("return tostring(redis.acl_check_cmd('get', 'b'))"), "false");
    assert_eq!(run("return tostring(redis.acl_check_cmd('incr', 'a'))"), "false");
    let noted = denials(&mut admin);
    assert_eq!(noted.len(), 3, "to ask is not denied: {noted:?}");
    assert_eq!(noted[2].each_ref().map(String::as_str), ["key", "lua", "b", "alice", "1"]);
}

#[test]
fn sort_reads_keys_that_it_does_not_name_only_for_who_may_read_all() {
    let server = start(&[]);
    let mut admin = server.client();
    admin.text("RPUSH a 2 1");
    admin.text("ACL SETUSER alice on nopass ~a* +@all");
    let mut alice = log_in(&server, "alice", "x");
    assert_eq!(alice.call("SORT a").items().len(), 2);
    assert_eq!(alice.call("SORT a BY nosort").items().len(), 2);
    assert_eq!(alice.text("SORT a BY w_*"), "ERR BY option of SORT denied due to insufficient ACL permissions.");
    assert_eq!(alice.text("SORT a GET x_*"), "ERR GET option of SORT denied due to insufficient ACL permissions.");
    assert_eq!(alice.text("SORT a STORE b"), NO_KEY);
    admin.text("ACL SETUSER alice %R~*");
    assert_eq!(alice.call("SORT a BY w_* GET x_*").items().len(), 2);
}

#[test]
fn the_password_of_the_configuration_is_the_default_users() {
    let server = start(&[("requirepass", "secret")]);
    let mut stranger = server.client();
    assert_eq!(stranger.text("ACL WHOAMI"), NOAUTH);
    let mut admin = log_in(&server, "default", "secret");
    assert_eq!(lines_of(&mut admin).len(), 1);
    admin.text("ACL SETUSER default >other");
    log_in(&server, "default", "other");
    log_in(&server, "default", "secret");
    assert_eq!(admin.text("CONFIG SET requirepass third"), "OK");
    assert!(stranger.text("AUTH other").starts_with("WRONGPASS"));
    assert_eq!(stranger.text("AUTH third"), "OK");
    admin.text("ACL SETUSER default nopass");
    let mut open = server.client();
    assert_eq!(open.text("PING"), "PONG");
    assert!(open.text("AUTH third").starts_with("ERR AUTH <password> called without any password configured"));
    admin.text("ACL SETUSER default off");
    assert_eq!(server.client().text("PING"), NOAUTH);
    assert_eq!(open.text("PING"), "PONG", "a client that is in stays in");
    admin.text("ACL SETUSER default on resetpass");
    assert!(server.client().text("AUTH x").starts_with("WRONGPASS"), "without a password none will do");
}

#[test]
fn what_is_denied_is_counted_and_noted() {
    let server = start(&[("acllog-max-len", "3")]);
    let mut admin = server.client();
    admin.text("ACL SETUSER alice on >p ~a +get &c +publish");
    let mut alice = log_in(&server, "alice", "p");
    for line in ["GET b", "GET b", "SET a 1", "PUBLISH d x", "AUTH alice wrong", "AUTH nosuch p"] {
        assert!(alice.text(line).starts_with("NOPERM") || alice.text(line).starts_with("WRONGPASS"), "{line}");
    }
    assert_eq!(alice.text("PUBLISH d x"), NO_CHANNEL);
    let counts = ["auth", "cmd", "key", "channel"].map(|reason| admin.info(&format!("acl_access_denied_{reason}")));
    assert_eq!(counts, ["4", "1", "2", "2"].map(str::to_owned));
    let noted = denials(&mut admin);
    assert_eq!(noted.len(), 3);
    assert_eq!(noted[0].each_ref().map(String::as_str), ["channel", "toplevel", "d", "alice", "2"]);
    assert_eq!(noted[1].each_ref().map(String::as_str), ["auth", "toplevel", "AUTH", "nosuch", "2"]);
    assert_eq!(admin.call("ACL LOG 1").items().len(), 1);
    admin.text("CONFIG SET acllog-max-len 1");
    assert_eq!(denials(&mut admin).len(), 1);
    assert_eq!(admin.text("ACL LOG RESET"), "OK");
    assert!(denials(&mut admin).is_empty());
    admin.text("CONFIG RESETSTAT");
    assert_eq!(admin.info("acl_access_denied_auth"), "0");
}

fn lines_of(client: &mut Client) -> Vec<String> {
    client.call("ACL LIST").items().iter().map(Value::text).collect()
}

#[test]
fn users_of_a_file_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    std::fs::write(&path, "user alice on >p ~a* +get\nuser bob on nopass +@all\n").unwrap();
    let settings = [("aclfile", path.to_str().unwrap())];
    let saved = {
        let server = start_in(dir.path(), &settings);
        let mut admin = server.client();
        assert_eq!(lines_of(&mut admin).len(), 3);
        let (mut alice, mut bob) = (log_in(&server, "alice", "p"), log_in(&server, "bob", "x"));
        admin.text("ACL SETUSER alice ~b");
        assert_eq!(admin.text("ACL SAVE"), "OK");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("user alice on sanitize-payload #") && !text.contains(">p"), "{text}");
        std::fs::write(&path, text.replace("user bob ", "user carol ")).unwrap();
        assert_eq!(admin.text("ACL LOAD"), "OK");
        assert_eq!(alice.text("GET b"), "(nil)", "a client whose user is still there goes on");
        assert_eq!(bob.try_call("PING"), None);
        std::fs::write(&path, "user alice +nosuch\n").unwrap();
        let before = lines_of(&mut admin);
        let error = admin.text("ACL LOAD");
        assert!(
            error.starts_with("ERR ")
                && error.contains(":1: Error in applying operation '+nosuch': Unknown command or"),
            "{error}"
        );
        assert_eq!(lines_of(&mut admin), before);
        assert_eq!(admin.text("ACL SAVE"), "OK");
        before
    };
    let server = start_in(dir.path(), &settings);
    assert_eq!(lines_of(&mut server.client()), saved);
}

#[test]
fn users_that_make_no_sense_keep_the_server_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let file = path.to_str().unwrap();
    let with_file = |text: &str| {
        std::fs::write(&path, text).unwrap();
        refused(config_in(dir.path(), &[("aclfile", file)]))
    };
    assert!(with_file("user a >secret +nosuch").ends_with("was performed"));
    assert!(with_file("nouser").contains(":1 should start with user keyword"));
    std::fs::remove_file(&path).unwrap();
    let missing = refused(config_in(dir.path(), &[("aclfile", file)]));
    assert!(missing.contains("opening file") && missing.ends_with("No such file or directory"), "{missing}");
    let declared = |text: &str| {
        let mut config = config_in(dir.path(), &[]);
        config.apply_text(text.as_bytes(), "q.conf").unwrap();
        refused(config)
    };
    let error = declared("user a on >secret junk\n");
    assert!(error.ends_with("user 'a', rule 3: Syntax error") && !error.contains("secret"), "{error}");
    assert!(declared("user \"a b\" on\n").contains("a name has no spaces"));
    let mut both = config_in(dir.path(), &[("aclfile", file)]);
    both.apply_text(b"user a on\n", "q.conf").unwrap();
    assert!(refused(both).contains("declare them in one of the two"));
    let twice = config_in(dir.path(), &[]).apply_text(b"user a on\nuser a off\n", "q.conf").unwrap_err();
    assert!(twice.to_string().contains("line 2: Duplicate user found"), "{twice}");
}

fn start_from(file: &Path) -> Running {
    let mut config = config_in(file.parent().unwrap(), &[]);
    config.apply_file(file).unwrap();
    start_with(config)
}

#[test]
fn users_of_the_configuration_are_rewritten_into_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("q.conf");
    std::fs::write(&file, "# mine\nuser alice on >p ~a* +get (+set ~b)\ntimeout 7\n").unwrap();
    let lines = {
        let server = start_from(&file);
        let mut admin = server.client();
        log_in(&server, "alice", "p");
        admin.text("ACL SETUSER bob on nopass %R~x &c -@all +@read -get");
        admin.text("CONFIG SET requirepass secret");
        assert_eq!(admin.text("CONFIG REWRITE"), "OK");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("# mine\nuser alice on sanitize-payload #")
                && text.contains("\nuser bob on nopass sanitize-payload "),
            "{text}"
        );
        assert!(!text.contains("user default"), "requirepass says it: {text}");
        admin.text("ACL SETUSER default >other");
        assert_eq!(admin.text("CONFIG REWRITE"), "OK");
        lines_of(&mut admin)
    };
    let server = start_from(&file);
    assert_eq!(lines_of(&mut log_in(&server, "default", "other")), lines);
    assert_eq!(server.client().text("PING"), NOAUTH);
}

#[test]
fn new_users_have_the_channels_that_a_setting_says() {
    let server = start(&[("acl-pubsub-default", "allchannels")]);
    let mut admin = server.client();
    admin.text("ACL SETUSER one");
    admin.text("CONFIG SET acl-pubsub-default resetchannels");
    admin.text("ACL SETUSER two");
    let lines = lines_of(&mut admin);
    assert!(lines[1].contains("user one off") && lines[1].contains("&* -@all"), "{lines:?}");
    assert!(lines[2].contains("resetchannels -@all"), "{lines:?}");
}

#[test]
fn secrets_of_users_are_not_shown() {
    let server = start(&[("slowlog-log-slower-than", "0")]);
    let (mut admin, mut watcher) = (server.client(), server.client());
    assert_eq!(watcher.text("MONITOR"), "OK");
    admin.text("ACL SETUSER alice on >hidden1 ~* +@all");
    admin.text("AUTH alice hidden1");
    admin.call("HELLO 2 AUTH alice hidden1");
    admin.text("ACL SETUSER alice <hidden1 >hidden2");
    admin.text("CONFIG SET requirepass hidden3");
    admin.text("AUTH default hidden3");
    let log = admin.call("SLOWLOG GET -1");
    let texts: Vec<String> = log
        .items()
        .iter()
        .flat_map(|entry| entry.items()[3].items().iter().map(Value::text).collect::<Vec<_>>())
        .collect();
    assert!(texts.contains(&"(redacted)".to_owned()) && !texts.iter().any(|text| text.contains("hidden")), "{texts:?}");
    admin.text("ECHO end");
    loop {
        let line = watcher.reply().text();
        assert!(!line.contains("hidden"), "{line}");
        if line.ends_with("\"ECHO\" \"end\"") {
            break;
        }
    }
}

#[test]
fn a_word_that_only_looks_like_an_option_hides_no_key_from_the_rules() {
    let server = start(&[]);
    let mut admin = server.client();
    admin.text("MSET secret 1 app:1 1");
    admin.text("XADD secrets 1-1 f v");
    admin.text("XGROUP CREATE secrets streams 0");
    admin.text("ACL SETUSER app on nopass +@all ~app:* ~streams");
    let mut app = log_in(&server, "app", "x");
    let port = common::free_port().to_string();
    let mut migrate = |rest: &[&str]| {
        let words = [&["MIGRATE", "127.0.0.1", &port, "", "0", "30000"], rest].concat();
        app.words(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()).text()
    };
    assert_eq!(migrate(&["KEYS", "secret", "KEYS", "app:1"]), NO_KEY);
    assert_eq!(migrate(&["AUTH", "KEYS", "KEYS", "secret"]), NO_KEY);
    // The password is no key, and neither is the empty word in the place of one.
    let allowed = migrate(&["AUTH", "KEYS", "KEYS", "app:1"]);
    assert_eq!(allowed, "IOERR error or timeout writing to target instance");
    assert_eq!(app.text("XREADGROUP COUNT 1 GROUP streams app:c streams secrets >"), NO_KEY);
}
