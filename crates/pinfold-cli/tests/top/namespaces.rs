//! Processes in a process-id namespace of their own, where they have another number.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use pinfold_tests::skip::skip;

use super::harness::{Look, PROGRAM, every, look_at};

/// A process that ends when dropped, with those that it started.
struct Inside(Child);

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_shown_by_the_number_that_it_has_here() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--pid", "--fork", "--kill-child", PROGRAM, "recv", "local:namespaced"])
        .arg(place.path())
        .env("PINFOLD_DIR", place.path().join("names"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let Ok(child) = command.spawn() else { return skip("there is no unshare") };
    let mut inside = Inside(child);
    let is_it = |one: &super::harness::Endpoint| {
        one.own["address"].as_str().is_some_and(|at| at.contains("namespaced"))
    };
    let start = Instant::now();
    let found = loop {
        let Look { endpoints, .. } = every();
        if let Some(one) = endpoints.into_iter().find(|one| is_it(one)) {
            break one;
        }
        if let Ok(Some(_)) = inside.0.try_wait() {
            let mut said = String::new();
            if let Some(mut error) = inside.0.stderr.take() {
                std::io::Read::read_to_string(&mut error, &mut said).unwrap();
            }
            assert!(said.contains("unshare"), "{said}");
            return skip(&format!("no process-id namespaces: {said}"));
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no endpoint is shown");
        thread::sleep(Duration::from_millis(50));
    };
    let pid = found.own["pid"].as_u64().unwrap() as u32;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    let numbers: Vec<u32> =
        numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.last(), Some(&1), "{numbers:?}");
    assert!(numbers.len() > 1 && numbers.contains(&pid), "{numbers:?}");
    assert_eq!(look_at(pid).endpoint().own["id"], found.own["id"]);
}
