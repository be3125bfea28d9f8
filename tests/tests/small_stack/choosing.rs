//! Paths and their costs, ways to send, rules on who may connect, and errors.

use pinfold::{
    Access, Endpoint, Error, Path, PathSet, Refusal, SendDriver, SendMode,
    route::{
        CostCurve, CostModel, Outgoing, SendCost, SendMemory, SendModes, SendPicker, SentFrom,
        SourceCost,
    },
};

use super::small;

#[test]
fn paths_and_costs() {
    small(|| {
        let some = PathSet::none().with(Path::Eager).with(Path::Cma).without(Path::Cma);
        assert!(some.contains(Path::Eager) && some.iter().eq([Path::Eager]));
        assert!(PathSet::all() != PathSet::only(&[Path::Cma]));
        assert_eq!(Path::from_name(Path::Cma.name()), Some(Path::Cma));
        assert!(Refusal::Denied(1).is_denial() && !Refusal::Slower.is_denial());
        let model = CostModel::DEFAULT;
        assert!(model.is_plausible() && model.eager.at(5000) > 0.0);
        assert!(model.predict(Path::Cma, 1 << 20) < model.predict(Path::Cma, 2 << 20));
    });
}

#[test]
fn ways_to_send() {
    small(|| {
        let curve = CostCurve::through([(100, 100.0), (1000, 200.0), (100_000, 5000.0)]);
        assert!(curve.at(500).is_some());
        let one = SourceCost { curve, several_ns: 1.0, piece_ns: 1.0 };
        let mut modes = SendModes::default();
        modes.learn(SendMode::TwoCopy, SendCost { cache: one.clone(), memory: one });
        let (from, memory) = (SentFrom::Cache, SendMemory::Unregistered);
        let message = Outgoing { bytes: 5000, pieces: 3, pages: 4, from, memory };
        assert!(SendModes::is_possible(SendMode::Plain, &message));
        assert!(SendModes::priors().predict(SendMode::Plain, &message).is_some());
        assert!(modes.predict(SendMode::TwoCopy, &message).is_some());
        assert_eq!(modes.pick(&message), SendMode::TwoCopy);
        assert_eq!(SendPicker::new(modes).pick(&message), SendMode::TwoCopy);
        assert!(SendMode::Plain.copies() && !SendMode::Plain.name().is_empty());
        assert!(!SendDriver::Ring.name().is_empty());
    });
}

#[test]
fn rules_and_errors() {
    small(|| {
        let rule = Access::same_user().user("root").user(5).group("root").group(6);
        assert!(rule.to_string().contains("group 6"));
        let nobody = Access::same_user().user("no such user");
        let address = format!("local:small-rules-{}", std::process::id());
        let refused = Endpoint::builder().access(nobody).listen(&address).build().unwrap_err();
        assert!(!refused.is_peer_gone() && !refused.to_string().is_empty());
        for errno in [libc::EPERM, libc::EMFILE, libc::ENOMEM, libc::EACCES] {
            let source = std::io::Error::from_raw_os_error(errno);
            let error = Error::Os { call: "memfd_create", on: "an arena".into(), source };
            assert!(!error.to_string().is_empty());
            let _ = error.remedy();
        }
    });
}
