//! Small new files go straight to the directory, and no program can tell: their bytes are there, in order, whatever becomes of
//! the file.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use quire_rng::SplitMix64;
use quire_writecache::AdmissionPolicy;
use serde_json::Value;

use crate::common::{Place, possible};

fn straight_bytes(stats: &Value) -> u64 {
    stats["requests"]["straight_bytes"].as_u64().unwrap()
}

#[test]
fn a_new_file_needs_no_volume_until_it_is_written_after_its_flush() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::CriticalProcessIo);
    place.config.critical = vec!["*".into()];
    let run = place.mount();
    let file = File::create(run.at("next")).unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    file.sync_all().unwrap();
    fs::rename(run.at("next"), run.at("f")).unwrap();
    let stats = run.mounted().stats();
    assert_eq!((straight_bytes(&stats), &stats["cache"]["written_bytes"]), (5000, &Value::from(0)));
    assert_eq!(fs::read(place.slow("f")).unwrap(), [1; 5000]);
    // Its name is owed once more, and after that nothing.
    file.write_all_at(&[2; 10], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(straight_bytes(&run.mounted().stats()), 5010);
    file.write_all_at(&[3; 10], 4995).unwrap();
    file.sync_all().unwrap();
    let stats = run.mounted().stats();
    assert_eq!(straight_bytes(&stats), 5010);
    assert!(stats["cache"]["logged_bytes"].as_u64() > Some(0));
    let expected = [&[2; 10][..], &[1; 4985], &[3; 10]].concat();
    assert_eq!(fs::read(run.at("f")).unwrap(), expected);
    drop(file);
    run.end(true);
    assert_eq!(fs::read(place.slow("f")).unwrap(), expected);
}

#[test]
fn a_file_that_grows_becomes_a_volume_with_all_it_had() {
    if !possible() {
        return;
    }
    for policy in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo] {
        let place = Place::new(policy);
        let run = place.mount();
        let mut file = File::create(run.at("f")).unwrap();
        let bytes = SplitMix64::new(7).bytes(200_000);
        for part in bytes.chunks(10_000) {
            file.write_all(part).unwrap();
        }
        // Over bytes of both kinds, unflushed as they are.
        file.write_all_at(&[0; 30_000], 50_000).unwrap();
        let expected = [&bytes[..50_000], &[0; 30_000], &bytes[80_000..]].concat();
        // The kernel may cut a write at a page, and who is slow finds the file flushed before.
        let straight = straight_bytes(&run.mounted().stats());
        assert!((1..=65_536).contains(&straight), "{straight}");
        assert_eq!(fs::read(run.at("f")).unwrap(), expected, "{policy}");
        file.sync_data().unwrap();
        drop(file);
        run.end(false);
        let run = place.mount();
        assert_eq!(fs::read(run.at("f")).unwrap(), expected, "{policy}");
        run.end(true);
        assert_eq!(fs::read(place.slow("f")).unwrap(), expected, "{policy}");
    }
}

#[test]
fn what_no_program_flushes_is_flushed_all_the_same_and_the_file_let_go() {
    if !possible() {
        return;
    }
    // One by one, and all at once.
    for count in [3, 40] {
        let place = Place::new(AdmissionPolicy::CriticalProcessIo);
        let run = place.mount();
        for number in 0..count {
            fs::write(run.at(&format!("{number}")), format!("{number}")).unwrap();
        }
        let kept = File::create(run.at("kept")).unwrap();
        kept.write_all_at(b"kept", 0).unwrap();
        let stats = || run.mounted().stats();
        let limit = Instant::now() + Duration::from_secs(30);
        while stats()["files_in_use"].as_u64() > Some(1) {
            assert!(Instant::now() < limit, "{} files are in use", stats()["files_in_use"]);
            std::thread::sleep(Duration::from_millis(50));
        }
        // Of many, too, a few may have been old enough by themselves.
        assert!(stats()["requests"]["slow_syncs"].as_u64() > Some(0) || count == 40);
        for number in 0..count {
            assert_eq!(fs::read_to_string(run.at(&format!("{number}"))).unwrap(), format!("{number}"));
        }
        drop(kept);
        run.end(true);
    }
}

#[test]
fn programs_that_replace_files_all_the_time_find_what_they_flushed() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::CriticalProcessIo);
    place.config.critical = vec!["*".into()];
    let run = place.mount();
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let run = &run;
            scope.spawn(move || {
                let mut rng = SplitMix64::new(writer + 1);
                for round in 0..60 {
                    let (new, name) = (run.at(&format!("new-{writer}")), run.at(&format!("{writer}-{}", rng.below(3))));
                    let len = 1 + rng.below(90_000) as usize;
                    let bytes = rng.bytes(len);
                    let mut file = File::create(&new).unwrap();
                    bytes.chunks(30_000).for_each(|part| file.write_all(part).unwrap());
                    if round % 3 > 0 {
                        file.sync_all().unwrap();
                    }
                    fs::rename(&new, &name).unwrap();
                    if round % 4 == 0 {
                        // Written once more under its new name, and cut.
                        file.write_all_at(&bytes[..len / 2], 0).unwrap();
                        file.set_len(len as u64 / 2).unwrap();
                        file.sync_data().unwrap();
                        assert_eq!(fs::read(&name).unwrap(), bytes[..len / 2]);
                    } else {
                        assert_eq!(fs::read(&name).unwrap(), bytes);
                    }
                    if round % 7 == 0 {
                        fs::remove_file(&name).unwrap();
                    }
                }
            });
        }
    });
    run.end(true);
}
