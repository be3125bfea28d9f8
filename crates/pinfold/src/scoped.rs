//! The common part of the library's scopes: operations begun in one have ended before it returns.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `f`, and then `end`, which is told whether `f` panicked, and ends all use of the caller's
/// memory. A panic in `end` aborts the process: in here it would let that memory go while it is
/// used.
pub(crate) fn run<R>(f: impl FnOnce() -> R, end: impl FnOnce(bool)) -> R {
    let result = catch_unwind(AssertUnwindSafe(f));
    let bomb = AbortOnDrop;
    end(result.is_err());
    std::mem::forget(bomb);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_comes_after_a_panic_too() {
        let mut told = Vec::new();
        assert_eq!(run(|| 7, |unwinding| told.push(unwinding)), 7);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run(|| panic!("on purpose"), |unwinding| told.push(unwinding))
        }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
        assert_eq!(told, [false, true]);
    }
}
