//! The metrics of `pinfold top --prometheus`, read as a server reads them.

use std::collections::{BTreeMap, HashSet};

use pinfold_tests::{Stage, stage::all_end_well};

use super::{
    harness::{refused, run},
    pair,
};

/// The samples of one run, by name and labels as they stand there, with the labels' values.
struct Metrics {
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Metrics {
    /// Reads the text, and checks its form: a family's help and type come once, before its samples,
    /// which stand together, each with other labels.
    fn of(text: &str) -> Metrics {
        assert!(text.ends_with('\n'), "{text}");
        let (mut samples, mut seen) = (Vec::new(), HashSet::new());
        let (mut helped, mut family) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                helped = help.split_once(' ').expect("a help").0.to_owned();
                assert!(seen.insert(format!("# {helped}")), "{helped} comes twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                assert_eq!(name, helped);
                assert_eq!(kind, if name.ends_with("_total") { "counter" } else { "gauge" });
                family = name.to_owned();
            } else {
                let (head, value) = line.rsplit_once(' ').expect("a value");
                assert!(seen.insert(head.to_owned()), "{head} comes twice");
                let (name, labels) = head.split_once('{').unwrap_or((head, "}"));
                assert_eq!(name, family, "{line}");
                samples.push((name.to_owned(), labels_of(labels), value.parse().expect(line)));
            }
        }
        Metrics { samples }
    }

    /// The only sample with this name and at least these labels.
    #[track_caller]
    fn one(&self, name: &str, labels: &[(&str, &str)]) -> (&BTreeMap<String, String>, f64) {
        let fits = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| of.get(*label).is_some_and(|is| is == value))
        };
        let mut found = self.samples.iter().filter(|(is, of, _)| is == name && fits(of));
        let (_, of, value) = found.next().unwrap_or_else(|| panic!("no {name} with {labels:?}"));
        assert!(found.next().is_none(), "several {name} with {labels:?}");
        (of, *value)
    }
}

/// The labels behind an opening brace, without their escapes.
fn labels_of(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut chars = text.chars().peekable();
    while chars.next_if_eq(&'}').is_none() {
        let name: String = chars.by_ref().take_while(|&char| char != '=').collect();
        assert_eq!(chars.next(), Some('"'), "{text}");
        let mut value = String::new();
        loop {
            match chars.next().expect("the value's end") {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(char @ ('\\' | '"')) => char,
                    other => panic!("{other:?} is escaped in {text}"),
                }),
                char => value.push(char),
            }
        }
        assert!(labels.insert(name, value).is_none(), "{text}");
        chars.next_if_eq(&',');
    }
    assert_eq!(chars.next(), None, "{text}");
    labels
}

#[test]
fn messages_are_counted_by_endpoint_peer_and_path() {
    let stage = Stage::new(60);
    let mut players = pair(&stage, "inline,eager");
    let pid = players[1].pid().to_string();
    let metrics = Metrics::of(&run(&["top", "--prometheus", "--pid", &pid]));
    let value = |name: &str, labels: &[(&str, &str)]| metrics.one(name, labels).1;
    assert_eq!(value("pinfold_endpoints", &[]), 1.0);
    let (frog, one) = metrics.one("pinfold_endpoint_info", &[("label", "frog"), ("pid", &pid)]);
    assert_eq!((one, frog["address"].as_str(), frog["endpoint"].len()), (1.0, "", 32));
    assert_eq!(value("pinfold_peers", &[("endpoint", &frog["endpoint"])]), 1.0);
    // One peer: the endpoint's counts are those with it.
    for of in ["pinfold", "pinfold_peer"] {
        for (count, path, wanted) in [
            ("sent_messages", "inline", 1000.0),
            ("sent_bytes", "inline", 8000.0),
            ("sent_messages", "eager", 10.0),
            ("sent_bytes", "eager", 20_000.0),
            ("sent_messages", "cma", 0.0),
            ("received_messages", "inline", 501.0),
            ("received_bytes", "inline", 501.0),
            ("received_messages", "eager", 0.0),
        ] {
            let name = format!("{of}_{count}_total");
            assert_eq!(value(&name, &[("path", path), ("pid", &pid)]), wanted, "{name} {path}");
        }
    }
    let (pond, _) = metrics.one("pinfold_peer_info", &[("peer_label", "pond")]);
    assert_eq!(pond["peer_address"], "local:pond");
    assert_eq!(pond["peer_pid"], players[0].pid().to_string());
    assert_eq!(value("pinfold_peer_queued_sends", &[("peer", &pond["peer"])]), 0.0);
    for player in &mut players {
        player.say("leave");
    }
    all_end_well(&mut players);
}

#[test]
fn words_of_others_are_escaped() {
    let stage = Stage::new(60);
    let label = r#"a "b\n", {c}=d\"#;
    let mut loner = stage.role("loner").with("alone", true).with("label", label).spawn();
    loner.expect("made");
    let pid = loner.pid().to_string();
    let text = run(&["top", "--prometheus", "--pid", &pid]);
    assert!(text.contains(r#",label="a \"b\\n\", {c}=d\\","#), "{text}");
    assert_eq!(Metrics::of(&text).one("pinfold_endpoint_info", &[("label", label)]).1, 1.0);
    loner.say("leave");
    loner.end_well();
}

#[test]
fn one_form_at_a_time() {
    for words in [&["--json"][..], &["--interval", "1"]] {
        assert_eq!(refused(&[&["top", "--prometheus"], words].concat()).0, 2, "{words:?}");
    }
}
