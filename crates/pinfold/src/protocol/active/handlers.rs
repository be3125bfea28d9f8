//! Handlers of active messages, by number.

use std::{any::Any, fmt, sync::Arc};

use rustc_hash::FxHashMap;

/// The handler of a message. The endpoint knows its type and runs it; here it is only kept, so that
/// the protocol knows nothing of what handlers are given.
pub(crate) type Handler = Arc<dyn Any + Send + Sync>;

/// Handlers by number.
#[derive(Clone, Default)]
pub(crate) struct Handlers(FxHashMap<u32, Handler>);

impl Handlers {
    pub(crate) fn set(&mut self, id: u32, handler: Handler) -> Option<Handler> {
        self.0.insert(id, handler)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Handler> {
        self.0.remove(&id)
    }

    pub(crate) fn get(&self, id: u32) -> Option<Handler> {
        self.0.get(&id).cloned()
    }

    pub(crate) fn has(&self, id: u32) -> bool {
        self.0.contains_key(&id)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
