//! A program with more thread-local variables than the stack of the library's threads, out of which
//! they are taken.

use std::{cell::RefCell, time::Duration};

use pinfold::{
    Endpoint, Progress,
    copy::engine::{CopyEngine, EngineConfig},
    translate::{own::OwnMemory, pincache::Budget},
};

/// Bytes of thread-local variables beside the stack of the library's smallest thread.
const BYTES: usize = 384 << 10;

thread_local! {
    static LARGE: RefCell<[u8; BYTES]> = const { RefCell::new([0; BYTES]) };
}

#[test]
fn threads_of_the_library_have_room_for_them() {
    // A use, so that they are not left out of the program.
    LARGE.with_borrow_mut(|large| std::hint::black_box(large)[7] = 7);
    let endpoint = Endpoint::builder().progress(Progress::Dedicated).build().unwrap();
    assert!(endpoint.peers().is_empty());
    let engine = CopyEngine::new(EngineConfig { threads: 2, ..EngineConfig::default() });
    let (ended, from, to) =
        engine.copy(vec![7; 4 << 20], vec![0; 4 << 20]).unwrap().wait().unwrap();
    ended.unwrap();
    assert!(from == to);
    // The threads of own memory have the smallest stack of all.
    let memory = OwnMemory::new(Budget::of_bytes(1 << 20)).unwrap();
    let bytes = vec![7u8; 64 << 10];
    drop(memory.begin(bytes.as_ptr() as u64, bytes.len() as u64));
    drop((bytes, memory));
    let found = pinfold::copy::tune(Duration::from_millis(50), None, |_| ()).unwrap();
    assert!(found.cases > 0);
}
