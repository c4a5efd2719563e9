//! A mount hears what a program says of itself through the C API. Where FUSE is missing this says so and passes.

use std::ffi::CString;

use quire::critical::quire_critical;
use quire::status::quire_status;
use quire_fuse::{Mount, MountConfig};

#[test]
fn a_mount_takes_hints_and_forgets_them() {
    if let Err(error) = quire_sys::mounts::try_fuse() {
        return quire_sys::testing::skipped(format!("/dev/fuse can't be used here ({error})"));
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("slow")).unwrap();
    std::fs::create_dir(at("mnt")).unwrap();
    let mut config = MountConfig::new(at("slow"), at("mnt"), at("log"));
    config.cache.capacity_bytes = 16 << 20;
    let mounted = Mount::start(&config).unwrap();
    let path = CString::new(at("mnt").to_str().unwrap()).unwrap();
    let hints = || quire_sys::xattr::get_at(&at("mnt"), "user.quire.critical").unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { quire_critical(path.as_ptr(), 0, 1) }, quire_status::QUIRE_OK);
    assert_eq!(hints(), std::process::id().to_string().as_bytes());
    // SAFETY: a string.
    assert_eq!(unsafe { quire_critical(path.as_ptr(), 0, 0) }, quire_status::QUIRE_OK);
    assert_eq!(hints(), b"");
    mounted.unmounter().remove(false).unwrap();
    mounted.finish(None).unwrap();
}
