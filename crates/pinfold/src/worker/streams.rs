//! Streams: messages that come in several pieces, asked for and complete.

use pinfold_sys::cpu::clock;

use crate::{
    Path, Refusal,
    failpoint::{self, Point},
    policy::route::{TOLD_FROM, halves},
    protocol::{
        rendezvous::fin,
        rma::served::{results, writes},
    },
    transport::shm::ring::Violation,
    wire::{descriptor::Kind, rendezvous::Cts, sample},
    worker::{
        answers,
        core::{Core, Unexpected},
        deliver,
        inbound_stream::{Came, Inbound, Sink},
        op::{Arrived, OpKey, RecvStage},
        peer::Peer,
        room,
    },
};

/// Has the sender of an announced message send it through the ring; `errno` is the kernel's
/// answer to the earlier attempt to copy it.
#[expect(clippy::too_many_arguments, reason = "what is known of one message")]
pub(crate) fn begin_stream(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    sid: u32,
    (tag, len): (u64, u64),
    want: u64,
    offered: bool,
    errno: u32,
) -> Result<(), Violation> {
    if peer.inbound_at(sid).is_some() {
        return Err(Violation("it began a stream twice"));
    }
    room::op_stage(&mut core.ops, key, RecvStage::Streaming { peer: peer.id });
    let new = Inbound::new(sid, tag, len, Sink::Op(key));
    ask_for(core, peer, Inbound { end: want, offered, errno, ..new }, false);
    Ok(())
}

/// Asks for an announced message in pieces, which are `stored` until there is a receive for it,
/// or go to one.
pub(crate) fn ask_for(core: &mut Core, peer: &mut Peer, stream: Inbound, stored: bool) {
    let Inbound { sid, end: want, errno, request, .. } = stream;
    match want {
        0 => all_came(core, peer, stream),
        _ => peer.inbound.push(stream),
    }
    let answer = Cts::Stream { want, credit: peer.granted, errno, stored, request };
    failpoint::hit(Point::BeforeStreamAck);
    answers::answer(core, peer, Kind::Cts, sid, &answer.body());
    failpoint::hit(Point::AfterStreamAck);
}

/// All bytes of a message that were to come have come.
pub(crate) fn all_came(core: &mut Core, peer: &mut Peer, stream: Inbound) {
    measure(peer, &stream);
    let (tag, len, came) = (stream.tag, stream.len, stream.came);
    if let Sink::Op(_) | Sink::Keep(..) = stream.sink {
        fin::copied(core, peer, stream.sid);
    }
    match stream.sink {
        Sink::Read(key) => results::read_whole(core, peer, key, came),
        Sink::Write(landing) => writes::landed(core, peer, stream.sid, *landing, came),
        Sink::Op(key) => complete(core, key, peer, (tag, len), came, stream.offered, stream.errno),
        Sink::Keep(key, kept) => {
            if let Some(entry) = core.matcher.unexpected_mut(key) {
                let bytes = kept.into_bytes();
                let (cost, by) = (stream.cost, came.by);
                *entry = Unexpected::Whole { bytes, cost, inline: false, by };
            }
        }
    }
}

/// Ends a receive whose bytes are all in its memory, some of them having been stored before;
/// `offered`: its sender took the message to be mapped here; `errno`: the kernel did not copy
/// it.
pub(crate) fn complete(
    core: &mut Core,
    key: OpKey,
    peer: &Peer,
    (tag, len): (u64, u64),
    Came { copied, stored, cma, by }: Came,
    offered: bool,
    errno: u32,
) {
    let mut receipt = peer.receipt(Path::Eager, copied, len);
    if errno != 0 {
        receipt.refuse(Path::Cma, Refusal::Denied(errno as i32));
    }
    if offered {
        receipt.refuse(Path::Mapped, Refusal::NotMapped);
    }
    receipt.copied_user = copied + stored - cma;
    receipt.copied_kernel = cma;
    receipt.note_copies(by);
    let bytes = room::own_bytes(&mut core.ops, key, copied);
    deliver::arrive(core, key, Arrived { peer: peer.id, tag, len, receipt, bytes, loan: None });
}

/// Tells the sender of a message through the ring the time that it took here.
fn measure(peer: &mut Peer, stream: &Inbound) {
    if stream.started == 0 || stream.end < TOLD_FROM {
        return;
    }
    if let Some(number) = stream.sample_number {
        peer.rx.say_fragment_sample(
            number,
            clock::ns_of(clock::ticks().saturating_sub(stream.started)),
        );
    }
    let ns = peer.times.arrival_lap_ns(stream.started);
    let number = halves::number(stream.sid, stream.len);
    peer.rx.say_took(sample::answer(number, ns));
}
