//! Programs in C and C++ that use the library as its users do: compiled, linked and run, with the
//! shared library and with the archive, and under AddressSanitizer.

mod ending;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ending::end_well;

/// The longest that a program may run.
const PATIENCE: Duration = Duration::from_secs(120);

/// The libraries that the archive needs, as `pinfold.pc` names them.
const NEEDED: [&str; 5] = ["-lpthread", "-ldl", "-lm", "-lrt", "-lgcc_s"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder that cargo built the library in.
fn built() -> PathBuf {
    let here = std::env::current_exe().expect("this program");
    let mut folders = here.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libpinfold_capi.so").exists());
    found.expect("the library, built beside this test").to_owned()
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq)]
enum With {
    Shared,
    Archive,
    Sanitizer,
}

/// Compiles a program and runs it to its end.
fn run(source: &str, with: With) {
    let source = root().join(source);
    let place = tempfile::tempdir().expect("a folder");
    let libraries = place.path().join("lib");
    fs::create_dir(&libraries).expect("a folder");
    // The names that an installed library has.
    let link = |from: &str, to: &str| {
        std::os::unix::fs::symlink(built().join(from), libraries.join(to)).expect("a link");
    };
    link("libpinfold_capi.so", "libpinfold.so.0");
    if with == With::Archive {
        link("libpinfold_capi.a", "libpinfold.a");
    } else {
        link("libpinfold_capi.so", "libpinfold.so");
    }
    let program = place.path().join("program");
    let plus = source.extension().is_some_and(|it| it == "cpp");
    let (compiler, standard) = if plus { ("c++", "-std=c++17") } else { ("cc", "-std=gnu11") };
    let mut compile = Command::new(compiler);
    compile.args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]);
    compile.arg("-I").arg(root().join("include")).arg(&source).arg("-o").arg(&program);
    if with == With::Sanitizer {
        compile.args(["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]);
    }
    compile.arg("-L").arg(&libraries).arg("-lpinfold").args(NEEDED);
    let said = compile.output().expect("a C compiler");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));

    let child = Command::new(&program)
        .env("LD_LIBRARY_PATH", &libraries)
        // Memory that the library keeps to its end is no leak; leaks.c counts what is left behind.
        .env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0")
        .spawn()
        .expect("the program");
    end_well(&source.display().to_string(), child, PATIENCE);
}

/// A test of each program, by how it is linked.
macro_rules! programs {
    ($($name:ident: $source:literal, $with:ident;)*) => {$(
        #[test]
        fn $name() {
            run($source, With::$with);
        }
    )*};
}

programs! {
    messages: "tests/c/messages.c", Shared;
    queue: "tests/c/queue.c", Shared;
    memory: "tests/c/memory.c", Shared;
    active: "tests/c/active.c", Shared;
    errors: "tests/c/errors.c", Shared;
    claims: "tests/c/claims.c", Shared;
    claims_sanitized: "tests/c/claims.c", Sanitizer;
    leaks: "tests/c/leaks.c", Shared;
    denied: "tests/c/denied.c", Shared;
    wrapper: "tests/c/wrapper.cpp", Shared;
    wrapper_sanitized: "tests/c/wrapper.cpp", Sanitizer;
    messages_of_the_archive: "tests/c/messages.c", Archive;
    messages_sanitized: "tests/c/messages.c", Sanitizer;
    queue_sanitized: "tests/c/queue.c", Sanitizer;
    memory_sanitized: "tests/c/memory.c", Sanitizer;
    active_sanitized: "tests/c/active.c", Sanitizer;
    errors_sanitized: "tests/c/errors.c", Sanitizer;
}
