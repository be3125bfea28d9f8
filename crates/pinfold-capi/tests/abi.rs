//! The binary interface is the one that is written down in `abi.txt`: symbols and sizes.
//!
//! `PINFOLD_ABI=write cargo test -p pinfold-capi --test abi` writes it anew: lines may come, while
//! one that changes or goes takes another number in `build.rs`.

use std::{fmt::Write, fs, path::Path, process::Command};

use pinfold_capi::*;

/// The sizes of all structures, bytes.
fn sizes() -> Vec<(&'static str, usize)> {
    macro_rules! sizes {
        ($($name:ident)*) => { vec![$((stringify!($name), size_of::<$name>())),*] };
    }
    sizes![
        pinfold_completion pinfold_config pinfold_counters pinfold_key pinfold_peer_info
        pinfold_receipt pinfold_received
    ]
}

/// The symbols that the library shows and programs may use.
fn symbols() -> Vec<String> {
    let here = std::env::current_exe().expect("this program");
    let mut folders = here.ancestors().skip(1).take(2);
    let file = folders.find_map(|folder| {
        let file = folder.join("libpinfold_capi.so");
        file.exists().then_some(file)
    });
    let file = file.expect("the library, built beside this test");
    let said = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(&file)
        .output()
        .expect("nm, which comes with a C compiler");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8(said.stdout).expect("text");
    let mut names: Vec<String> =
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.retain(|name| name.starts_with("pinfold_"));
    names.sort();
    names
}

#[test]
fn the_interface_is_what_is_written_down() {
    let mut built = String::new();
    for (name, size) in sizes() {
        writeln!(built, "{name} {size}").expect("a string");
    }
    for name in symbols() {
        writeln!(built, "{name}").expect("a string");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi.txt");
    if std::env::var_os("PINFOLD_ABI").is_some_and(|how| how == "write") {
        fs::write(&file, &built).expect("the list written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(built == kept, "abi.txt differs from what is built:\n{built}");
}

#[test]
fn every_symbol_is_in_the_header() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/pinfold.h");
    let header = fs::read_to_string(header).expect("the header");
    for name in symbols() {
        assert!(header.contains(&format!("{name}(")), "{name} is not in pinfold.h");
    }
}
