//! What `/proc` says of another process or thread: whose it is, what it is called, what it sleeps in, on which file, and
//! which sockets it has.
//!
//! Relies on procfs. Threads are found under their own number, too. Everything is a snapshot: the task may be gone, and its
//! number given away, by the time the caller looks at the answer; [`TaskIdentity::start_ticks`] tells.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Who a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskIdentity {
    /// Its short name, which a thread may choose for itself.
    pub name: String,
    /// The process that started its process.
    pub parent: u32,
    /// When it was started, in the kernel's ticks since boot. A number and this together are never given twice.
    pub start_ticks: u64,
}

/// Who the task with this number is.
pub fn identity(task: u32) -> Option<TaskIdentity> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{task}/stat")).ok()?))
}

/// The name stands in parentheses and may hold some.
fn parse_stat(text: &str) -> Option<TaskIdentity> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let name = text.get(open + 1..close)?.to_owned();
    let rest: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
    Some(TaskIdentity { name, parent: rest.get(1)?.parse().ok()?, start_ticks: rest.get(19)?.parse().ok()? })
}

/// The process to which a task belongs: its own number, if it is the first of its process.
pub fn process_of(task: u32) -> Option<u32> {
    status_field(task, "Tgid")
}

/// The user under whose name a task runs.
pub fn user_of(task: u32) -> Option<u32> {
    status_field(task, "Uid")
}

/// Whether a task is in this group besides its own one. One of which the system tells nothing is not.
pub fn is_in_group(task: u32, group: u32) -> bool {
    let groups = status_line(task, "Groups").unwrap_or_default();
    groups.split_ascii_whitespace().any(|word| word.parse() == Ok(group))
}

/// Whether a task may do what administrators may (`CAP_SYS_ADMIN`). One of which the system tells nothing may not.
pub fn may_administer(task: u32) -> bool {
    const SYS_ADMIN: u32 = 21;
    let bits = status_line(task, "CapEff").and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> SYS_ADMIN & 1 != 0)
}

fn status_field(task: u32, name: &str) -> Option<u32> {
    status_line(task, name)?.split_ascii_whitespace().next()?.parse().ok()
}

fn status_line(task: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
}

/// The title of a process: its arguments, or what it has written over them.
pub fn title_of(process: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    Some(text.trim_end().to_owned())
}

/// The program that a process runs.
pub fn program_of(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/exe")).ok()
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It has the processor, or wants it.
    Running,
    /// It sleeps until something comes in: on a socket, or on one of several descriptors.
    AwaitingInput,
    /// It sleeps on a lock.
    AwaitingLock,
    /// It sleeps in another call.
    OtherCall,
}

/// What a task is doing now. `None` if it is gone, or the system doesn't tell this process.
pub fn doing(task: u32) -> Option<TaskState> {
    let text = fs::read_to_string(format!("/proc/{task}/syscall")).ok()?;
    let first = text.split_ascii_whitespace().next()?;
    if first == "running" {
        return Some(TaskState::Running);
    }
    let number: i64 = first.parse().ok()?;
    let awaits_input = [
        libc::SYS_epoll_pwait,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select,
    ];
    let awaits_lock = [libc::SYS_futex, libc::SYS_semop, libc::SYS_semtimedop];
    Some(match number {
        number if awaits_input.contains(&number) => TaskState::AwaitingInput,
        number if awaits_lock.contains(&number) => TaskState::AwaitingLock,
        _ => TaskState::OtherCall,
    })
}

/// The descriptor of the file whose lock a task holds or waits for, if it sleeps in a call that takes one: the kernel lets
/// one at a time write to a file, flush it or change its length, and asks for the end of some in turn, too.
///
/// # Errors
/// The task is gone, or the system doesn't tell this process.
pub fn file_lock_call(task: u32) -> io::Result<Option<u32>> {
    Ok(parse_file_lock_call(&fs::read_to_string(format!("/proc/{task}/syscall"))?))
}

/// Numbers of the file system and of the inode behind a task's descriptor, without asking the process that serves the file.
///
/// # Errors
/// The task or its descriptor is gone, or the system doesn't tell this process.
pub fn file_behind(task: u32, descriptor: u32) -> io::Result<(u64, u64)> {
    crate::at::numbers_of(format!("/proc/{task}/fd/{descriptor}").as_ref())
}

/// The call's number and its arguments, or the word that the task runs.
fn parse_file_lock_call(text: &str) -> Option<u32> {
    let mut words = text.split_ascii_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let arguments: Vec<u64> = words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let descriptor = match number {
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_fsetxattr
        | libc::SYS_sendfile => arguments.first()?,
        libc::SYS_lseek
            if [libc::SEEK_END, libc::SEEK_DATA, libc::SEEK_HOLE].contains(&(*arguments.get(2)? as i32)) =>
        {
            arguments.first()?
        }
        libc::SYS_copy_file_range | libc::SYS_splice => arguments.get(2)?,
        _ => return None,
    };
    // The register is wider than the number.
    Some(*descriptor as u32)
}

/// Whether a process holds a socket over which it is connected to another process. `None` if the system doesn't tell.
pub fn has_connection(process: u32) -> Option<bool> {
    let mut sockets = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let number = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        sockets.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    if sockets.is_empty() {
        return Some(false);
    }
    let connected = |file: &str, state: usize, connected: &str, inode: usize| {
        let text = fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            words.get(state) == Some(&connected)
                && words
                    .get(inode)
                    .and_then(|word| word.parse().ok())
                    .is_some_and(|number: u64| sockets.contains(&number))
        })
    };
    Some(connected("tcp", 3, "01", 9) || connected("tcp6", 3, "01", 9) || connected("unix", 5, "03", 6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_process_is_told_from_its_threads_and_knows_its_names() {
        let own = std::process::id();
        let identity = identity(own).unwrap();
        assert!(identity.start_ticks > 0 && !identity.name.is_empty());
        assert_eq!(process_of(own), Some(own));
        assert!(title_of(own).unwrap().contains("sys"));
        assert!(program_of(own).is_some() && user_of(own).is_some());
        assert_eq!(super::identity(u32::MAX >> 1), None);
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let rest = "S 7 ".to_owned() + &"1 ".repeat(17) + "99 4";
        let identity = parse_stat(&format!("12 (a) b (c)) {rest}")).unwrap();
        assert_eq!((identity.name.as_str(), identity.parent, identity.start_ticks), ("a) b (c)", 7, 99));
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn calls_that_take_a_files_lock_name_its_descriptor() {
        let call = |number: libc::c_long, rest: &str| parse_file_lock_call(&format!("{number} {rest} 0x7ffd 0x7f"));
        assert_eq!(call(libc::SYS_pwrite64, "0x5 0x7f00 0x2000 0x0 0x0 0x0"), Some(5));
        assert_eq!(call(libc::SYS_fsync, "0xffffffff0000000c 0x0 0x0 0x0 0x0 0x0"), Some(12));
        assert_eq!(call(libc::SYS_copy_file_range, "0x3 0x0 0x4 0x0 0x1000 0x0"), Some(4));
        assert_eq!(call(libc::SYS_lseek, "0x3 0x0 0x2 0x0 0x0 0x0"), Some(3));
        assert_eq!(call(libc::SYS_lseek, "0x3 0x0 0x0 0x0 0x0 0x0"), None);
        assert_eq!(call(libc::SYS_read, "0x3 0x0 0x0 0x0 0x0 0x0"), None);
        for nothing in ["running\n", "-1 0x7ffd 0x7f", "1", ""] {
            assert_eq!(parse_file_lock_call(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_file_behind_a_descriptor_has_the_numbers_that_it_has_by_name() {
        use std::os::fd::AsRawFd;
        let file = fs::File::open("/proc/self/exe").unwrap();
        let facts = crate::at::facts(&file).unwrap();
        let found = file_behind(std::process::id(), file.as_raw_fd().cast_unsigned()).unwrap();
        assert_eq!(found, (facts.dev, facts.ino));
        assert!(file_behind(std::process::id(), 1 << 30).is_err());
    }

    #[test]
    fn a_connected_socket_and_a_wait_on_it_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(has_connection(std::process::id()), Some(true));
        let (send, receive) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            send.send(crate::thread::current().raw().cast_unsigned()).unwrap();
            far.read(&mut [0])
        });
        let task = receive.recv().unwrap();
        // Where ptrace is forbidden there is no answer.
        while let Some(doing) = doing(task) {
            if doing != TaskState::Running {
                break;
            }
            std::thread::yield_now();
        }
        drop(near);
        assert_eq!(reader.join().unwrap().unwrap(), 0);
    }
}
