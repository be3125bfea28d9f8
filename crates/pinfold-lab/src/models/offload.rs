//! The cost of sending over TCP: for each byte, each message and each packet that the system makes.
//!
//! With segmentation offload (TSO) the interface makes the segments, and the system's packets are
//! as long as a message, or longer where it gathers short ones.

/// Bytes of data in a segment (paper, chapter 7).
pub const SEGMENT: f64 = 1460.0;
/// The most bytes of a packet with offload (paper, section 7.1).
pub const PACKET_MAX: f64 = 64.0 * 1024.0;
/// Bytes that costs are given for.
pub const UNIT: f64 = 1024.0;

/// The cost of a part of sending, in any unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// For each KB.
    pub bytes: f64,
    /// For each message.
    pub message: f64,
    /// For each packet.
    pub packet: f64,
}

/// A message's and a packet's length, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// The message's.
    pub message: f64,
    /// The packet's.
    pub packet: f64,
}

impl Lengths {
    /// Packets of a stream without offload: full segments, whatever the messages.
    pub fn segments(message: f64) -> Lengths {
        Lengths { message, packet: SEGMENT }
    }

    /// Packets with offload: a message each, if that is not too long.
    pub fn offloaded(message: f64) -> Lengths {
        Lengths { message, packet: message.min(PACKET_MAX) }
    }
}

impl Cost {
    /// The cost that has three known results. Fitted, so these are no predictions.
    ///
    /// The results are of short and of long messages in segments, and of long ones offloaded.
    pub fn fit(short: (f64, f64), long: (f64, f64), offloaded: f64) -> Cost {
        let per = |length: f64| UNIT / length;
        let message = (short.1 - long.1) / (per(short.0) - per(long.0));
        let packets = Lengths::offloaded(long.0).packet;
        let packet = (long.1 - offloaded) / (per(SEGMENT) - per(packets));
        let bytes = long.1 - message * per(long.0) - packet * per(SEGMENT);
        Cost { bytes, message, packet }
    }

    /// The cost of a KB sent so.
    pub fn of(&self, lengths: Lengths) -> f64 {
        let per = |length: f64| UNIT / length;
        self.bytes + self.message * per(lengths.message) + self.packet * per(lengths.packet)
    }

    /// The length of packets at which a KB of such messages costs `cost`; `None` if none does.
    pub fn packet_of(&self, message: f64, cost: f64) -> Option<f64> {
        let packets = cost - self.bytes - self.message * UNIT / message;
        let length = UNIT * self.packet / packets;
        (length.is_finite() && length > 0.0).then_some(length)
    }

    /// Both together.
    pub fn plus(self, other: Cost) -> Cost {
        Cost {
            bytes: self.bytes + other.bytes,
            message: self.message + other.message,
            packet: self.packet + other.packet,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kilobyte_costs_its_share_of_messages_and_packets() {
        let cost = Cost { bytes: 1.0, message: 2.0, packet: 4.0 };
        let lengths = Lengths { message: 2048.0, packet: 512.0 };
        assert_eq!(cost.of(lengths), 1.0 + 2.0 / 2.0 + 4.0 * 2.0);
        assert_eq!(cost.packet_of(2048.0, 10.0), Some(512.0));
        assert_eq!(cost.packet_of(2048.0, 2.0), None, "no packets cost nothing");
        assert_eq!(cost.plus(cost).of(lengths), 20.0);
        let long = Lengths::offloaded(1e6);
        assert_eq!(long.packet, 65_536.0);
    }

    proptest! {
        #[test]
        fn a_fit_finds_the_costs_again(
            bytes in 0.0..10.0, message in 0.0..10.0, packet in 0.01..10.0,
        ) {
            let cost = Cost { bytes, message, packet };
            let (short, long) = (1024.0, 32.0 * 1024.0);
            let at = |length| (length, cost.of(Lengths::segments(length)));
            let found = Cost::fit(at(short), at(long), cost.of(Lengths::offloaded(long)));
            for (found, known) in
                [(found.bytes, bytes), (found.message, message), (found.packet, packet)]
            {
                prop_assert!((found - known).abs() < 1e-9, "{found} {known}");
            }
        }
    }
}
