//! Spans of tracing, as `docs/monitoring.md` lists them: a subscriber sees each with its fields.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use pinfold::{Endpoint, Path, PathSet};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::with_default,
};

/// Fields of a span by name, as text.
#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

/// A span of the library's: its target and name, and what was recorded of it.
#[derive(Clone, Debug)]
struct Seen {
    name: String,
    fields: Fields,
    entered: u32,
    exited: u32,
}

/// Remembers the spans of the library, and the events.
#[derive(Clone, Default)]
struct Listener {
    spans: Arc<Mutex<BTreeMap<u64, Seen>>>,
    events: Arc<Mutex<Vec<String>>>,
    next: Arc<AtomicU64>,
}

impl Listener {
    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        self.spans.lock().unwrap().get_mut(&id.into_u64()).map(change);
    }

    /// The spans of a name, such as `pinfold::messages send`.
    fn named(&self, name: &str) -> Vec<Seen> {
        let spans = self.spans.lock().unwrap();
        spans.values().filter(|span| span.name == name).cloned().collect()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pinfold")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        span.record(&mut fields);
        let name = format!("{} {}", span.metadata().target(), span.metadata().name());
        let seen = Seen { name, fields, entered: 0, exited: 0 };
        self.spans.lock().unwrap().insert(id, seen);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change(id, |seen| values.record(&mut seen.fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.events.lock().unwrap().extend(fields.0.remove("message"));
    }

    fn enter(&self, id: &Id) {
        self.change(id, |seen| seen.entered += 1);
    }

    fn exit(&self, id: &Id) {
        self.change(id, |seen| seen.exited += 1);
    }
}

/// Messages of these lengths, bytes: the last two are long ones.
const LENGTHS: [usize; 4] = [8, 1000, 16 << 10, 300_000];

#[test]
fn calls_that_take_long_have_spans() {
    let address = format!("local:spans-{}", std::process::id());
    let endpoint = Endpoint::builder().listen(&address).paths(PathSet::only(&[Path::Eager]));
    let endpoint = endpoint.build().unwrap();
    let (here, there) = (Listener::default(), Listener::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            with_default(there.clone(), || {
                let other = Endpoint::new().unwrap();
                let peer = other.connect(&address).unwrap();
                for len in LENGTHS {
                    other.send(peer, len as u64, &vec![7; len]).unwrap();
                }
                other.send(peer, 1, b"").unwrap();
                other.connect("local:nobody-is-there").unwrap_err();
            });
        });
        with_default(here.clone(), || {
            let peer = endpoint.accept().unwrap();
            for len in LENGTHS {
                endpoint.recv_into(peer, len as u64, &mut vec![0; len]).unwrap();
            }
            endpoint.recv(peer, 1).unwrap();
        });
    });
    let field = |seen: &Seen, name: &str| seen.fields.0.get(name).cloned();
    let connects = there.named("pinfold::connections connect");
    assert_eq!(connects.len(), 2, "{connects:?}");
    assert_eq!(field(&connects[0], "address"), Some(address));
    assert!(field(&connects[0], "peer").is_some() && field(&connects[0], "error").is_none());
    assert!(field(&connects[1], "error").unwrap().contains("nobody-is-there"), "{connects:?}");
    let accepts = here.named("pinfold::connections accept");
    assert!(accepts.len() == 1 && field(&accepts[0], "peer").is_some(), "{accepts:?}");
    for (listener, name) in [(&there, "pinfold::messages send"), (&here, "pinfold::messages recv")]
    {
        let spans = listener.named(name);
        assert_eq!(spans.len(), 2, "{spans:?}");
        for (span, len) in spans.iter().zip(&LENGTHS[2..]) {
            for name in ["tag", "bytes"] {
                assert_eq!(field(span, name), Some(len.to_string()), "{name}: {span:?}");
            }
            assert_eq!(field(span, "path").as_deref(), Some("eager"), "{span:?}");
            assert!(field(span, "copied").unwrap().parse::<usize>().unwrap() >= *len, "{span:?}");
            // The other side has switched the other paths off.
            assert!(field(span, "refused").unwrap().contains("cma: "), "{span:?}");
            assert!(field(span, "error").is_none() && field(span, "peer").is_some(), "{span:?}");
            assert_eq!((span.entered, span.exited), (1, 1));
        }
    }
    let events = there.events.lock().unwrap().clone();
    assert!(events.iter().any(|event| event == "a peer joined"), "{events:?}");
}
