//! Peers that say the wrong thing.

use proptest::prelude::*;

use super::*;

#[test]
pub(super) fn wrong_segments_are_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let scene = Scene::new(&Access::same_user());
    let (_target, introduction) = sample();
    let welcome = hello::encode_welcome(&introduction, &proof::NOT_TRIED);

    let unsealed = memfd_create("pinfold", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, SEGMENT_BYTES as u64).unwrap();
    let small = memfd::create_sealed("pinfold", SEGMENT_BYTES / 2).unwrap();
    let sealed = memfd::create_sealed("pinfold", SEGMENT_BYTES).unwrap();
    let reopened = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&sealed));
    let read_only = OwnedFd::from(std::fs::File::open(reopened).unwrap());
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let process = process::self_pidfd().unwrap();
    for (segment, words) in [
        (&unsealed, "not sealed"),
        (&small, "wrong size"),
        (&read_only, "cannot be written"),
        (&process, "not a memfd"),
        // Its contents are not read.
        (&null, "without a segment"),
    ] {
        let (mut client, raw) = scene.bad_server();
        seqpacket::send(&raw, &welcome, &[segment.as_fd()]).unwrap();
        misbehaved(client.step(0), words);
    }
    let (mut client, raw) = scene.bad_server();
    seqpacket::send(&raw, &welcome, &[]).unwrap();
    misbehaved(client.step(0), "without a segment");
    let (mut client, raw) = scene.bad_server();
    seqpacket::send(&raw, &welcome, &[sealed.as_fd(), small.as_fd(), small.as_fd()]).unwrap();
    misbehaved(client.step(0), "too many descriptors");

    // A second descriptor that is no pidfd of the listener does no harm.
    let (mut client, raw) = scene.bad_server();
    seqpacket::send(&raw, &welcome, &[sealed.as_fd(), small.as_fd()]).unwrap();
    assert!(client.step(0).unwrap().is_none());
    let right = Verdict { read: Ok(()), write: Ok(()) };
    seqpacket::send(&raw, &hello::encode_ready(&right), &[]).unwrap();
    let established = client.step(0).unwrap().unwrap();
    assert!(process::pidfd_alive(&established.pidfd));
    assert_eq!(established.peer_reads, Err(Refusal::SwitchedOffByPeer));
}

#[test]
fn a_wrong_proof_rules_the_path_out() {
    let (raw, mut server) = raw();
    let (_target, introduction) = sample();
    seqpacket::send(&raw, &hello::encode_hello(&introduction), &[]).unwrap();
    assert!(server.step(0).unwrap().is_none());
    let made_up = Proof { read: Ok([1; 16]), write: Ok([2; 16]) };
    let wrong = Err(Refusal::WrongProcess);
    let verdict = Verdict { read: Ok(()), write: wrong };
    seqpacket::send(&raw, &hello::encode_proof(&made_up, &verdict), &[]).unwrap();
    let established = server.step(0).unwrap().unwrap();
    assert_eq!((established.peer_reads, established.peer_writes), (wrong, wrong));
    assert!(established.we_write.is_err());
}

#[test]
fn a_stranger_with_the_same_process_id_is_not_written() {
    let (raw, mut server) = raw();
    let (target, mut introduction) = sample();
    introduction.mark = [0xee; 16];
    seqpacket::send(&raw, &hello::encode_hello(&introduction), &[]).unwrap();
    assert!(server.step(0).unwrap().is_none());
    let mut buf = [0; hello::MESSAGE_MAX];
    let got = seqpacket::recv(&raw, &mut buf, 2).unwrap();
    let Answer::Welcome(_, proof) = hello::decode_answer(&buf[..got.len]).unwrap() else {
        panic!("refused");
    };
    assert!(proof.read.is_err() && proof.write.is_err());
    assert!(target.judge(&Proof { read: Ok([0; 16]), write: Ok([0; 16]) }).write.is_ok());
}

#[test]
pub(super) fn messages_out_of_turn_end_it() {
    let (_target, introduction) = sample();
    let right = Verdict { read: Ok(()), write: Ok(()) };
    for message in [hello::encode_ready(&right), vec![1], vec![0; 600], vec![]] {
        let (raw, mut server) = raw();
        seqpacket::send(&raw, &message, &[]).unwrap();
        assert!(matches!(server.step(0), Err(Error::PeerGone { .. })));
    }
    let (raw, mut server) = raw();
    let hello = hello::encode_hello(&introduction);
    let memory = memfd::create_sealed("pinfold", SEGMENT_BYTES).unwrap();
    seqpacket::send(&raw, &hello, &[memory.as_fd()]).unwrap();
    misbehaved(server.step(0), "too many descriptors");
    let (raw, mut server) = super::raw();
    seqpacket::send(&raw, &hello, &[raw.as_fd()]).unwrap();
    assert!(server.step(0).unwrap().is_none(), "that one is put away");
    let (raw, mut server) = super::raw();
    seqpacket::send(&raw, &hello, &[]).unwrap();
    seqpacket::send(&raw, &hello, &[]).unwrap();
    misbehaved(server.step(0), "out of turn");
}

proptest! {
    #[test]
    fn garbage_never_stalls_or_panics(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..4),
        greet in any::<bool>(), at in 0..120usize, byte in any::<u8>(),
    ) {
        let (raw, mut server) = raw();
        if greet {
            let mut hello = hello::encode_hello(&sample().1);
            hello[at] = byte;
            seqpacket::send(&raw, &hello, &[]).unwrap();
        }
        for packet in &packets {
            let _ = seqpacket::send(&raw, packet, &[raw.as_fd()]);
        }
        prop_assert!(server.step(0).is_err());
    }
}
