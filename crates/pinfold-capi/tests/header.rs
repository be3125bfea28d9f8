//! The header is the one that the sources make.
//!
//! `PINFOLD_HEADER=write cargo test -p pinfold-capi --test header` writes it anew.

use std::{fs, path::Path};

#[test]
fn the_header_is_made_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_root_or_default(root);
    // Without asking cargo, which would look at the whole workspace.
    let made = cbindgen::Builder::new().with_config(config).with_src(root.join("src/lib.rs"));
    let mut text = Vec::new();
    made.generate().expect("a header").write(&mut text);
    // Safety is Rust's word, and said once at the header's head.
    let text = String::from_utf8(text).expect("text");
    let text = without_safety(&text);
    let place = root.join("include/pinfold.h");
    if std::env::var_os("PINFOLD_HEADER").is_some_and(|how| how == "write") {
        fs::write(&place, &text).expect("the header written");
    }
    let kept = fs::read_to_string(&place).unwrap_or_default();
    assert!(
        kept == text,
        "include/pinfold.h is not what the sources make; run: \
         PINFOLD_HEADER=write cargo test -p pinfold-capi --test header"
    );
}

/// The header without the sections that Rust's functions have for the safety of their callers.
fn without_safety(text: &str) -> String {
    let mut kept = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let comment = line.starts_with("//");
        if line.starts_with("// # Safety") {
            inside = true;
            if kept.last().is_some_and(|last: &&str| *last == "//") {
                kept.pop();
            }
        }
        inside &= comment;
        if !inside {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}
