//! The samples of the library's learner: its events of tracing.

use std::{
    mem,
    sync::{Mutex, PoisonError},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static HEARD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

/// Starts to listen.
pub fn begin() {
    let _ = tracing::subscriber::set_global_default(Listener);
}

/// The time of a message by a path, as the learner was told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub path: usize,
    pub ns: u64,
}

/// The samples since the last call.
pub fn take() -> Vec<Told> {
    mem::take(&mut HEARD.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pinfold::learn"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Told {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "ns" => self.ns = value,
            "path" => self.path = value as usize,
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
