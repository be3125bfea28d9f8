//! Regions of peers, in use.

use std::thread::Scope;

use pinfold::{Error, RemoteRegion};

/// Changes, reads and writes a region of 4 MiB at least over and over, each on a thread, until it
/// is withdrawn: any other error is a panic.
pub fn use_until_withdrawn<'scope>(scope: &'scope Scope<'scope, '_>, remote: &'scope RemoteRegion) {
    for len in [8, 5000, 4 << 20] {
        scope.spawn(move || {
            let mut bytes = vec![1; len];
            let error = loop {
                let done = match len {
                    8 => remote.fetch_add(0, 1u64).map(drop),
                    5000 => remote.read(0, &mut bytes).map(drop),
                    _ => remote.write(0, &bytes).map(drop),
                };
                if let Err(error) = done {
                    break error;
                }
            };
            assert!(matches!(error, Error::Withdrawn), "{error}");
        });
    }
}
