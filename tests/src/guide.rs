//! The programs in Rust of the guide and of the read-me: documentation tests, which
//! `cargo test -p pinfold-tests --doc` compiles and runs.
//!
//! Those in Python are run by `python/tests/test_docs.py`, those in C by
//! `crates/pinfold-capi/tests/guide.rs`.

/// A page, whose programs are this item's.
macro_rules! pages {
    ($($name:ident: $page:literal;)*) => {$(
        #[doc = include_str!(concat!("../../", $page))]
        pub struct $name;
    )*};
}

pages! {
    ReadMe: "README.md";
    Start: "docs/guide/start.md";
    Choosing: "docs/guide/choosing.md";
    Topics: "docs/guide/topics.md";
    Receipts: "docs/guide/receipts.md";
    Tuning: "docs/guide/tuning.md";
    Faults: "docs/guide/faults.md";
    Security: "docs/guide/security.md";
}
