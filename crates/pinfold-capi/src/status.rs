//! Results of functions, and the sentence that goes with each.

use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    time::Duration,
};

use pinfold::Error;

/// The result of a function. New values may come with new versions: treat an unknown one as a
/// failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pinfold_status {
    /// It went well.
    PINFOLD_OK = 0,
    /// An argument makes no sense: NULL where memory is needed, a size or a number out of range.
    PINFOLD_INVALID = 1,
    /// The time ran out, or nothing was there and the function was not to wait.
    PINFOLD_TIMEOUT = 2,
    /// The message was longer than the memory, which holds its beginning.
    PINFOLD_TRUNCATED = 3,
    /// The peer ended, died, or cannot be reached any more.
    PINFOLD_PEER_GONE = 4,
    /// No peer is left that could send.
    PINFOLD_NOBODY_LEFT = 5,
    /// The number names no peer of this endpoint.
    PINFOLD_UNKNOWN_PEER = 6,
    /// The operation was cancelled.
    PINFOLD_CANCELLED = 7,
    /// The endpoint was closed.
    PINFOLD_CLOSED = 8,
    /// The handle belongs to the process that this one was forked from.
    PINFOLD_FORKED = 9,
    /// Another endpoint listens under this name.
    PINFOLD_NAME_IN_USE = 10,
    /// The name of this endpoint was taken from it.
    PINFOLD_NAME_LOST = 11,
    /// No endpoint listens at this address.
    PINFOLD_NAME_GONE = 12,
    /// The address cannot be understood.
    PINFOLD_BAD_ADDRESS = 13,
    /// The access rule of the listening side, or a directory's rights, refused.
    PINFOLD_NOT_ALLOWED = 14,
    /// The two sides have no version of the protocol in common.
    PINFOLD_VERSION_MISMATCH = 15,
    /// The other side did not answer the call within the connect time-out.
    PINFOLD_NO_ANSWER = 16,
    /// The two sides did not agree to become peers: a wrong key, say.
    PINFOLD_GREETING_FAILED = 17,
    /// A key is needed to speak with other hosts.
    PINFOLD_KEY_NEEDED = 18,
    /// The key cannot be used.
    PINFOLD_UNUSABLE_KEY = 19,
    /// The endpoint has no name that others could connect to.
    PINFOLD_NOT_LISTENING = 20,
    /// A path was required and cannot be taken.
    PINFOLD_PATH_REFUSED = 21,
    /// Memory of the other side could not be read or written in mid-transfer.
    PINFOLD_TRANSFER_FAILED = 22,
    /// A send with a deadline was not taken.
    PINFOLD_NOT_TAKEN = 23,
    /// Not all operations had been delivered when the time was up.
    PINFOLD_UNDELIVERED = 24,
    /// The bytes named lie outside of the memory.
    PINFOLD_OUT_OF_BOUNDS = 25,
    /// The peer has no memory with this key.
    PINFOLD_BAD_KEY = 26,
    /// The memory was revoked by its owner.
    PINFOLD_REVOKED = 27,
    /// The peer has no memory at this address, or none that may be used so.
    PINFOLD_NOT_MAPPED = 28,
    /// A region can be used neither as mapped memory nor through the kernel.
    PINFOLD_OUT_OF_REACH = 29,
    /// Peers are still at memory that was revoked.
    PINFOLD_STILL_VISITED = 30,
    /// The word of an atomic operation does not lie at a multiple of its size.
    PINFOLD_MISALIGNED = 31,
    /// The memory can only be read.
    PINFOLD_READ_ONLY = 32,
    /// Memory that a peer gave is its own again.
    PINFOLD_WITHDRAWN = 33,
    /// The peer's handler did not do it.
    PINFOLD_NOT_HANDLED = 34,
    /// The request was answered before.
    PINFOLD_ALREADY_ANSWERED = 35,
    /// A limit of the system or of the configuration stands in the way.
    PINFOLD_LIMIT_REACHED = 36,
    /// There is no memory left.
    PINFOLD_NO_MEMORY = 37,
    /// A system call failed.
    PINFOLD_SYSTEM = 38,
    /// A defect of the library: please report it with the sentence of pinfold_error().
    PINFOLD_INTERNAL = 39,
    /// Something else; pinfold_error() says what.
    PINFOLD_OTHER = 40,
}

pub(crate) use pinfold_status::PINFOLD_OK;

/// Waits without a limit.
pub const PINFOLD_FOREVER: i64 = -1;

/// The reason why a function did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    Library(Error),
    /// The argument that makes no sense, and how.
    Invalid(String),
    Timeout,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library(error)
    }
}

impl Failure {
    pub fn invalid(why: impl Into<String>) -> Failure {
        Failure::Invalid(why.into())
    }

    pub fn status(&self) -> pinfold_status {
        match self {
            Failure::Library(error) => status_of(error),
            Failure::Invalid(_) => pinfold_status::PINFOLD_INVALID,
            Failure::Timeout => pinfold_status::PINFOLD_TIMEOUT,
        }
    }

    pub fn sentence(&self) -> CString {
        let text = match self {
            Failure::Library(error) => error.to_string(),
            Failure::Invalid(why) => why.clone(),
            Failure::Timeout => "nothing happened within the time given".to_owned(),
        };
        // A zero would end it early, and no sentence of the library's has one.
        CString::new(text.replace('\0', "?")).unwrap_or_default()
    }
}

/// The status of an error of the library's.
pub(crate) fn status_of(error: &Error) -> pinfold_status {
    use pinfold_status::*;
    match error {
        Error::NameInUse { .. } => PINFOLD_NAME_IN_USE,
        Error::NameLost { .. } => PINFOLD_NAME_LOST,
        Error::NameGone { .. } => PINFOLD_NAME_GONE,
        Error::BadAddress { .. } => PINFOLD_BAD_ADDRESS,
        Error::NotAllowed { .. } => PINFOLD_NOT_ALLOWED,
        Error::VersionMismatch { .. } => PINFOLD_VERSION_MISMATCH,
        Error::LimitReached { .. } => PINFOLD_LIMIT_REACHED,
        Error::NoMemory { .. } => PINFOLD_NO_MEMORY,
        Error::Truncated { .. } => PINFOLD_TRUNCATED,
        Error::PeerGone { .. } => PINFOLD_PEER_GONE,
        Error::NobodyLeft { .. } => PINFOLD_NOBODY_LEFT,
        Error::UnknownPeer { .. } => PINFOLD_UNKNOWN_PEER,
        Error::PathRefused { .. } => PINFOLD_PATH_REFUSED,
        Error::OutOfReach { .. } => PINFOLD_OUT_OF_REACH,
        Error::Transfer { .. } => PINFOLD_TRANSFER_FAILED,
        Error::OutOfBounds { .. } => PINFOLD_OUT_OF_BOUNDS,
        Error::BadKey => PINFOLD_BAD_KEY,
        Error::Revoked => PINFOLD_REVOKED,
        Error::NotMapped { .. } => PINFOLD_NOT_MAPPED,
        Error::StillVisited { .. } => PINFOLD_STILL_VISITED,
        Error::Misaligned { .. } => PINFOLD_MISALIGNED,
        Error::ReadOnly => PINFOLD_READ_ONLY,
        Error::Withdrawn => PINFOLD_WITHDRAWN,
        Error::Undelivered { .. } => PINFOLD_UNDELIVERED,
        Error::NotHandled { .. } => PINFOLD_NOT_HANDLED,
        Error::AlreadyAnswered => PINFOLD_ALREADY_ANSWERED,
        Error::Cancelled => PINFOLD_CANCELLED,
        Error::NoAnswer { .. } => PINFOLD_NO_ANSWER,
        Error::KeyNeeded { .. } => PINFOLD_KEY_NEEDED,
        Error::UnusableKey(_) => PINFOLD_UNUSABLE_KEY,
        Error::Greeting { .. } => PINFOLD_GREETING_FAILED,
        Error::NotListening => PINFOLD_NOT_LISTENING,
        Error::NotTaken { .. } => PINFOLD_NOT_TAKEN,
        Error::Timeout(_) => PINFOLD_TIMEOUT,
        Error::Forked => PINFOLD_FORKED,
        Error::Closed => PINFOLD_CLOSED,
        Error::Os { .. } => PINFOLD_SYSTEM,
        _ => PINFOLD_OTHER,
    }
}

thread_local! {
    /// The sentence of the last failure of a call of this thread.
    static SAID: RefCell<CString> = RefCell::default();
}

fn say(sentence: CString) {
    // A thread that ends has nobody to read it.
    let _ = SAID.try_with(|said| said.replace(sentence));
}

/// Runs a function of the interface.
#[inline]
pub(crate) fn run(function: impl FnOnce() -> Outcome) -> pinfold_status {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => PINFOLD_OK,
        Ok(Err(failure)) => failed(&failure),
        Err(_) => panicked(),
    }
}

/// As [`run`], of a function that returns something else; `otherwise` after a panic.
pub(crate) fn value<T>(otherwise: T, function: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or(otherwise)
}

#[cold]
fn failed(failure: &Failure) -> pinfold_status {
    say(failure.sentence());
    failure.status()
}

#[cold]
fn panicked() -> pinfold_status {
    say(c"the library met a defect of its own; standard error has it".to_owned());
    pinfold_status::PINFOLD_INTERNAL
}

/// The sentence of the last call of this thread that failed: what failed, on what, and what to do.
/// Empty if none has. Good until the next call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn pinfold_error() -> *const c_char {
    SAID.try_with(|said| said.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of a status, such as "PINFOLD_TIMEOUT"; "unknown" for another number. Good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn pinfold_status_name(status: i32) -> *const c_char {
    NAMES
        .get(usize::try_from(status).unwrap_or(usize::MAX))
        .map_or(c"unknown", |name| name)
        .as_ptr()
}

/// The names, by number.
const NAMES: [&std::ffi::CStr; 41] = [
    c"PINFOLD_OK",
    c"PINFOLD_INVALID",
    c"PINFOLD_TIMEOUT",
    c"PINFOLD_TRUNCATED",
    c"PINFOLD_PEER_GONE",
    c"PINFOLD_NOBODY_LEFT",
    c"PINFOLD_UNKNOWN_PEER",
    c"PINFOLD_CANCELLED",
    c"PINFOLD_CLOSED",
    c"PINFOLD_FORKED",
    c"PINFOLD_NAME_IN_USE",
    c"PINFOLD_NAME_LOST",
    c"PINFOLD_NAME_GONE",
    c"PINFOLD_BAD_ADDRESS",
    c"PINFOLD_NOT_ALLOWED",
    c"PINFOLD_VERSION_MISMATCH",
    c"PINFOLD_NO_ANSWER",
    c"PINFOLD_GREETING_FAILED",
    c"PINFOLD_KEY_NEEDED",
    c"PINFOLD_UNUSABLE_KEY",
    c"PINFOLD_NOT_LISTENING",
    c"PINFOLD_PATH_REFUSED",
    c"PINFOLD_TRANSFER_FAILED",
    c"PINFOLD_NOT_TAKEN",
    c"PINFOLD_UNDELIVERED",
    c"PINFOLD_OUT_OF_BOUNDS",
    c"PINFOLD_BAD_KEY",
    c"PINFOLD_REVOKED",
    c"PINFOLD_NOT_MAPPED",
    c"PINFOLD_OUT_OF_REACH",
    c"PINFOLD_STILL_VISITED",
    c"PINFOLD_MISALIGNED",
    c"PINFOLD_READ_ONLY",
    c"PINFOLD_WITHDRAWN",
    c"PINFOLD_NOT_HANDLED",
    c"PINFOLD_ALREADY_ANSWERED",
    c"PINFOLD_LIMIT_REACHED",
    c"PINFOLD_NO_MEMORY",
    c"PINFOLD_SYSTEM",
    c"PINFOLD_INTERNAL",
    c"PINFOLD_OTHER",
];

/// The version of the library, such as "0.1.0". Good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn pinfold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A time limit of the interface. `None`: there is none.
pub(crate) fn patience(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// The value that a pointer points at.
///
/// # Safety
/// NULL, or valid for `'a`.
#[inline]
pub(crate) unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(name))
}

/// A place for a result.
pub(crate) fn place<T>(pointer: *mut T, name: &str) -> Outcome<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| is_null(name))
}

#[cold]
fn is_null(name: &str) -> Failure {
    Failure::invalid(format!("{name} is NULL"))
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// NULL, or valid for a write.
#[inline]
pub(crate) unsafe fn store<T>(pointer: *mut T, result: T) {
    if !pointer.is_null() {
        // SAFETY: the caller's.
        unsafe { pointer.write(result) };
    }
}

/// Gives a handle out.
///
/// # Safety
/// `place` is valid for a write.
pub(crate) unsafe fn give_out<T>(place: NonNull<*mut T>, handle: T) {
    // SAFETY: the caller's.
    unsafe { place.write(Box::into_raw(Box::new(handle))) };
}

/// Takes a handle back.
///
/// # Safety
/// NULL, or given out by [`give_out`] and not taken back yet.
pub(crate) unsafe fn take_back<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}
