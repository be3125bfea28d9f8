//! The provider: what libfabric asks for when it has loaded the file.
#![allow(unsafe_code)]
// Invariant: the structure that is handed out is static; libfabric alone writes to it.

use std::{cell::UnsafeCell, ptr};

use crate::{
    fabric,
    ffi::{flags::version, object::FiProvider},
    getinfo,
};

/// The name by which programs ask for the provider.
pub const NAME: &std::ffi::CStr = c"pinfold";

/// The version of the interface that is answered for. Callers that ask for a newer one are not
/// served by libfabric, and fields are only ever added.
const INTERFACE: u32 = version(2, 99);

/// This provider's version.
pub const VERSION: u32 = version(0, 1);

struct Provider(UnsafeCell<FiProvider>);

// SAFETY: only libfabric reads and writes it, behind its own lock.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(UnsafeCell::new(FiProvider {
    version: VERSION,
    fi_version: INTERFACE,
    context: [ptr::null_mut(); 4],
    name: NAME.as_ptr(),
    getinfo: getinfo::getinfo,
    fabric: fabric::open,
    cleanup,
}));

/// The entry point: libfabric calls it once when it has loaded the file.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut FiProvider {
    PROVIDER.0.get()
}

/// Ends what runs: nothing of the program's does once all objects are closed. The file stays in
/// memory, as `build.rs` says, so threads of the library may end when they like.
unsafe extern "C" fn cleanup() {}
