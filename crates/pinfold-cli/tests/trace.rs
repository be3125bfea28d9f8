//! `pinfold trace`: recorded programs have the calls, lengths and buffers that they make; traces
//! are cut and converted; damaged ones are named.
#![allow(unsafe_code)]
// Invariant: the code between fork and exec only sets a filter on this very process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::{Command, Output},
};

use pinfold_tests::{filter::deny, host::copy_program, skip, skip::is_root_or_skip};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");
const NOT_RECORDED: i32 = 125;

struct Place(TempDir);

fn words_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn trace(&self, words: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("trace").args(words).current_dir(self.0.path()).output().unwrap()
    }

    #[track_caller]
    fn ends(&self, words: &[&str], code: i32) -> (Vec<u8>, String) {
        let done = self.trace(words);
        let said = words_of(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        (done.stdout, said)
    }

    /// Records a program into `trace` and returns its calls. `None` where nobody may watch.
    #[track_caller]
    fn record(&self, words: &[&str], code: i32) -> Option<Vec<Value>> {
        let all = [&["record", "--out", "trace", "--"], words].concat();
        let done = self.trace(&all);
        let said = words_of(&done.stderr);
        if done.status.code() == Some(NOT_RECORDED) && said.contains("PTRACE_SEIZE") {
            skip(&said);
            return None;
        }
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains("calls are in trace"), "{said}");
        let (json, _) = self.ends(&["convert", "trace", "--to", "json"], 0);
        let text = words_of(&json);
        Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

fn number(event: &Value, field: &str) -> i64 {
    event[field].as_i64().unwrap()
}

/// The calls of a name on objects whose name ends so.
fn calls<'a>(events: &'a [Value], call: &str, name: &str) -> Vec<&'a Value> {
    let is_so = |it: &&Value| it["call"] == call && it["name"].as_str().unwrap().ends_with(name);
    events.iter().filter(is_so).collect()
}

#[test]
fn statuses_are_the_programs() {
    let place = Place::new();
    for (script, code) in [("exit 9", 9), ("kill -TERM $$", 128 + 15), ("true", 0)] {
        if place.record(&["sh", "-c", script], code).is_none() {
            return;
        }
    }
    let (_, said) = place.ends(&["record", "--out", "trace", "--", "/nowhere/it"], NOT_RECORDED);
    assert!(said.contains("execvp: No such file") && said.contains("trace: cannot run"), "{said}");
    let (_, said) = place.ends(&["record", "--out", "/nowhere/x", "--", "true"], NOT_RECORDED);
    assert!(said.contains("cannot write /nowhere/x"), "{said}");
    for (words, says) in [
        (&["record"][..], "required arguments"),
        (&["record", "--kinds", "tube", "--", "true"], "tube is none of socket, pipe"),
        (&["print", "trace", "--from", "x"], "write seconds"),
        (&["convert", "trace", "--to", "xml"], "none of binary, csv and json"),
        (&["cut", "trace", "--call", "reed"], "reed is none of"),
    ] {
        let (_, said) = place.ends(words, 2);
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

#[test]
fn forms_are_the_same_trace_and_cuts_are_parts() {
    let place = Place::new();
    let script = "dd if=/dev/zero bs=777 count=40 status=none | cat > file";
    let Some(events) = place.record(&["sh", "-c", script], 0) else { return };
    let moved = |call: &str, process: &str| -> i64 {
        let own = events.iter().filter(|it| it["call"] == call && it["process"] == process);
        own.filter(|it| it["kind"] == "pipe").map(|it| number(it, "result")).sum()
    };
    assert_eq!((moved("write", "dd"), moved("read", "cat")), (40 * 777, 40 * 777));

    place.ends(&["convert", "trace", "--to", "csv", "--out", "csv"], 0);
    place.ends(&["convert", "csv", "--to", "json", "--out", "json"], 0);
    place.ends(&["convert", "json", "--to", "binary", "--out", "back"], 0);
    assert!(fs::read(place.path("back")).unwrap() == fs::read(place.path("trace")).unwrap());
    // A trace may take its own place.
    place.ends(&["cut", "trace", "--process", "dd", "--kind", "pipe", "--out", "trace"], 0);
    let (text, _) = place.ends(&["print", "trace"], 0);
    let text = words_of(&text);
    assert_eq!(text.lines().count(), 40, "{text}");
    assert!(text.lines().all(|line| line.contains(" dd[") && line.ends_with("+777 = 777")));
    let (text, _) = place.ends(&["print", "trace", "--limit", "3"], 0);
    assert_eq!(words_of(&text).lines().count(), 3);
    let (rows, _) = place.ends(&["summary", "trace", "--json"], 0);
    let row: Value = serde_json::from_slice(&rows).unwrap();
    for (field, value) in [("calls", 40), ("bytes", 40 * 777), ("buffers", 1), ("reused", 39)] {
        assert_eq!(number(&row, field), value, "{row}");
    }
    let mut names: Vec<String> = fs::read_dir(place.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["back", "csv", "file", "json", "trace"], "something was left");
}

#[test]
fn damaged_traces_are_named_and_their_good_part_is_shown() {
    let place = Place::new();
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=9000", "status=none"];
    if place.record(&words, 0).is_none() {
        return;
    }
    let whole = fs::read(place.path("trace")).unwrap();
    fs::write(place.path("cut"), &whole[..whole.len() - 100]).unwrap();
    let (text, said) = place.ends(&["print", "cut"], 1);
    assert!(said.contains("cut: it is cut off in block"), "{said}");
    assert!(words_of(&text).lines().count() > 3000);
    let (text, said) = place.ends(&["summary", "cut"], 1);
    assert!(words_of(&text).contains("/dev") || !text.is_empty(), "{said}");
    place.ends(&["convert", "cut", "--to", "csv", "--out", "csv"], 1);
    assert!(!place.path("csv").exists());
    let mut damaged = whole;
    damaged[1000] ^= 4;
    fs::write(place.path("bad"), damaged).unwrap();
    let (_, said) = place.ends(&["summary", "bad"], 1);
    assert!(said.contains("bad: block 0, which begins at byte 16, is damaged"), "{said}");
    fs::write(place.path("text"), "hello").unwrap();
    let (_, said) = place.ends(&["print", "text"], 1);
    assert!(said.contains("text: it is no trace"), "{said}");
    let (_, said) = place.ends(&["print", "nowhere"], 1);
    assert!(said.contains("cannot read nowhere"), "{said}");
}

/// Each of four threads writes a buffer of its own, as long as no other's.
#[test]
fn threads_of_python_have_their_own_buffers() {
    let place = Place::new();
    let script = "
import os, threading
file = os.open('file', os.O_CREAT | os.O_WRONLY)
def work(number):
    own = bytearray(1000 + number)
    for _ in range(50):
        os.write(file, own)
all = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[one.start() for one in all]
[one.join() for one in all]
";
    if Command::new("python3").arg("--version").output().is_err() {
        skip("there is no python3");
        return;
    }
    let Some(events) = place.record(&["python3", "-c", script], 0) else { return };
    let mut found: BTreeMap<i64, (u32, BTreeSet<u64>, BTreeSet<i64>)> = BTreeMap::new();
    for event in calls(&events, "write", "/file") {
        let (count, buffers, results) = found.entry(number(event, "tid")).or_default();
        *count += 1;
        buffers.insert(event["segments"][0][0].as_u64().unwrap());
        results.insert(number(event, "result"));
        assert_eq!(event["segments"][0][1], event["result"]);
    }
    let lengths: BTreeSet<i64> = found.values().flat_map(|it| it.2.clone()).collect();
    assert_eq!(lengths, BTreeSet::from([1000, 1001, 1002, 1003]));
    assert_eq!(found.len(), 4);
    assert!(found.values().all(|it| it.0 == 50 && it.1.len() == 1 && it.2.len() == 1), "{found:?}");
}

/// Calls with several segments and several messages, in a program without a dynamic linker. It
/// prints where its buffers are.
const STATIC: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
static char a[100], b[200], c[300];
int main(void) {
    int s[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, s)) return 1;
    struct iovec two[2] = {{a, 10}, {b, 20}};
    struct msghdr one = {.msg_iov = two, .msg_iovlen = 2};
    struct iovec big = {c, 300};
    struct msghdr into = {.msg_iov = &big, .msg_iovlen = 1};
    if (writev(s[0], two, 2) != 30 || readv(s[1], &big, 1) != 30) return 2;
    if (sendmsg(s[0], &one, 0) != 30 || recvmsg(s[1], &into, 0) != 30) return 3;
    struct mmsghdr out[2] = {{.msg_hdr = one}, {.msg_hdr = into}}, in[3];
    memset(in, 0, sizeof in);
    for (int i = 0; i < 3; i++) in[i].msg_hdr = into;
    if (sendmmsg(s[0], out, 2, 0) != 2) return 4;
    if (recvmmsg(s[1], in, 3, MSG_DONTWAIT, NULL) != 2) return 5;
    if (send(s[0], a, 7, 0) != 7 || recv(s[1], b, 9, 0) != 7) return 6;
    if (recv(s[1], b, 9, MSG_DONTWAIT) != -1) return 7;
    printf("%p %p %p\n", a, b, c);
    return 0;
}
"#;

#[test]
fn a_static_program_and_its_segments() {
    let place = Place::new();
    fs::write(place.path("it.c"), STATIC).unwrap();
    let (file, out) = (place.path("it.c"), place.path("it"));
    let built = Command::new("gcc").arg("-static").arg("-o").arg(&out).arg(&file).output();
    if !built.is_ok_and(|built| built.status.success()) {
        skip("no static program can be built here");
        return;
    }
    let Some(events) = place.record(&["sh", "-c", "./it > places"], 0) else { return };
    let text = fs::read_to_string(place.path("places")).unwrap();
    let at: Vec<u64> = text
        .split_whitespace()
        .map(|it| u64::from_str_radix(it.trim_start_matches("0x"), 16).unwrap())
        .collect();
    let [a, b, c] = at[..] else { panic!("{text}") };
    let (two, big) = (vec![[a, 10], [b, 20]], vec![[c, 300]]);
    let expected: Vec<(&str, i64, Vec<[u64; 2]>)> = vec![
        ("writev", 30, two.clone()),
        ("readv", 30, big.clone()),
        ("sendmsg", 30, two.clone()),
        ("recvmsg", 30, big.clone()),
        ("sendmmsg", 30, two),
        ("sendmmsg", 300, big.clone()),
        ("recvmmsg", 30, big.clone()),
        ("recvmmsg", 300, big),
        ("sendto", 7, vec![[a, 7]]),
        ("recvfrom", 7, vec![[b, 9]]),
        ("recvfrom", -i64::from(libc::EAGAIN), vec![[b, 9]]),
    ];
    let found: Vec<(&str, i64, Vec<[u64; 2]>)> = events
        .iter()
        .filter(|it| it["kind"] == "socket")
        .map(|it| {
            let segments = serde_json::from_value(it["segments"].clone()).unwrap();
            (it["call"].as_str().unwrap(), number(it, "result"), segments)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn tar_and_cat_move_all_bytes() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for (name, bytes) in [("one", 100_000), ("two", 5)] {
        fs::write(place.path("tree").join(name), vec![1; bytes]).unwrap();
    }
    let script = "tar cf - tree | cat | tar tf - > list";
    let Some(events) = place.record(&["sh", "-c", script], 0) else { return };
    let sum = |call: &str, of: &dyn Fn(&Value) -> bool| -> i64 {
        let own = events.iter().filter(|it| it["call"] == call && number(it, "result") > 0);
        own.filter(|it| of(it)).map(|it| number(it, "result")).sum()
    };
    assert_eq!(sum("read", &|it| it["name"].as_str().unwrap().contains("/tree/")), 100_005);
    let pipes: BTreeSet<i64> = events
        .iter()
        .filter(|it| it["process"] == "cat" && it["kind"] == "pipe")
        .map(|it| number(it, "inode"))
        .collect();
    assert_eq!(pipes.len(), 2);
    for pipe in pipes {
        let is_here = |it: &Value| number(it, "inode") == pipe;
        let into = sum("write", &is_here) + sum("splice", &is_here);
        assert!(into >= 102_400, "{into}");
    }
}

#[test]
fn nobody_records_as_well() {
    if !is_root_or_skip("becoming nobody") {
        return;
    }
    let place = Place::new();
    let copy = place.path("pinfold");
    copy_program(PROGRAM, &copy);
    for path in [place.0.path(), &copy] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let mut command = Command::new(&copy);
    command.args(["trace", "record", "--out", "trace", "--", "sh", "-c", "echo abc | cat"]);
    let done = command.current_dir(place.0.path()).uid(65534).gid(65534).output().unwrap();
    let said = words_of(&done.stderr);
    if said.contains("PTRACE_SEIZE") {
        skip(&said);
        return;
    }
    assert_eq!((done.status.code(), words_of(&done.stdout)), (Some(0), "abc\n".into()), "{said}");
    let (text, _) = place.ends(&["print", "trace", "--kind", "pipe", "--process", "sh"], 0);
    assert!(words_of(&text).ends_with("+4 = 4\n"), "{}", words_of(&text));
}

/// Without `ptrace` nothing runs, and the reason is there.
#[test]
fn denied_calls_are_errors_that_say_so() {
    for (calls, says) in [
        (&[libc::SYS_ptrace][..], "ptrace(PTRACE_SEIZE): Operation not permitted"),
        (&[libc::SYS_seccomp], "seccomp: Operation not permitted"),
    ] {
        let place = Place::new();
        let mut command = Command::new(PROGRAM);
        command.args(["trace", "record", "--out", "trace", "--", "touch", "ran"]);
        // SAFETY: the child has one thread, and glibc leaves it its allocator.
        unsafe {
            command.pre_exec(move || {
                deny(calls, libc::EPERM);
                Ok(())
            })
        };
        let done = command.current_dir(place.0.path()).output().unwrap();
        let said = words_of(&done.stderr);
        assert_eq!(done.status.code(), Some(NOT_RECORDED), "{said}");
        assert!(said.contains(says) && !place.path("ran").exists(), "{said}");
    }
    // Memory is read by a file where the call for it is denied.
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["trace", "record", "--out", "trace", "--", "python3", "-c"]);
    command.arg("import os; os.writev(1, [b'abc', b'de'])");
    // SAFETY: as above.
    unsafe {
        command.pre_exec(|| {
            deny(&[libc::SYS_process_vm_readv], libc::EPERM);
            Ok(())
        })
    };
    let Ok(done) = command.current_dir(place.0.path()).output() else { return };
    let said = words_of(&done.stderr);
    if done.status.code() != Some(0) {
        skip(&said);
        return;
    }
    let (text, _) = place.ends(&["print", "trace", "--call", "writev"], 0);
    let text = words_of(&text);
    assert!(text.contains("+3 0x") && text.ends_with("+2 = 5\n"), "{text}");
}
