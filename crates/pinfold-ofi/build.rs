//! Has the loader keep the provider in memory once it is there.
//!
//! libfabric unloads a provider when the program ends, while threads of the library may still be
//! at their last instructions, and destructors of threads that used it are still to run.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
