//! The programs in C of the documents compile without a warning and run.

mod ending;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ending::end_well;

/// The longest that a program may run.
const PATIENCE: Duration = Duration::from_secs(60);

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The programs of a page, and the lines that they begin at.
fn programs(page: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(page).expect("a page");
    let (mut all, mut open) = (Vec::new(), None::<(usize, String)>);
    for (at, line) in text.lines().enumerate() {
        match (&mut open, line) {
            (None, "```c") => open = Some((at + 1, String::new())),
            (Some(_), "```") => all.extend(open.take()),
            (Some((_, program)), line) => {
                program.push_str(line);
                program.push('\n');
            }
            _ => {}
        }
    }
    assert!(open.is_none(), "{}: a program without an end", page.display());
    all
}

/// A folder with the library under the names that an installed one has.
fn library() -> tempfile::TempDir {
    let here = std::env::current_exe().expect("this program");
    let mut folders = here.ancestors().skip(1).take(2);
    let built = folders.find_map(|folder| {
        let file = folder.join("libpinfold_capi.so");
        file.exists().then_some(file)
    });
    let built = built.expect("the library, built beside this test");
    let place = tempfile::tempdir().expect("a folder");
    for name in ["libpinfold.so", "libpinfold.so.0"] {
        symlink(&built, place.path().join(name)).expect("a link");
    }
    place
}

fn compile(place: &Path, name: &str, program: &str) -> PathBuf {
    let (source, out) = (place.join(name).with_extension("c"), place.join(name));
    fs::write(&source, program).expect("a file");
    let said = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-pthread", "-I"])
        .arg(docs().join("../crates/pinfold-capi/include"))
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .arg("-L")
        .arg(place)
        .args(["-lpinfold", "-lpthread"])
        .output()
        .expect("a C compiler");
    assert!(said.status.success(), "{name}:\n{}", String::from_utf8_lossy(&said.stderr));
    out
}

#[test]
fn the_programs_of_the_pages_run() {
    let place = library();
    let mut pages = vec![docs().join("c.md")];
    for entry in fs::read_dir(docs().join("guide")).expect("the guide") {
        pages.push(entry.expect("a page").path());
    }
    let names = tempfile::tempdir().expect("a folder");
    let start = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", place.path()).env("PINFOLD_DIR", names.path().join("names"));
        command.args(words).spawn().expect("a program")
    };
    let mut count = 0;
    for page in pages {
        let stem = page.file_stem().expect("a name").to_string_lossy().into_owned();
        for (line, program) in programs(&page) {
            let name = format!("{stem}-{line}");
            let built = compile(place.path(), &name, &program);
            // One half of a pair: the example beside it is the other.
            let other = program.contains("\"local:greeter\"").then(|| {
                let text = docs().join("../crates/pinfold-capi/examples/receive.c");
                let text = fs::read_to_string(text).expect("an example");
                start(&compile(place.path(), "receive", &text), &["local:greeter"])
            });
            end_well(&name, start(&built, &[]), PATIENCE);
            if let Some(other) = other {
                end_well("receive", other, PATIENCE);
            }
            count += 1;
        }
    }
    assert!(count >= 3, "{count} programs in C");
}
