//! Jobs and lines; the processes themselves are tested where there is a program to run.

use super::{super::lockstep, *};
use crate::workloads::Kind;

fn job(workload: Workload, ranks: usize) -> Job {
    Job { workload, ranks, size: None, turns: 1, seed: 3 }
}

#[test]
fn each_workload_has_a_checked_result_and_transfers() {
    for (name, workload) in Workload::ALL {
        assert_eq!(name.parse(), Ok(workload));
        let job = job(workload, 4);
        job.check().unwrap();
        let expected = job.expected().unwrap();
        assert!(expected.results.iter().all(|it| !it.is_empty()), "{name}");
        let count =
            |kind| expected.logs.iter().flatten().flatten().filter(|it| it.kind == kind).count();
        let counts = [Kind::Store, Kind::Put, Kind::Get].map(count);
        let is_main = match workload {
            Workload::Matrix => [false, false, true],
            Workload::RadixSmall | Workload::SampleSmall => [true, false, false],
            _ => [false, true, false],
        };
        for (at, is_main) in is_main.into_iter().enumerate() {
            assert!(counts[at] > 0 || !is_main, "{name}: {counts:?}");
        }
        // The part of a rank is that of all ranks' parts.
        assert!(job.part(3).is_ok() && job.part(4).is_err());
    }
}

#[test]
fn small_messages_sort_as_puts_do() {
    use crate::workloads::radix::Radix;
    let (mut small, mut bulk) = (Radix::small(3, 2000, 4), Radix::all(3, 2000, 4));
    let logs = lockstep::run(&mut small).unwrap();
    lockstep::run(&mut bulk).unwrap();
    Radix::check(&small).unwrap();
    let results = |all: &[Radix]| all.iter().map(super::super::Program::result).collect::<Vec<_>>();
    assert_eq!(results(&small), results(&bulk));
    // Two thirds of the keys go to another rank in each of four passes.
    let stores = logs.iter().flatten().flatten().filter(|it| it.kind == Kind::Store).count();
    assert!((12_000..20_000).contains(&stores), "{stores}");
}

#[test]
fn jobs_out_of_range_are_refused_in_words() {
    let base = job(Workload::RadixBulk, 4);
    for (job, says) in [
        (Job { ranks: 1, ..base }, "take 2 to 64"),
        (Job { ranks: 65, ..base }, "take 2 to 64"),
        (Job { size: Some(7), ..base }, "size 7 of radix-bulk"),
        (Job { turns: 0, ..base }, "0 turns"),
        (Job { workload: Workload::Fourier, ranks: 6, ..base }, "powers of two"),
        (Job { workload: Workload::Matrix, size: Some(0), ..base }, "size 0 of matrix"),
    ] {
        let why = job.check().unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    assert!("nonsense".parse::<Workload>().unwrap_err().contains("radix-small"));
}

#[test]
fn a_part_comes_back_with_its_transfers() {
    let expected = job(Workload::IntegerSort, 2).expected().unwrap();
    let log = &expected.logs[1];
    let count: usize = log.iter().map(Vec::len).sum();
    let moments: Vec<u64> = (0..count as u64).collect();
    let part = Part::new(sum(&expected.results[1]), 4096, log, &moments);
    let text = serde_json::to_string(&Said::Ended(Box::new(part.clone()))).unwrap();
    assert_eq!(serde_json::from_str::<Said>(&text).unwrap(), Said::Ended(Box::new(part.clone())));
    assert_eq!(part.log().as_ref(), Some(log));
    let made = made(&part, log);
    assert_eq!(made.len(), count);
    assert!(made.iter().enumerate().all(|(at, it)| {
        it.at_ns == at as u64 && it.address == 4096 + u64::from(it.transfer.own)
    }));
    compare(1, log, log).unwrap();
    let why = compare(1, &expected.logs[0], log).unwrap_err();
    assert!(why.contains("rank 1 has other transfers"), "{why}");
    let mut strange = part;
    strange.phases[0][0].0 = 3;
    assert_eq!(strange.log(), None);
}

/// Programs that are no ranks: each is named, and none is left.
#[test]
fn processes_that_are_no_ranks_are_errors() {
    let job = job(Workload::RadixBulk, 3);
    let run = |script: &'static str| {
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        run(&job, &command, |_| {}).unwrap_err()
    };
    for (script, says) in [
        ("read line; exit 3", "ended too early: exit status: 3"),
        ("kill -SEGV $$", "was ended by signal 11"),
        ("read line; echo '{\"Failed\":\"no luck\"}'; exec sleep 1000", "no luck"),
    ] {
        let why = run(script);
        assert!(why.starts_with("rank ") && why.contains(says), "{script}: {why}");
    }
    let why = super::run(&job, &|| Command::new("/nowhere/program"), |_| {}).unwrap_err();
    assert!(why.contains("cannot start rank 0"), "{why}");
}
