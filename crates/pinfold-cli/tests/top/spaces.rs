#![allow(unsafe_code)]
// Invariant: only raw pointers refer to the exposed memory, and the other side writes nothing else.
//! Memory that is used by its addresses, and the view of `pinfold top` of that.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Path, RegionKey, Rights, SharedArena};
use pinfold_tests::{
    Args, Stage,
    role::{self, hear, say},
};

use super::harness::{look_at, run};

/// Bytes of each piece.
const LEN: usize = 4096;

/// Exposes ordinary memory and memory of an arena.
pub fn exposer(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder().label("exposer"), "exposer");
    let plain = vec![0u8; LEN].leak().as_mut_ptr().expose_provenance();
    let arena = SharedArena::builder().build_shared().unwrap().alloc(LEN).unwrap();
    // SAFETY: nothing refers to either any more, and the peer writes nothing else.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    let mut said = exposed.key().to_bytes().to_vec();
    for at in [plain, arena.addresses().start] {
        said.extend((at as u64).to_ne_bytes());
    }
    endpoint.send(peer, 1, &said).unwrap();
    let _ = endpoint.recv(peer, 2);
}

/// Uses it, and prints the number of operations of each kind, and their ways.
pub fn visitor(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder().label("visitor"), "exposer");
    let said = endpoint.recv(peer, 1).unwrap();
    let (key, words) = said.split_at(said.len() - 16);
    let space = endpoint.open_space(peer, &RegionKey::from_bytes(key).unwrap()).unwrap();
    let addresses = words.chunks_exact(8);
    let addresses = addresses.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let (mut writes, mut reads, mut by) = (0, 0, [0; Path::ALL.len()]);
    let may_map = args.text("paths").contains("mapped");
    for (at, is_arena) in addresses.zip([false, true]) {
        let end = Instant::now() + role::PATIENCE;
        for round in 0.. {
            // The owner's answer, that it can be mapped, takes its time.
            let waits = is_arena && may_map && by[Path::Mapped as usize] < 10;
            if round >= 100 {
                if !waits || Instant::now() > end {
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
            by[space.write(at, &[7; 100]).unwrap().path as usize] += 1;
            let mut bytes = [0; 64];
            by[space.read(at + 8, &mut bytes).unwrap().path as usize] += 1;
            assert_eq!(bytes, [7; 64]);
            (writes, reads) = (writes + 1, reads + 1);
        }
    }
    // Operations that fail are not counted.
    assert!(space.write(1 << 47, b"beyond").is_err());
    let [kernel, agent] = [Path::Cma, Path::Eager].map(|path| by[path as usize]);
    say(format_args!("visited {writes} {reads} {kernel} {agent}"));
    assert_eq!(hear(), "leave");
}

#[test]
fn operations_by_address_are_counted_with_the_way_they_went() {
    for paths in
        ["inline,eager,cma,mapped", "inline,eager,mapped", "inline,eager,cma", "inline,eager"]
    {
        let stage = Stage::new(60);
        let mut exposer = stage.role("exposer").with("paths", paths).spawn();
        exposer.expect("ready");
        let mut visitor = stage.role("visitor").with("paths", paths).spawn();
        let said = visitor.expect("visited");
        let said: Vec<u64> = said.split(' ').map(|word| word.parse().unwrap()).collect();
        let [writes, reads, kernel, agent] = said[..] else { panic!("{said:?}") };
        let one_sided = serde_json::json!({
            "writes": writes, "written_bytes": 100 * writes, "reads": reads, "read_bytes": 64 * reads,
            "atomics": 0, "by_kernel": kernel, "by_agent": agent,
        });
        let user = look_at(visitor.pid()).endpoint();
        for of in [&user.own, &user.peers[0]] {
            assert_eq!(of["one_sided"], one_sided, "{paths}: {of:#}");
        }
        // Operations that one path cannot do were done by another one.
        let mapped = writes + reads - kernel - agent;
        assert_eq!(mapped > 0, paths.contains("mapped"), "{paths}: {said:?}");
        let plain = if paths.contains("cma") && user.peers[0]["refused"].get("cma").is_none() {
            [true, false]
        } else {
            [false, true]
        };
        assert_eq!([kernel > 0, agent > 0], plain, "{paths}: {said:?}");
        let table = run(&["top", "--pid", &visitor.pid().to_string()]);
        for (count, way) in [(kernel, "by the kernel"), (agent, "by its agent")] {
            // A larger number would be shown in thousands.
            let said = if count < 1000 { format!("{count} {way}") } else { way.to_owned() };
            assert_eq!(table.contains(&said), count > 0, "{table}");
        }
        visitor.say("leave");
        visitor.end_well();
        exposer.end_well();
    }
}
