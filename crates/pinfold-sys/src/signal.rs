//! Dispositions of signals in this process.
#![allow(unsafe_code)]
// Invariant: nothing here changes any disposition.

use std::{mem::MaybeUninit, ptr};

/// Returns whether this process ignores `signal`, as it may have been started to. See
/// `sigaction(2)`. False for a number that is no signal.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer in the second place asks for the action in force and changes nothing;
    // the third points to memory of this frame that is as long as the structure written there.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zero, as it was made, is a value of this structure.
    let action = unsafe { action.assume_init() };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_ignores_broken_pipes_and_nothing_else() {
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGUSR1));
        assert!(!is_ignored(libc::SIGKILL) && !is_ignored(-1) && !is_ignored(4000));
    }
}
