//! Rows under unusual circumstances, and the processes that make them.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::harness::{alone, has, pinfold, records, run, text, unhurried};

#[test]
fn circumstances_are_measured_with_what_one_would_use_instead() {
    let _alone = alone();
    let args = ["--json", "--rounds", "1", "--sizes", "8", "--what", "latency,cpu", "--seconds"];
    for setting in ["neighbour", "paced", "dedicated", "tags", "posted", "peers", "pairs"] {
        let done =
            unhurried(|seconds| run(&[&args[..], &[seconds, "--settings", setting]].concat()));
        assert!(done.status.success(), "{setting}: {}", text(&done.stderr));
        let records = records(&done.stdout);
        assert!(records.iter().all(|record| record["setting"] == setting), "{records:?}");
        for subject in ["pinfold", "pipe", "unix"] {
            assert!(has(&records, "subject", subject), "{setting} {subject}: {records:?}");
        }
        assert_eq!(has(&records, "what", "cpu"), setting == "paced");
        let settled = !["neighbour", "dedicated", "pairs"].contains(&setting);
        assert!(settled || records.iter().all(|record| record["class"] == "mixed"));
    }
}

/// All living descendants of a process.
fn family(parent: i32) -> Vec<i32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let of = |child: i32| std::iter::once(child).chain(family(child));
    children.split_whitespace().filter_map(|child| child.parse().ok()).flat_map(of).collect()
}

fn is_there(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie waits for the process that adopted it, and holds nothing.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn those_beside_end_with_the_first_process() {
    let _alone = alone();
    // Without CONFIG_PROC_CHILDREN they cannot be found.
    if fs::metadata("/proc/thread-self/children").is_err() {
        return eprintln!("SKIPPED: other processes cannot be found here");
    }
    // The second process; and the third one, or the other pair.
    for (setting, others) in [("neighbour", 2), ("pairs", 3)] {
        let mut child = pinfold()
            .args(["--json", "--seconds", "60", "--rounds", "900", "--settings", setting])
            .args(["--what", "latency", "--sizes", "8"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let all = loop {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it measured");
            let all = family(child.id() as i32);
            if all.len() >= others {
                break all;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{setting}: {all:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        while let Some(left) = all.iter().find(|&&process| is_there(process)) {
            assert!(start.elapsed() < Duration::from_secs(10), "{setting}: {left} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
