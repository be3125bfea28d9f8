//! Packets lost by chance: a classic BPF program, which the kernel runs for each packet that comes
//! or goes. See `tc-bpf(8)`, and `SKF_AD_RANDOM` in `linux/filter.h`.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
};
use rustix::io::Errno;

use super::{Error, Link, Reason};

/// The queueing discipline that filters of incoming and outgoing packets hang on.
const CLSACT: &str = "clsact";
/// `TCA_BPF_OPS_LEN`, `TCA_BPF_OPS`: the number of instructions, and the instructions.
const OPS_LEN: u16 = 4;
const OPS: u16 = 5;
/// `ETH_P_ALL`, which the kernel wants in network order beside the filter's rank.
const EVERY_PROTOCOL: u16 = 0x0003;

/// `struct sock_filter`: code, jump if true, jump if false, operand.
type Op = (u16, u8, u8, u32);

/// `SKF_AD_OFF` + `SKF_AD_PROTOCOL`, + `SKF_AD_RANDOM`.
const PROTOCOL: u32 = 0xffff_f000;
const RANDOM: u32 = 0xffff_f000 + 56;
const ARP: u32 = 0x0806;
/// `TC_ACT_OK`, `TC_ACT_SHOT`.
const PASS: u32 = 0;
const LOSE: u32 = 2;

/// Loses `percent` of the packets at both sides of `link`, instead of an earlier percentage.
pub(super) fn set(link: &Link, percent: u32) -> Result<(), Error> {
    if percent > 100 {
        let on = format!("{percent} % at {}", link.name());
        return Err(Error::new("RTM_NEWTFILTER", on, Errno::INVAL));
    }
    let old = RouteNetlinkMessage::DelQueueDiscipline(queue(link));
    match link.ask("RTM_DELQDISC", &CLSACT, old, 0) {
        // There was none.
        Err(error)
            if matches!(error.reason(), Reason::Malformed | Reason::Gone | Reason::Absent) => {}
        done => done?,
    }
    if percent == 0 {
        return Ok(());
    }
    let new = RouteNetlinkMessage::NewQueueDiscipline(queue(link));
    link.ask("RTM_NEWQDISC", &CLSACT, new, NLM_F_CREATE | NLM_F_EXCL)?;
    for side in [TcHandle::MIN_INGRESS, TcHandle::MIN_EGRESS] {
        let filter = RouteNetlinkMessage::NewTrafficFilter(filter(link, side, percent));
        link.ask("RTM_NEWTFILTER", &TcFilterBpf::KIND, filter, NLM_F_CREATE | NLM_F_EXCL)?;
    }
    Ok(())
}

fn at(link: &Link) -> TcMessage {
    TcMessage::with_index(link.index().cast_signed())
}

fn queue(link: &Link) -> TcMessage {
    let mut queue = at(link);
    queue.header.parent = TcHandle::CLSACT;
    queue.header.handle = TcHandle { major: TcHandle::CLSACT.major, minor: 0 };
    queue.attributes.push(TcAttribute::Kind(CLSACT.to_owned()));
    queue
}

fn filter(link: &Link, side: u16, percent: u32) -> TcMessage {
    let program = program(percent);
    let ops = program.iter().flat_map(|&(code, yes, no, operand)| {
        let [c0, c1] = code.to_ne_bytes();
        let [k0, k1, k2, k3] = operand.to_ne_bytes();
        [c0, c1, yes, no, k0, k1, k2, k3]
    });
    let option = |option| TcOption::Bpf(option);
    let other = |kind, value| option(TcFilterBpfOption::Other(DefaultNla::new(kind, value)));
    let mut filter = at(link);
    filter.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor: side };
    filter.header.info = 1 << 16 | u32::from(EVERY_PROTOCOL.to_be());
    filter.attributes = vec![
        TcAttribute::Kind(TcFilterBpf::KIND.to_owned()),
        TcAttribute::Options(vec![
            other(OPS_LEN, (program.len() as u16).to_ne_bytes().to_vec()),
            other(OPS, ops.collect()),
            option(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]),
    ];
    filter
}

/// Passes ARP, and those of the other packets that draw a number above the threshold.
fn program(percent: u32) -> [Op; 6] {
    let threshold = (u64::from(percent) << 32) / 100;
    let draw = match u32::try_from(threshold) {
        Ok(threshold) => (0x35, 0, 1, threshold),
        // All packets: a jump.
        Err(_) => (0x05, 0, 0, 1),
    };
    [
        (0x28, 0, 0, PROTOCOL),
        (0x15, 2, 0, ARP),
        (0x20, 0, 0, RANDOM),
        draw,
        (0x06, 0, 0, PASS),
        (0x06, 0, 0, LOSE),
    ]
}
