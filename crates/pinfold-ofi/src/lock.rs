//! The domain's lock, which is not taken where the program serialises its calls itself.
#![allow(unsafe_code)]
// Invariant: a `Guarded` is opened only by whoever holds the lock of its domain. Under
// `FI_THREAD_DOMAIN` the program promises that no two of its calls on a domain run at a time, which
// is the same.

use std::{
    cell::{RefCell, RefMut},
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The lock of a domain and of all objects in it.
pub struct Lock {
    mutex: Option<Mutex<()>>,
}

/// The lock, held.
pub struct Held<'a> {
    _guard: Option<MutexGuard<'a, ()>>,
    /// Stays with its thread.
    _stays: PhantomData<*mut ()>,
}

impl Lock {
    /// A lock that is taken if `is_taken`.
    pub fn new(is_taken: bool) -> Lock {
        Lock { mutex: is_taken.then(Mutex::default) }
    }

    pub fn hold(&self) -> Held<'_> {
        let guard = self.mutex.as_ref().map(|it| it.lock().unwrap_or_else(PoisonError::into_inner));
        Held { _guard: guard, _stays: PhantomData }
    }
}

/// State behind the domain's lock.
pub struct Guarded<T>(RefCell<T>);

// SAFETY: opened only by who holds the lock, see the invariant.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub fn new(inner: T) -> Guarded<T> {
        Guarded(RefCell::new(inner))
    }

    /// Opens it; `held` is its domain's lock. Nobody in the same call has it open already.
    pub fn open<'a>(&'a self, held: &'a Held<'_>) -> RefMut<'a, T> {
        let _ = held;
        self.0.borrow_mut()
    }
}
