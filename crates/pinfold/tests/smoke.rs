//! Two endpoints in one process: every size around every boundary.

use pinfold::{Endpoint, Path, PathSet};

fn name(what: &str) -> String {
    format!("local:t-{what}-{}", std::process::id())
}

#[test]
fn ping_pong_all_sizes() {
    for paths in [PathSet::all(), PathSet::only(&[Path::Inline, Path::Eager])] {
        let addr = name("pp");
        let server = Endpoint::builder().listen(&addr).paths(paths).build().unwrap();
        let addr2 = addr.clone();
        let t = std::thread::spawn(move || {
            let client = Endpoint::builder().paths(paths).build().unwrap();
            let peer = client.connect(&addr2).unwrap();
            for len in [
                0usize,
                1,
                7,
                8,
                9,
                48,
                49,
                56,
                57,
                100,
                2048,
                2049,
                4096,
                10_000,
                65536,
                300_000,
                1 << 20,
                5_000_001,
            ] {
                let data: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
                let r = client.send(peer, len as u64 | 1 << 40, &data).unwrap();
                assert_eq!(r.bytes, len as u64);
                let back = client.recv(peer, len as u64).unwrap();
                assert_eq!(&back[..], &data[..]);
                println!("{len}: {r}");
            }
        });
        let peer = server.accept().unwrap();
        for len in [
            0usize,
            1,
            7,
            8,
            9,
            48,
            49,
            56,
            57,
            100,
            2048,
            2049,
            4096,
            10_000,
            65536,
            300_000,
            1 << 20,
            5_000_001,
        ] {
            let mut buf = vec![0; len];
            let got = server.recv_into(peer, len as u64 | 1 << 40, &mut buf).unwrap();
            assert_eq!(got.len, len as u64);
            server.send(peer, len as u64, &buf).unwrap();
        }
        t.join().unwrap();
    }
}
