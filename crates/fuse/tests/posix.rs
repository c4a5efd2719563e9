//! What programs expect of a file system: names, links, permissions, times, attributes, files without names.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use quire_fuse::MountError;
use quire_sys::at::{self, AccessMode, OnExisting};
use quire_sys::xattr;
use quire_writecache::AdmissionPolicy;

use crate::common::{self, Place, possible};

#[test]
fn bytes_written_are_read_back_before_and_after_a_remount_and_in_the_directory() {
    if !possible() {
        return;
    }
    for policy in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo] {
        let place = Place::new(policy);
        let run = place.mount();
        fs::create_dir(run.at("d")).unwrap();
        let mut file = File::create_new(run.at("d/f")).unwrap();
        file.write_all(b"hello ").unwrap();
        file.write_all(b"world").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(run.at("d/f")).unwrap(), b"hello world");
        drop(file);
        run.end(false);
        let run = place.mount();
        assert_eq!(fs::read(run.at("d/f")).unwrap(), b"hello world", "{policy}");
        let figures = run.end(true);
        assert_eq!(figures["cache"]["cached_blocks"], 0);
        assert_eq!(fs::read(place.slow("d/f")).unwrap(), b"hello world", "{policy}");
    }
}

#[test]
fn names_are_made_linked_renamed_and_removed() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let run = place.mount();
    fs::write(run.at("a"), b"a").unwrap();
    fs::hard_link(run.at("a"), run.at("b")).unwrap();
    assert_eq!(fs::metadata(run.at("a")).unwrap().ino(), fs::metadata(run.at("b")).unwrap().ino());
    assert_eq!(fs::metadata(run.at("b")).unwrap().nlink(), 2);
    symlink("a", run.at("l")).unwrap();
    assert_eq!(fs::read_link(run.at("l")).unwrap(), OsStr::new("a"));
    assert_eq!(fs::read(run.at("l")).unwrap(), b"a");
    fs::write(run.at("c"), b"c").unwrap();
    fs::rename(run.at("c"), run.at("b")).unwrap();
    assert_eq!(fs::read(run.at("b")).unwrap(), b"c");
    assert_eq!(fs::metadata(run.at("a")).unwrap().nlink(), 1);
    let root = File::open(run.root()).unwrap();
    let rename = |from: &str, to: &str, existing| at::rename(&root, OsStr::new(from), &root, OsStr::new(to), existing);
    assert_eq!(rename("a", "b", OnExisting::Refuse).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    rename("a", "b", OnExisting::Exchange).unwrap();
    assert_eq!((fs::read(run.at("a")).unwrap(), fs::read(run.at("b")).unwrap()), (b"c".to_vec(), b"a".to_vec()));
    fs::create_dir_all(run.at("d/e")).unwrap();
    assert_eq!(fs::remove_dir(run.at("d")).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
    fs::rename(run.at("a"), run.at("d/e/a")).unwrap();
    fs::rename(run.at("d/e"), run.at("e")).unwrap();
    assert_eq!(fs::read(run.at("e/a")).unwrap(), b"c");
    assert_eq!(fs::read(run.at("a")).unwrap_err().kind(), io::ErrorKind::NotFound);
    at::make_node(&root, OsStr::new("p"), 0o010_600, 0).unwrap();
    assert!(fs::metadata(run.at("p")).unwrap().file_type().is_fifo());
    drop(root);
    fs::remove_dir_all(run.at("e")).unwrap();
    let mut names: Vec<_> = fs::read_dir(run.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "d", "l", "p"]);
    run.end(false);
}

#[test]
fn large_directories_are_listed_whole_and_emptied_while_listed() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::CriticalProcessIo);
    for number in 0..500 {
        fs::write(place.slow(&format!("file-{number}")), b"x").unwrap();
    }
    let run = place.mount();
    let mut seen = 0;
    for entry in fs::read_dir(run.root()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().len(), 1);
        fs::remove_file(entry.path()).unwrap();
        seen += 1;
    }
    assert_eq!((seen, fs::read_dir(run.root()).unwrap().count()), (500, 0));
    run.end(false);
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let run = place.mount();
    let mut file = File::options().read(true).write(true).create_new(true).open(run.at("f")).unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    fs::remove_file(run.at("f")).unwrap();
    file.write_all(&[8; 10_000]).unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(9_999)).unwrap();
    let mut two = [0; 2];
    file.read_exact(&mut two).unwrap();
    assert_eq!((two, file.metadata().unwrap().nlink()), ([7, 8], 0));
    drop(file);
    fs::write(run.at("f"), b"another").unwrap();
    assert_eq!(fs::read(run.at("f")).unwrap(), b"another");
    let figures = run.end(true);
    assert_eq!(figures["cache"]["cached_blocks"], 0);
}

#[test]
fn a_file_that_is_opened_after_its_last_name_went_has_all_its_bytes() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let run = place.mount();
    let root = File::open(run.root()).unwrap();
    let names = || (0..20).map(|number| run.at(&format!("f{number}")));
    for is_replaced in [false, true] {
        let mut found = Vec::new();
        for path in names() {
            let file = File::create(&path).unwrap();
            // The directory's file gets these at once, and the others later.
            file.write_all_at(&[1; 8], 0).unwrap();
            file.write_all_at(&[1; 70_000], 0).unwrap();
            // As a program that has found the name and not opened it yet.
            found.push(at::place(&root, path.file_name().unwrap()).unwrap());
        }
        for path in names() {
            if is_replaced {
                fs::write(run.at("new"), b"new").unwrap();
                fs::rename(run.at("new"), &path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
        }
        for place in &found {
            let file = at::open(place, AccessMode::ReadWrite).unwrap();
            file.write_all_at(&[2; 5000], 70_000).unwrap();
            let mut bytes = Vec::new();
            (&file).read_to_end(&mut bytes).unwrap();
            assert!(bytes == [&[1; 70_000][..], &[2; 5000]].concat(), "{} bytes", bytes.len());
        }
    }
    drop(root);
    assert_eq!(run.end(true)["cache"]["cached_blocks"], 0);
}

#[test]
fn permissions_owners_times_and_attributes_are_the_directorys() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let run = place.mount();
    let path = run.at("f");
    fs::write(&path, b"some bytes").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(place.slow("f")).unwrap().mode() & 0o7777, 0o640);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&path).unwrap().set_modified(past).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), past);
    let file = File::open(&path).unwrap();
    match xattr::set(&file, OsStr::new("user.colour"), b"blue", 0) {
        Ok(()) => {
            assert_eq!(xattr::get(&file, OsStr::new("user.colour")).unwrap(), b"blue");
            assert_eq!(xattr::list(&file).unwrap(), b"user.colour\0");
            xattr::remove(&file, OsStr::new("user.colour")).unwrap();
            assert!(xattr::get(&file, OsStr::new("user.colour")).is_err());
        }
        Err(error) => common::skipped(format!("no extended attributes here: {error}")),
    }
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        std::os::unix::fs::chown(&path, Some(77), Some(78)).unwrap();
        let facts = fs::metadata(&path).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (77, 78));
    }
    drop(file);
    run.end(true);
    // Bytes reached the file long after the time was set.
    assert_eq!(fs::metadata(place.slow("f")).unwrap().modified().unwrap(), past);
    assert_eq!(fs::read(place.slow("f")).unwrap(), b"some bytes");
}

#[test]
fn lengths_change_and_what_comes_back_is_zero() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let run = place.mount();
    let file = File::options().read(true).write(true).create_new(true).open(run.at("f")).unwrap();
    file.write_all_at(&[9; 20_000], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(12_000).unwrap();
    let bytes = fs::read(run.at("f")).unwrap();
    assert!(bytes.len() == 12_000 && bytes[..5_000].iter().all(|&byte| byte == 9));
    assert!(bytes[5_000..].iter().all(|&byte| byte == 0));
    at::reserve_within(&file, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12_000);
    let far = 5 << 30;
    file.write_all_at(b"far", far).unwrap();
    let mut three = [0; 3];
    file.read_exact_at(&mut three, far).unwrap();
    assert_eq!((&three, file.metadata().unwrap().len()), (b"far", far + 3));
    let mut hole = [1; 100];
    file.read_exact_at(&mut hole, 1 << 30).unwrap();
    assert_eq!(hole, [0; 100]);
    drop(file);
    run.end(true);
    assert_eq!(fs::metadata(place.slow("f")).unwrap().len(), far + 3);
}

#[test]
fn the_mounts_own_folder_is_hidden_and_used_once() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let run = place.mount();
    assert_eq!(fs::read_dir(run.root()).unwrap().count(), 0);
    assert_eq!(fs::metadata(run.at(".quire")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(fs::create_dir(run.at(".quire")).is_err());
    let again = quire_fuse::Mount::start(&place.config);
    assert!(matches!(again, Err(MountError::Busy { .. })));
    let other = Place::new(AdmissionPolicy::All);
    let mut config = other.config.clone();
    config.log = place.config.log.clone();
    assert!(matches!(quire_fuse::Mount::start(&config), Err(MountError::Busy { .. })));
    run.end(false);
}

#[test]
fn the_root_tells_figures_and_takes_hints() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::Critical);
    let run = place.mount();
    let own = std::process::id().to_string();
    let root = run.root();
    let sync = |name: &str| {
        let mut file = File::create(run.at(name)).unwrap();
        // The first flush is for the directory, too, and takes the bytes along.
        file.sync_all().unwrap();
        file.write_all(&[1; 4096]).unwrap();
        file.sync_all().unwrap();
    };
    let read = |name: &str| xattr::get_at(root, name).unwrap();
    let logged = || {
        let stats = read("user.quire.stats");
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        stats["cache"]["critical_blocks"]["direct"]["data"].as_u64().unwrap()
    };
    sync("before");
    assert_eq!(logged(), 0, "no hint or rule says that this process is critical");
    xattr::set_at(root, "user.quire.critical", own.as_bytes()).unwrap();
    assert_eq!(read("user.quire.critical"), own.as_bytes());
    sync("after");
    assert_eq!(logged(), 1);
    let trace = read("user.quire.trace");
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    let about = |decision: &&serde_json::Value| decision["file"] == "after";
    let decision = trace.as_array().unwrap().iter().find(about).unwrap();
    assert_eq!((&decision["fast"], &decision["verdict"]), (&true.into(), &"critical".into()));
    xattr::set_at(root, "user.quire.critical", format!("-{own}").as_bytes()).unwrap();
    sync("then");
    assert_eq!(logged(), 1);
    assert!(xattr::set_at(root, "user.quire.critical", b"nonsense").is_err());
    assert!(xattr::set_at(root, "user.quire.stats", b"1").is_err());
    run.end(false);
}

#[test]
fn a_program_that_no_rule_names_is_named_in_the_figures_where_the_policy_asks_for_rules() {
    if !possible() {
        return;
    }
    for (policy, wanted) in [(AdmissionPolicy::CriticalProcessIo, 1), (AdmissionPolicy::All, 0)] {
        let place = Place::new(policy);
        let run = place.mount();
        let mut file = File::create(run.at("f")).unwrap();
        for _ in 0..110 {
            file.write_all(b"x").unwrap();
            file.sync_data().unwrap();
        }
        drop(file);
        let stats = run.mounted().stats();
        let unruled = stats["unruled"].as_array().unwrap();
        assert_eq!(unruled.len(), wanted, "{policy}: {unruled:?}");
        for program in unruled {
            let name = fs::read_to_string("/proc/self/comm").unwrap();
            assert_eq!(program["program"].as_str().unwrap(), name.trim_end());
            assert!(program["flushes"].as_u64().unwrap() >= 110, "{program}");
        }
        run.end(false);
    }
}

#[test]
fn a_read_only_mount_changes_nothing() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    fs::write(place.slow("f"), b"x").unwrap();
    place.config.read_only = true;
    let run = place.mount();
    assert_eq!(fs::read(run.at("f")).unwrap(), b"x");
    assert_eq!(fs::write(run.at("f"), b"y").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::remove_file(run.at("f")).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    run.end(false);
}
