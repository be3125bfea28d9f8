//! `make install` lays out what is found and works: the examples are built against it and talk.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The longest that a program may run.
const PATIENCE: Duration = Duration::from_secs(60);

fn built() -> PathBuf {
    let here = std::env::current_exe().expect("this program");
    let mut folders = here.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libpinfold_capi.so").exists());
    found.expect("the library, built beside this test").to_owned()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs below a folder, in place of a package's root.
fn install(prefix: &Path) {
    let said = Command::new(root().join("../../scripts/install.sh"))
        .env("PREFIX", prefix)
        .env("BUILT", built())
        .env_remove("DESTDIR")
        .output()
        .expect("the script");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// The flags of a field of the installed `pinfold.pc`, as pkg-config would say them.
fn flags(prefix: &Path, field: &str) -> Vec<String> {
    let file = prefix.join("lib/pkgconfig/pinfold.pc");
    let text = fs::read_to_string(file).expect("pinfold.pc");
    let mut values = vec![];
    let fill = |value: &str, values: &Vec<(String, String)>| {
        values.iter().rev().fold(value.to_owned(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value)
        })
    };
    for line in text.lines() {
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| !name.contains(':')) {
            let value = fill(value, &values);
            values.push((name.to_owned(), value));
        } else if let Some(value) = line.strip_prefix(&format!("{field}: ")) {
            return fill(value, &values).split_whitespace().map(str::to_owned).collect();
        }
    }
    panic!("pinfold.pc has no {field}:\n{text}");
}

fn compile(prefix: &Path, name: &str) -> PathBuf {
    let program = prefix.join(name);
    let said = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"])
        .args(flags(prefix, "Cflags"))
        .arg(root().join("examples").join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .args(flags(prefix, "Libs"))
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
        .output()
        .expect("a C compiler");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    program
}

/// Waits for the end of a program, and kills it if it does not come.
fn end(mut child: Child) -> String {
    let begun = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().expect("a child");
            child.wait().expect("a child");
            panic!("a program did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stdout.take().expect("its output").read_to_string(&mut said).expect("text");
    said
}

#[test]
fn the_examples_talk_over_the_installed_library() {
    let place = tempfile::tempdir().expect("a folder");
    let prefix = place.path();
    install(prefix);
    let lib = prefix.join("lib");
    assert_eq!(
        fs::read_link(lib.join("libpinfold.so")).expect("a link"),
        Path::new("libpinfold.so.0")
    );
    assert!(lib.join("libpinfold.a").exists());
    let cmake =
        fs::read_to_string(lib.join("cmake/pinfold/pinfold-config.cmake")).expect("CMake's");
    let version = env!("CARGO_PKG_VERSION");
    assert!(cmake.contains(&format!("libpinfold.so.{version}")) && !cmake.contains('@'), "{cmake}");
    assert!(lib.join(format!("libpinfold.so.{version}")).exists());

    let (receive, send) = (compile(prefix, "receive"), compile(prefix, "send"));
    let address = format!("local:capi-examples-{}", std::process::id());
    let start = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::piped()).spawn().expect("a program")
    };
    let receiving = start(&receive, &[&address]);
    let sent = end(start(&send, &[&address, "one", "two"]));
    assert_eq!(sent, "one: by inline\ntwo: by inline\n");
    assert_eq!(end(receiving), "0: one\n1: two\n");
}

/// CMake finds the package, where there is one.
#[test]
fn cmake_finds_it() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return pinfold_tests::skip("there is no cmake; run: apt-get install cmake");
    }
    let place = tempfile::tempdir().expect("a folder");
    let prefix = place.path().join("installed");
    install(&prefix);
    let project = place.path().join("project");
    fs::create_dir(&project).expect("a folder");
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(user C)\n\
                find_package(pinfold 0.1 REQUIRED)\nadd_executable(send send.c)\n\
                target_link_libraries(send pinfold::pinfold)\n";
    fs::write(project.join("CMakeLists.txt"), text).expect("a file");
    fs::copy(root().join("examples/send.c"), project.join("send.c")).expect("a file");
    let run = |words: &[&str]| {
        let said = Command::new("cmake")
            .args(words)
            .current_dir(&project)
            .env("CMAKE_PREFIX_PATH", &prefix)
            .output()
            .expect("cmake");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    run(&["-B", "build"]);
    run(&["--build", "build"]);
    let mut child = Command::new(project.join("build/send"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("its errors")).read_line(&mut line).expect("text");
    assert!(line.starts_with("usage: "), "{line}");
    assert_eq!(child.wait().expect("a child").code(), Some(2));
}
