//! `pinfold top`: its view of processes that exchange messages, come, go, are killed, belong to
//! others, write nonsense, or sleep.

#[path = "top/deaths.rs"]
mod deaths;
#[path = "top/harness.rs"]
mod harness;
#[path = "top/namespaces.rs"]
mod namespaces;
#[path = "top/output.rs"]
mod output;
#[path = "top/prometheus.rs"]
mod prometheus;
#[path = "top/roles.rs"]
mod roles;
#[path = "top/spaces.rs"]
mod spaces;
#[path = "top/strangers.rs"]
mod strangers;
#[path = "top/tcp.rs"]
mod tcp;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use pinfold::Path;
use pinfold_tests::{Stage, role::PATIENCE, stage::all_end_well};
use serde_json::Value;

use self::{
    harness::{Look, every, look, look_at, refused, run},
    roles::{arranger, forker, frog, lender, liar, loner, pond, sleeper, worker},
    spaces::{exposer, visitor},
};

pinfold_tests::roles!(
    arranger, exposer, forker, frog, lender, liar, loner, pond, sleeper, visitor, worker
);

/// A pond and a frog that have exchanged what [`roles`] says.
fn pair(stage: &Stage, paths: &str) -> [pinfold_tests::stage::Player; 2] {
    let mut pond = stage.role("pond").with("paths", paths).spawn();
    pond.expect("ready");
    let mut frog = stage.role("frog").with("paths", paths).spawn();
    frog.expect("talked");
    pond.expect("talked");
    [pond, frog]
}

fn count(value: &Value, path: &str) -> (u64, u64) {
    let count = &value[path];
    (count["messages"].as_u64().unwrap(), count["bytes"].as_u64().unwrap())
}

#[test]
fn messages_are_counted_exactly() {
    let stage = Stage::new(60);
    let mut players = pair(&stage, "inline,eager");
    let [pond, frog] = players.each_ref().map(|player| look_at(player.pid()));
    let (pond, frog) = (pond.endpoint(), frog.endpoint());
    for (endpoint, label) in [(&pond, "pond"), (&frog, "frog")] {
        let [peer] = &endpoint.peers[..] else { panic!("{:?}", endpoint.peers) };
        for of in [&endpoint.own, peer] {
            let (sends, receives) =
                if label == "frog" { ("sent", "received") } else { ("received", "sent") };
            assert_eq!(count(&of[sends], "inline"), (1000, 8000), "{label}: {of:#}");
            assert_eq!(count(&of[sends], "eager"), (10, 20_000), "{label}: {of:#}");
            assert_eq!(count(&of[receives], "inline"), (501, 501), "{label}: {of:#}");
            assert_eq!(count(&of[receives], "eager"), (0, 0), "{label}: {of:#}");
            for path in Path::ALL.iter().filter(|path| !["inline", "eager"].contains(&path.name()))
            {
                assert_eq!(count(&of["sent"], path.name()), (0, 0), "{label}: {of:#}");
                assert_eq!(count(&of["received"], path.name()), (0, 0), "{label}: {of:#}");
            }
        }
        assert_eq!(endpoint.own["label"], label);
        // Bytes that came before they were asked for are copied twice.
        assert!(endpoint.own["copied_user"].as_u64().unwrap() >= 28_501, "{label}");
        assert_eq!(endpoint.own["copied_kernel"], 0);
        assert_eq!((&endpoint.own["peers"], &endpoint.own["peers_joined"]), (&1.into(), &1.into()));
        assert_eq!(peer["paths"], serde_json::json!(["inline", "eager"]));
        assert_eq!(peer["refused"]["cma"], "switched off at this endpoint");
        assert_eq!((&peer["queued"], &peer["owed"]), (&0.into(), &0.into()));
        assert_eq!(peer["lane_bytes"].as_u64().unwrap() % 4096, 0);
    }
    // Each knows the other.
    for (one, other, label) in [(&pond, &frog, "frog"), (&frog, &pond, "pond")] {
        let peer = &one.peers[0];
        assert_eq!(peer["label"], label);
        assert_eq!((&peer["of"], &peer["id"]), (&one.own["id"], &other.own["id"]));
        assert_eq!((&peer["of_pid"], &peer["pid"]), (&one.own["pid"], &other.own["pid"]));
        assert_eq!(peer["uid"], other.own["uid"]);
    }
    assert_eq!(pond.own["address"], "local:pond");
    assert_eq!(frog.peers[0]["address"], "local:pond");
    assert_eq!((&frog.own["address"], &pond.peers[0]["address"]), (&Value::Null, &Value::Null));
    for player in &mut players {
        player.say("leave");
    }
    all_end_well(&mut players);
}

#[test]
fn copies_by_the_kernel_are_counted() {
    let stage = Stage::new(60);
    let players = pair(&stage, "inline,cma");
    let [pond, frog] = players.each_ref().map(|player| look_at(player.pid()).endpoint());
    if let Some(why) = frog.peers[0]["refused"].get("cma") {
        return pinfold_tests::skip(why.as_str().unwrap());
    }
    assert_eq!(count(&frog.own["sent"], "cma"), (10, 20_000));
    assert_eq!(count(&pond.own["received"], "cma"), (10, 20_000));
    let copied = |of: &harness::Endpoint| of.own["copied_kernel"].as_u64().unwrap();
    assert_eq!(copied(&pond) + copied(&frog), 20_000);
    assert_eq!(frog.peers[0]["refused"]["eager"], "switched off at this endpoint");
}

#[test]
fn one_sided_operations_and_active_messages_are_counted_exactly() {
    let stage = Stage::new(60);
    let mut lender = stage.role("lender").spawn();
    lender.expect("ready");
    let mut worker = stage.role("worker").spawn();
    let said = worker.expect("worked");
    if said == "not" {
        return pinfold_tests::skip("there are no regions here");
    }
    let one_sided = serde_json::json!({
        "writes": 14, "written_bytes": 1032, "reads": 8, "read_bytes": 458, "atomics": 7,
        "by_kernel": 0, "by_agent": 0,
    });
    let nothing = serde_json::json!({
        "writes": 0, "written_bytes": 0, "reads": 0, "read_bytes": 0, "atomics": 0,
        "by_kernel": 0, "by_agent": 0,
    });
    let [owner, user] = [lender.pid(), worker.pid()].map(|pid| look_at(pid).endpoint());
    for of in [&user.own, &user.peers[0]] {
        assert_eq!(of["one_sided"], one_sided, "{of:#}");
        assert_eq!((&of["called"], &of["handled"]), (&10.into(), &0.into()), "{of:#}");
    }
    for of in [&owner.own, &owner.peers[0]] {
        assert_eq!(of["one_sided"], nothing, "{of:#}");
        assert_eq!((&of["called"], &of["handled"]), (&0.into(), &9.into()), "{of:#}");
    }
    assert_eq!((&owner.own["unhandled"], &owner.own["handlers_panicked"]), (&1.into(), &1.into()));
    let table = run(&["top", "--pid", &worker.pid().to_string()]);
    let done = "one-sided: 14 writes, 1.03 KB; 8 reads, 458 B; 7 atomics";
    assert!(table.contains(done) && table.contains("active messages: 10 sent"), "{table}");
    let table = run(&["top", "--pid", &lender.pid().to_string()]);
    assert!(
        table.contains("active messages: 9 handled") && !table.contains("one-sided"),
        "{table}"
    );
    // Operations done stay counted when the other is gone, also while its region is kept.
    lender.kill();
    assert!(lender.was_killed());
    worker.say("see it go");
    worker.expect("gone");
    for said in ["keep", "let go"] {
        let left = look_at(worker.pid()).endpoint();
        assert_eq!((left.peers.len(), &left.own["peers_gone"]), (0, &1.into()), "{said}");
        assert_eq!(left.own["one_sided"], one_sided, "{said}: {:#}", left.own);
        assert_eq!(left.own["called"], 10, "{said}");
        worker.say(said);
        worker.expect(said);
    }
    worker.end_well();
}

#[test]
fn endpoints_come_and_go() {
    let stage = Stage::new(60);
    let [mut pond, mut frog] = pair(&stage, "inline,eager");
    let id = look_at(frog.pid()).endpoint().own["id"].clone();
    // Killed at once, and gone at once.
    frog.kill();
    assert!(frog.was_killed());
    assert!(every().endpoints.iter().all(|endpoint| endpoint.own["id"] != id));
    assert_eq!(refused(&["top", "--json", "--pid", &frog.pid().to_string()]).0, 1);
    // The traffic exchanged with it stays counted.
    pond.say("see it go");
    pond.expect("gone");
    let left = look_at(pond.pid()).endpoint();
    assert_eq!(left.peers.len(), 0);
    assert_eq!((&left.own["peers"], &left.own["peers_gone"]), (&0.into(), &1.into()));
    assert_eq!(count(&left.own["received"], "inline"), (1000, 8000));
    assert_eq!(count(&left.own["received"], "eager"), (10, 20_000));
    // A closed endpoint is gone, though its process and its handle are there.
    pond.say("close");
    pond.expect("closed");
    let (code, why) = refused(&["top", "--pid", &pond.pid().to_string()]);
    assert_eq!((code, why.contains("has no endpoint")), (1, true), "{why}");
    pond.end_well();
}

#[test]
fn what_waits_is_seen() {
    let stage = Stage::new(60);
    let mut arranger = stage.role("arranger").spawn();
    arranger.expect("arranged");
    let Look { endpoints, .. } = look_at(arranger.pid());
    let find = |label: &str| endpoints.iter().find(|one| one.own["label"] == label).unwrap();
    let (full, eager) = (find("full"), find("eager"));
    // Messages of 1,000 bytes without a receive, as many as there is memory for, and more that are
    // announced.
    let peer = &full.peers[0];
    let announced = peer["announced"].as_u64().unwrap();
    let owed = (full.own["stored"].as_u64().unwrap() - announced) * 1128;
    assert!(owed >= 5 * 1128 && announced > 0, "{peer:#}");
    assert_eq!(peer["owed"], owed);
    assert!(owed <= full.own["unexpected_bytes_max"].as_u64().unwrap() * 3 / 4 + 1128);
    assert_eq!(full.own["unexpected"].as_u64(), full.own["stored"].as_u64());
    assert!(full.own["stored"].as_u64().unwrap() > 5);
    assert_eq!(full.own["posted"], 2);
    assert_eq!(peer["announced_max"], peer["announced"]);
    // Their sender has more, and is stuck.
    let peer = &eager.peers[0];
    assert_eq!(peer["credit_used"], owed);
    assert_eq!(
        (&peer["waiting"], &peer["waiting_max"]),
        (&full.peers[0]["announced"], &full.peers[0]["announced_max"])
    );
    // Some were announced, too, and then stored.
    assert!(peer["credit_stalls"].as_u64() >= peer["waiting"].as_u64());
    assert!(peer["queued"].as_u64().unwrap() > 0 && peer["blocked"] == true, "{peer:#}");
    assert!(peer["room_stalls"].as_u64().unwrap() > 0);
    // It waits, and since when can be seen; who has nothing to send does not wait.
    assert!(peer["waits_s"].as_f64().unwrap() > 0.0, "{peer:#}");
    assert!(full.peers[0]["waits_s"].is_null(), "{:#}", full.peers[0]);
    let pid = arranger.pid().to_string();
    let end = Instant::now() + PATIENCE;
    loop {
        let table = run(&["top", "--once", "--pid", &pid]);
        // Only what waits for long is worth a word.
        if table.contains("sends wait for ") {
            assert_eq!(table.matches("sends wait for ").count(), 1, "{table}");
            break;
        }
        assert!(Instant::now() < end, "{table}");
    }
    let later = look_at(arranger.pid());
    let later = later.endpoints.iter().find(|one| one.own["label"] == "eager").unwrap();
    assert!(later.peers[0]["waits_s"].as_f64() >= Some(1.0), "{:#}", later.peers[0]);
    // The memory of arenas is the process's.
    for endpoint in [full, eager] {
        let bytes = endpoint.own["arena_bytes"].as_u64().unwrap();
        assert!((3 << 20..64 << 20).contains(&bytes), "{bytes}");
        assert!(endpoint.own["arena_files"].as_u64().unwrap() >= 1);
    }
    // The memory is taken back, and seen no more.
    arranger.say("settle");
    arranger.expect("settled");
    let Look { endpoints, .. } = look_at(arranger.pid());
    let find = |label: &str| endpoints.iter().find(|one| one.own["label"] == label).unwrap();
    let (full, eager) = (find("full"), find("eager"));
    for (of, field) in [
        (&full.own, "stored"),
        (&full.own, "posted"),
        (&full.peers[0], "owed"),
        (&full.peers[0], "announced"),
        (&eager.peers[0], "queued"),
        (&eager.peers[0], "waiting"),
        (&eager.peers[0], "credit_used"),
    ] {
        assert_eq!(of[field], 0, "{field}: {of:#}");
    }
    assert_eq!(eager.peers[0]["blocked"], false);
    for of in [&full.peers[0], &eager.peers[0]] {
        assert!(of["waits_s"].is_null(), "{of:#}");
    }
    assert_eq!(full.own["arena_bytes"], 0);
    arranger.say("leave");
    arranger.end_well();
}

/// The number of times that the threads of a process were awake.
fn switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let of = |status: String| {
        let switches = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
        switches.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum::<u64>()
    };
    status.map(of).sum()
}

#[test]
fn nobody_is_woken() {
    let stage = Stage::new(60);
    let mut sleeper = stage.role("sleeper").spawn();
    sleeper.expect("ready");
    let mut loner = stage.role("loner").spawn();
    loner.expect("connected");
    let asleep = || look_at(sleeper.pid()).endpoint();
    let end = Instant::now() + PATIENCE;
    while asleep().own["state"] != "asleep" {
        assert!(Instant::now() < end, "it does not fall asleep");
    }
    // The process looks again by itself, for a second or two.
    thread::sleep(Duration::from_secs(3));
    let (before, awake) = (asleep(), switches(sleeper.pid()));
    for _ in 0..30 {
        every();
        run(&["top", "--once"]);
        look(&["top", "--json", "--pid", &sleeper.pid().to_string()]);
    }
    let after = asleep();
    assert_eq!(switches(sleeper.pid()), awake);
    assert_eq!(after.own["sleeps"], before.own["sleeps"]);
    assert_eq!(after.own["state"], "asleep");
    let (then, now) = (&before.own["looked_ago_s"], &after.own["looked_ago_s"]);
    assert!(then.as_f64() < now.as_f64(), "{then}, then {now}");
    loner.say("leave");
    loner.end_well();
    sleeper.end_well();
}
