//! The file: a stored table comes back, and nothing else is believed.

use std::{fs, io::ErrorKind};

use super::*;

/// A table that has every algorithm in it.
fn colourful() -> Table {
    let (mut temporal, mut streaming): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for algorithm in Algorithm::all() {
        match algorithm.stores() {
            pinfold_sys::cpu::block::Stores::Temporal => temporal.push(algorithm),
            pinfold_sys::cpu::block::Stores::Streaming => streaming.push(algorithm),
        }
    }
    let mut at = 0;
    let table = Table::from_fn(|_, _| {
        at += 1;
        Choice::new(temporal[at % temporal.len()], streaming[at % streaming.len()], at % 3 == 0)
    });
    table.unwrap()
}

#[test]
fn stored_and_loaded() {
    let home = tempfile::tempdir().unwrap();
    let (file, machine) = (home.path().join("a/copy.json"), Machine::this());
    assert_eq!(load(&file, &machine).err().unwrap().kind(), ErrorKind::NotFound);
    let tuned = Tuned {
        table: colourful(),
        measured_s: 1_800_000_000,
        seen: Seen { near: 3, far: 5, mixed: 1 },
    };
    store(&file, &machine, &tuned).unwrap();
    assert!(load(&file, &machine).unwrap() == tuned);
    // Another one takes its place.
    let other =
        Tuned { table: Table::uniform(Algorithm::LIBC), measured_s: 1, seen: Seen::default() };
    store(&file, &machine, &other).unwrap();
    assert!(load(&file, &machine).unwrap() == other);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn another_machine_is_another_table() {
    let home = tempfile::tempdir().unwrap();
    let (path, machine) = (home.path().join("copy.json"), Machine::this());
    store(&path, &machine, &Tuned { table: colourful(), measured_s: 1, seen: Seen::default() })
        .unwrap();
    let others = [
        Machine { processor: "Z80".into(), ..machine.clone() },
        Machine { kernel: "2.6.32".into(), ..machine.clone() },
        Machine { features: vec!["amx".into()], ..machine.clone() },
        Machine { caches_bytes: vec![1], ..machine.clone() },
    ];
    for other in &others {
        assert!(load(&path, other).is_err(), "{other:?}");
    }
    let name = |machine| file(machine).map(|it| it.file_name().unwrap().to_owned());
    assert_ne!(name(&others[0]), name(&machine));
    assert_ne!(name(&others[1]), name(&machine));
}

#[test]
fn damage_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let (file, machine) = (home.path().join("copy.json"), Machine::this());
    let table = colourful();
    store(&file, &machine, &Tuned { table, measured_s: 1, seen: Seen::default() }).unwrap();
    let good = fs::read_to_string(&file).unwrap();
    let best = good.find("\"best\": \"").unwrap() + "\"best\": \"".len();
    let with = |text: &str| good[..best].to_owned() + text + &good[best + 1..];
    let bad = [
        String::new(),
        "null".into(),
        "{}".into(),
        good[..good.len() - 2].into(),
        good.replace(&format!("\"format\": {FORMAT}"), "\"format\": 1"),
        good.replace("measured_s", "measured_on"),
        good.replace("\"avx2+source\"", "\"mmx\""),
        // A digit that stands for nothing, one too few, one too many, one for something unsound.
        with("!"),
        with(""),
        with("00"),
        with("z"),
        with("0"),
        good.strip_suffix("\"\n}").unwrap().to_owned() + "0\"\n}",
        good.clone() + &" ".repeat(40_000),
    ];
    for text in bad {
        assert_ne!(text, good);
        fs::write(&file, &text).unwrap();
        let error = load(&file, &machine).err().unwrap_or_else(|| panic!("{text:.200}"));
        assert_ne!(error.kind(), ErrorKind::NotFound);
    }
    fs::write(&file, [0xff, 0xfe, 0]).unwrap();
    assert!(load(&file, &machine).is_err());
    fs::write(&file, &good).unwrap();
    assert!(load(&file, &machine).is_ok());
}
