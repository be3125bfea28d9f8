//! Peers on other hosts.

use std::thread;

use pinfold::{Endpoint, Progress};

use super::harness::{look_at, run};

#[test]
fn peers_on_other_hosts_have_places() {
    let builder = |label| {
        Endpoint::builder()
            .progress(Progress::Dedicated)
            .local_shortcut(false)
            .label(label)
            .encrypt(true)
    };
    let one = builder("heron").listen("tcp:127.0.0.1:0").build().unwrap();
    let two = builder("newt").build().unwrap();
    let address = one.listens_at().unwrap();
    thread::scope(|scope| {
        let there = scope.spawn(|| one.accept().unwrap());
        two.connect(&address).unwrap();
        there.join().unwrap();
    });
    let seen = look_at(std::process::id());
    let of = |label: &str| {
        let found = seen.endpoints.iter().find(|endpoint| endpoint.own["label"] == label).unwrap();
        let [peer] = &found.peers[..] else { panic!("{found:?}") };
        assert_eq!(peer["encrypted"], true);
        peer["address"].as_str().unwrap().to_owned()
    };
    assert_eq!(of("newt"), address);
    let there = of("heron");
    assert!(there.starts_with("tcp:127.0.0.1:") && there != address, "{there}");
    let table = run(&["top", "--pid", &std::process::id().to_string()]);
    for part in [format!("heron at {address}"), format!("newt at {there}")] {
        assert!(table.contains(&part), "{part}: {table}");
    }
    assert!(table.contains("encrypted") && !table.contains("pid 0"), "{table}");
}
