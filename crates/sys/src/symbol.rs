//! Symbols of the dynamic linker: what a library that stands in front of another's functions calls on to.
//!
//! Relies on `dlsym`. `RTLD_NEXT` means the objects loaded after the one that holds this code, which is the shared
//! library that this crate is linked into.

use std::ffi::CStr;
use std::ptr::NonNull;

/// The next definition of `name` after our own; `None` when there is none. May take the dynamic linker's lock: to be
/// called before it matters, such as when the library is loaded.
pub fn next(name: &CStr) -> Option<NonNull<()>> {
    // SAFETY: the name is a C string and the handle is one that the function defines.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.cast())
}

/// Whether the definition of `name` that the program uses is in the object that holds this code. As [`next`] otherwise.
pub fn is_first_here(name: &CStr) -> bool {
    // SAFETY: the name is a C string and the handle is one that the function defines.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // Not by comparing addresses: the linker may take ours from the object that comes first, too.
    let here = object_of(is_first_here as *const ());
    !first.is_null() && here.is_some() && object_of(first.cast_const().cast()) == here
}

/// Where memory lies that the program's own calls of `malloc` get. An executable at a fixed address may stand for a function that it
/// takes from elsewhere, so that [`is_first_here`] can't tell; this does what the program does. `None` without memory. As
/// [`next`] otherwise.
pub fn program_malloc_address() -> Option<usize> {
    // SAFETY: the names are C strings and the handle is one that the function defines.
    let find = |name: &CStr| NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    let (malloc, free) = (find(c"malloc")?, find(c"free")?);
    // SAFETY: an object that defines functions of these names must give them these types, since the C library calls them, too.
    let (malloc, free) = unsafe {
        (
            std::mem::transmute::<NonNull<libc::c_void>, unsafe extern "C" fn(usize) -> *mut libc::c_void>(malloc),
            std::mem::transmute::<NonNull<libc::c_void>, unsafe extern "C" fn(*mut libc::c_void)>(free),
        )
    };
    // SAFETY: any size may be asked for.
    let pointer = NonNull::new(unsafe { malloc(16) })?;
    // SAFETY: it was just allocated there, and no other code has it.
    unsafe { free(pointer.as_ptr()) };
    Some(pointer.as_ptr() as usize)
}

/// Whether a function is in the same object as the C library's others.
pub fn is_of_c_library(function: *mut ()) -> bool {
    let library = object_of(libc::getauxval as *const ());
    library.is_some() && object_of(function.cast_const()) == library
}

/// Whether the object that holds this code was loaded after the C library, as by `dlopen`: the program's calls go past it then.
/// What is linked or preloaded comes before the C library.
pub fn is_loaded_late() -> bool {
    let (Some(here), Some(library)) = (object_of(is_loaded_late as *const ()), object_of(libc::getauxval as *const ()))
    else {
        return false;
    };
    let mut search = Search { bases: [here, library], first: None };
    // SAFETY: the function keeps the type of the callback, and the search outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_object), (&raw mut search).cast()) };
    search.first == Some(1)
}

/// Which of two objects comes first in the dynamic linker's list.
struct Search {
    bases: [usize; 2],
    first: Option<usize>,
}

/// # Safety
/// `info` is the dynamic linker's, and `search` leads to a [`Search`] that only this call uses.
unsafe extern "C" fn note_object(info: *mut libc::dl_phdr_info, _: usize, search: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` passes a valid description, and the pointer that `is_loaded_late` gave it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    for index in 0..info.dlpi_phnum {
        // SAFETY: as many headers lie there as the description says, and they stay while the object is in the list.
        let header = unsafe { &*info.dlpi_phdr.add(usize::from(index)) };
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let has = |base: usize| header.p_type == libc::PT_LOAD && base.wrapping_sub(start) < header.p_memsz as usize;
        if let Some(found) = search.bases.iter().position(|&base| has(base)) {
            search.first = Some(found);
            return 1;
        }
    }
    0
}

/// Where the object that holds `address` begins.
fn object_of(address: *const ()) -> Option<usize> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the struct is as the call writes it, and valid when zero.
    let found = unsafe {
        let known = libc::dladdr(address.cast(), found.as_mut_ptr()) != 0;
        known.then(|| found.assume_init())
    };
    found.map(|found| found.dli_fbase as usize)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_library_is_found_behind_us() {
        assert!(super::next(c"getpid").is_some() && !super::is_first_here(c"getpid"));
        assert!(super::next(c"quire_no_such_function").is_none());
        assert!(super::program_malloc_address().is_some());
        assert!(!super::is_loaded_late(), "the program comes before its libraries");
    }
}
