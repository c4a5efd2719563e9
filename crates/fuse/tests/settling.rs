//! What programs see of a file when it was closed after its last write: nothing changes any more, while its bytes are on
//! their way to the directory and when they are there.

use std::fs::{self, File, FileTimes};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use quire_writecache::AdmissionPolicy;

use crate::common::{Place, Running, possible};

/// Length, times of writing and of the last change, and space in units of 512 bytes, past the kernel's own memory of it.
fn facts(path: &Path) -> (u64, String, String, u64) {
    let output = Command::new("stat").args(["--cached=never", "--format=%s %.9Y %.9Z %b"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    (words[0].parse().unwrap(), words[1].into(), words[2].into(), words[3].parse().unwrap())
}

fn in_use(run: &Running) -> u64 {
    run.mounted().stats()["files_in_use"].as_u64().unwrap()
}

/// Looks at the files all the time until none is in use; `check` says whether what is seen is right.
fn until_settled(run: &Running, mut check: impl FnMut()) {
    let limit = Instant::now() + Duration::from_secs(120);
    while in_use(run) > 0 {
        assert!(Instant::now() < limit, "{} files are in use", in_use(run));
        check();
        std::thread::sleep(Duration::from_millis(20));
    }
    check();
}

#[test]
fn times_stay_as_they_were_when_the_file_was_closed() {
    if !possible() {
        return;
    }
    for policy in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo] {
        let place = Place::new(policy);
        let run = place.mount();
        let names = ["plain", "flushed", "dated", "cut", "small"];
        for name in names {
            let file = File::create(run.at(name)).unwrap();
            let len = if name == "small" { 1000 } else { 300_000 };
            file.write_all_at(&vec![1; len], 0).unwrap();
            match name {
                "flushed" => file.sync_all().unwrap(),
                "dated" => {
                    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
                    file.set_times(FileTimes::new().set_modified(old)).unwrap();
                }
                "cut" => file.set_len(200_001).unwrap(),
                _ => {}
            }
        }
        let times = |name: &str| {
            let (len, modified, changed, _) = facts(&run.at(name));
            (len, modified, changed)
        };
        let before = names.map(times);
        until_settled(&run, || assert_eq!(names.map(times), before, "{policy}"));
        assert!(before[2].1.starts_with("1000000000."), "{:?}", before[2]);
        // What a program changes is seen.
        fs::set_permissions(run.at("plain"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_ne!(times("plain"), before[0]);
        File::options().append(true).open(run.at("flushed")).unwrap().set_len(300_001).unwrap();
        assert_ne!(times("flushed").2, before[1].2);
        run.end(true);
    }
}

#[test]
fn what_is_pending_takes_space_and_is_no_hole() {
    if !possible() {
        return;
    }
    for policy in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo] {
        let place = Place::new(policy);
        let run = place.mount();
        let path = run.at("f");
        let mut file = File::create(&path).unwrap();
        const LEN: u64 = 5_000_000;
        file.write_all_at(&vec![1; LEN as usize], 0).unwrap();
        let check = |moment: &str| {
            let (len, _, _, blocks) = facts(&path);
            assert!(len == LEN && blocks >= LEN.div_ceil(512), "{policy}, {moment}: {blocks} blocks of {len} bytes");
        };
        check("written");
        file.sync_all().unwrap();
        check("flushed");
        let seek = |to| quire_sys::at::seek(&file, 0, to).unwrap();
        assert_eq!((seek(false), seek(true)), (0, LEN));
        file.seek(SeekFrom::Start(0)).unwrap();
        drop(file);
        until_settled(&run, || check("closed"));
        let archive = place.dir.path().join("archive");
        let tar = |words: &[&str]| {
            let output = Command::new("tar").args(words).arg("-f").arg(&archive).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output
        };
        fs::write(run.at("g"), vec![2; LEN as usize]).unwrap();
        tar(&["--create", "--sparse", "--directory", run.root().to_str().unwrap(), "g"]);
        let restored = tar(&["--extract", "--to-stdout"]);
        assert!(restored.stdout == vec![2; LEN as usize], "{policy}: the archive has other bytes");
        run.end(true);
    }
}

#[test]
fn no_file_changes_while_tar_reads_what_was_just_written() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::CriticalProcessIo);
    let run = place.mount();
    for number in 0..40 {
        fs::write(run.at(&number.to_string()), vec![number; 400_000]).unwrap();
    }
    let read_all = || {
        // Where it sees that it writes to nothing, it reads nothing.
        let command = "tar --create --file - . | cat > /dev/null";
        let output = Command::new("bash").args(["-c", command]).current_dir(run.root()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    };
    (0..6).for_each(|_| read_all());
    until_settled(&run, || {});
    read_all();
    run.end(true);
}
