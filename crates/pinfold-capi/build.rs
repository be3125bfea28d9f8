//! Names the shared library as programs that are linked with it look for it: by the version of the
//! binary interface, so that one with another interface is not loaded in its place.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpinfold.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
