//! What the running kernel (or the container around us) allows, found out by trying.
//!
//! Relies on each probe being harmless: it opens, asks and closes. `quire doctor` prints the list; engines ask before
//! they build on a feature.

use std::fs::{self, File};
use std::path::Path;

use crate::rw::{self, RwFlags};

/// Whether a feature can be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// Works.
    Works,
    /// Works, but not as well as it could.
    Limited,
    /// Refused or missing; the named fallback is taken.
    Missing,
}

/// One probed feature.
#[derive(Clone, Debug)]
pub struct Feature {
    /// Its name as kernel documentation has it.
    pub name: &'static str,
    /// What was found.
    pub state: FeatureState,
    /// Details of what was found.
    pub detail: String,
    /// What Quire does instead, or what the operator can do; empty if nothing.
    pub advice: &'static str,
}

/// Probes everything that Quire uses or will use; `dir` is where images are to lie.
pub fn all(dir: &Path) -> Vec<Feature> {
    vec![
        kernel(),
        huge_pages(),
        overcommit(),
        io_uring(),
        direct_io(dir),
        uncached(dir),
        no_wait(dir),
        remap(),
        userfaultfd(),
        faults_of_calls(),
        populate_write(),
        open_files(),
        map_count(),
        fuse(),
        file_handles(dir),
        file_locks(),
    ]
}

fn fuse() -> Feature {
    let helper = crate::mounts::fuse_helper();
    let (state, detail) = match (crate::mounts::try_fuse(), &helper) {
        (Ok(()), Some(helper)) => (FeatureState::Works, format!("/dev/fuse and {}", helper.display())),
        (Ok(()), None) => (FeatureState::Limited, "/dev/fuse, but no fusermount3: only root can mount".into()),
        (Err(error), _) => (FeatureState::Missing, format!("/dev/fuse: {error}")),
    };
    Feature {
        name: "FUSE",
        state,
        detail,
        advice: "for `quire mount` only: modprobe fuse, install fuse3; containers need the device /dev/fuse and CAP_SYS_ADMIN",
    }
}

fn file_handles(dir: &Path) -> Feature {
    let (works, detail) = of_file(dir, "refused by the file system, or to this user", |file| {
        let (handle, root) = (crate::handle::of(file), File::open(dir));
        handle.is_ok_and(|handle| root.is_ok_and(|root| crate::handle::open(&root, &handle).is_ok()))
    });
    Feature {
        name: "open_by_handle_at",
        state: if works { FeatureState::Works } else { FeatureState::Limited },
        detail,
        advice: "fallback: after a crash `quire mount` looks for files by inode number, through the whole directory",
    }
}

fn file_locks() -> Feature {
    let (state, detail) = match crate::task::file_lock_call(std::process::id()) {
        Ok(_) if crate::ask::is_root() => (FeatureState::Works, "/proc tells of all threads".to_owned()),
        Ok(_) => (FeatureState::Limited, "/proc tells of this user's threads only".to_owned()),
        Err(error) => (FeatureState::Missing, format!("/proc/PID/syscall: {error}")),
    };
    Feature {
        name: "sleepers on file locks",
        state,
        detail,
        advice: "for `quire mount` only: run it as root; without it the mount does not learn that a critical process waits for a file lock of another",
    }
}

/// Asks `about` a new file in `dir`, which is removed afterwards; an answer that isn't yes comes with its reason.
fn of_file(dir: &Path, no: &str, about: impl FnOnce(&File) -> bool) -> (bool, String) {
    let probe = dir.join(format!(".quire-doctor.tmp-{}", std::process::id()));
    let (yes, detail) = match crate::file::create_new(&probe) {
        Ok(file) => {
            let yes = about(&file);
            // If this fails, the search for leftovers finds it.
            let _ = fs::remove_file(&probe);
            (yes, if yes { "yes" } else { no })
        }
        Err(_) => (false, "the directory can't be written"),
    };
    (yes, format!("{detail} ({})", dir.display()))
}

fn direct_io(dir: &Path) -> Feature {
    let (works, detail) = of_file(dir, "refused by the file system", |file| crate::file::try_direct(file, true));
    Feature {
        name: "direct I/O",
        state: if works { FeatureState::Works } else { FeatureState::Limited },
        detail,
        advice: "fallback: images go through the page cache, slower and crowding it",
    }
}

fn uncached(dir: &Path) -> Feature {
    let (works, detail) =
        of_file(dir, "refused by the kernel or the file system", |file| rw::allows(file, RwFlags::DONT_CACHE));
    Feature {
        name: "RWF_DONTCACHE",
        state: if works { FeatureState::Works } else { FeatureState::Missing },
        detail,
        advice: "fallback: what is read through the page cache stays there (Linux 6.14 and ext4, XFS or Btrfs do better)",
    }
}

fn no_wait(dir: &Path) -> Feature {
    let (works, detail) =
        of_file(dir, "refused by the kernel or the file system", |file| rw::allows(file, RwFlags::NO_WAIT));
    Feature {
        name: "RWF_NOWAIT",
        state: if works { FeatureState::Works } else { FeatureState::Missing },
        detail,
        advice: "fallback: the page cache isn't asked before the device is",
    }
}

fn remap() -> Feature {
    let size = crate::mem::HUGE_PAGE_SIZE;
    let moved = crate::mem::Reservation::new(size).and_then(|memory| {
        let staging = crate::mem::Reservation::new(size)?;
        staging.commit(0..size)?;
        // SAFETY: no other code knows either range, and no reference into them exists.
        unsafe { memory.move_from(&staging, 0..size) }
    });
    let (state, detail) = match moved {
        Ok(()) => (FeatureState::Works, "memory can be exchanged in place".to_owned()),
        Err(error) => (FeatureState::Missing, error.to_string()),
    };
    Feature { name: "mremap(DONTUNMAP)", state, detail, advice: "fallback: start the server with --restore-mode load" }
}

fn kernel() -> Feature {
    let release = crate::proc::kernel_release();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let state = if version >= (6, 1) { FeatureState::Works } else { FeatureState::Limited };
    Feature { name: "kernel", state, detail: release, advice: "Quire is tested on Linux 6.1 and later" }
}

fn huge_pages() -> Feature {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let choice = text.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("absent");
    let state = match choice {
        "always" | "madvise" => FeatureState::Works,
        _ => FeatureState::Limited,
    };
    Feature {
        name: "transparent huge pages",
        state,
        detail: choice.to_owned(),
        advice: "without them memory works in 4 KiB pages, slower: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    }
}

fn overcommit() -> Feature {
    let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default().trim().to_owned();
    let state = if mode == "2" { FeatureState::Limited } else { FeatureState::Works };
    Feature {
        name: "overcommit",
        state,
        detail: format!("vm.overcommit_memory = {mode}"),
        advice: "mode 2 counts committed memory strictly; Quire commits in steps and needs no mode 1, since it never forks",
    }
}

fn io_uring() -> Feature {
    let result = io_uring::IoUring::new(2);
    let (state, detail) = match result {
        Ok(_) => (FeatureState::Works, "a ring could be made".to_owned()),
        Err(error) => (FeatureState::Missing, error.to_string()),
    };
    Feature { name: "io_uring", state, detail, advice: "fallback: a pool of threads with preadv and pwritev" }
}

fn userfaultfd() -> Feature {
    // SAFETY: the call takes flags only and returns a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | 1) };
    let (state, detail) = if fd >= 0 {
        // SAFETY: the descriptor was just made here, and no other code has it.
        unsafe { libc::close(fd as i32) };
        (FeatureState::Works, "user-mode faults can be handled".to_owned())
    } else {
        (FeatureState::Missing, std::io::Error::last_os_error().to_string())
    };
    Feature {
        name: "userfaultfd",
        state,
        detail,
        advice: "not used by the server (its barrier needs no faults); containers: allow the system call in seccomp",
    }
}

/// Whether faults inside system calls can be seen to, which the heap on a file needs.
pub fn faults_of_calls() -> Feature {
    use crate::userfault::{Userfault, features};
    let (state, detail) = match Userfault::open(features::PAGEFAULT_FLAG_WP) {
        Ok(fault) if fault.is_user_mode_only() => {
            (FeatureState::Missing, "only faults of user mode can be had".to_owned())
        }
        Ok(_) => (FeatureState::Works, "a program's heap can lie on a file (QUIRE_HEAP)".to_owned()),
        Err(error) => (FeatureState::Missing, error.to_string()),
    };
    Feature {
        name: "faults in system calls",
        state,
        detail,
        advice: "no heap on a file: be root (CAP_SYS_PTRACE), or may use /dev/userfaultfd, or set \
                 vm.unprivileged_userfaultfd=1",
    }
}

fn populate_write() -> Feature {
    let works = crate::mem::Reservation::new(crate::mem::HUGE_PAGE_SIZE).and_then(|memory| {
        memory.commit(0..crate::mem::PAGE_SIZE)?;
        memory.populate(0..crate::mem::PAGE_SIZE)
    });
    let (state, detail) = match works {
        Ok(()) => (FeatureState::Works, "memory can be backed ahead of use".to_owned()),
        Err(error) => (FeatureState::Missing, error.to_string()),
    };
    Feature { name: "MADV_POPULATE_WRITE", state, detail, advice: "fallback: pages are backed at first touch" }
}

fn open_files() -> Feature {
    let allowed = crate::limits::raise_open_files(10_064);
    let state = if allowed >= 10_064 { FeatureState::Works } else { FeatureState::Limited };
    Feature {
        name: "open files",
        state,
        detail: format!("{allowed} allowed"),
        advice: "10,000 clients need 10,064: ulimit -n, or LimitNOFILE= in the unit file",
    }
}

fn map_count() -> Feature {
    let count = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let state = if count.unwrap_or(0) >= 65_530 { FeatureState::Works } else { FeatureState::Limited };
    Feature {
        name: "mappings",
        state,
        detail: count.map_or_else(|| "unknown".into(), |count| format!("vm.max_map_count = {count}")),
        advice: "restores of many GiB need a few per region for a short while: sysctl vm.max_map_count=262144",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_probe_answers_and_says_what_to_do() {
        for feature in super::all(&std::env::temp_dir()) {
            assert!(!feature.detail.is_empty(), "{}", feature.name);
            assert!(!feature.advice.is_empty(), "{}", feature.name);
        }
    }
}
