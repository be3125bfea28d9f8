#![allow(unsafe_code)]
//! Buffers that an operation in flight owns.
//!
//! **Invariant.** Implementors of [`OwnedBuf`] and [`OwnedBufMut`] promise that the bytes they
//! name stay where they are when the buffer itself is moved or leaked. The library reads or writes
//! them, and lets a peer do so, until the operation has ended, and touches the buffer meanwhile
//! only to move it. It reaches the bytes by the pointer alone and forms no reference to them, since
//! peers can write those of a [`SharedBuf`] at any time: bytes that a peer changes in the midst of
//! a transfer arrive as they were before, or after, or in parts.

use std::sync::Arc;

use crate::{ArenaBuf, FrozenBuf, Message, SharedBuf, memory::scatter::Scatter};

/// A buffer to send from whose bytes do not move with it.
///
/// # Safety
/// [`OwnedBuf::bytes`] and [`OwnedBuf::parts`] return the same memory every time, valid for reads
/// until the buffer is dropped, wherever the buffer is moved to; nothing in this process writes it
/// while the buffer is not used. Other processes may.
///
/// ```
/// use pinfold::{Endpoint, OwnedBuf};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-owned-buf-{}", std::process::id());
/// struct Line(Box<str>);
///
/// // SAFETY: the bytes of a box stay where they are when it is moved, and nothing writes them.
/// unsafe impl OwnedBuf for Line {
///     fn bytes(&self) -> (*const u8, usize) {
///         (self.0.as_ptr(), self.0.len())
///     }
/// }
///
/// # let endpoint = Endpoint::listen(&name)?;
/// # let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// # let peer = endpoint.accept()?;
/// let (receipt, line) = endpoint.send_owned(itself, 1, Line("a line".into())).wait();
/// assert_eq!(receipt?.bytes, 6);
/// assert_eq!(&*endpoint.recv(peer, 1)?, line.0.as_bytes());
/// # Ok(())
/// # }
/// ```
pub unsafe trait OwnedBuf: Send + 'static {
    /// Its first byte and its length.
    fn bytes(&self) -> (*const u8, usize);

    /// The first bytes and the lengths of its parts, if it is a list of several: they are sent as
    /// one message ([`Endpoint::send_owned`](crate::Endpoint::send_owned)). Other operations ask
    /// for [`OwnedBuf::bytes`] alone.
    fn parts(&self) -> Option<&[(*const u8, usize)]> {
        None
    }
}

/// A buffer to receive into whose bytes do not move with it.
///
/// # Safety
/// [`OwnedBufMut::bytes_mut`] and [`OwnedBufMut::parts_mut`] return the same memory every time,
/// valid for reads and writes until the buffer is dropped, wherever the buffer is moved to; nothing
/// else in this process reaches it. Other processes may.
///
/// ```
/// use pinfold::{Endpoint, OwnedBufMut};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-owned-buf-mut-{}", std::process::id());
/// struct Pixels(Box<[u32]>);
///
/// // SAFETY: the pixels of a box stay where they are when it is moved, they are the box's alone,
/// // and any bytes are pixels.
/// unsafe impl OwnedBufMut for Pixels {
///     fn bytes_mut(&mut self) -> (*mut u8, usize) {
///         (self.0.as_mut_ptr().cast(), size_of_val(&*self.0))
///     }
/// }
///
/// # let endpoint = Endpoint::listen(&name)?;
/// # let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// # let peer = endpoint.accept()?;
/// endpoint.send(itself, 1, &[0xff; 8])?;
/// let (received, pixels) = endpoint.recv_owned(peer, 1, Pixels(Box::new([0; 2]))).wait();
/// assert_eq!(received?.len, 8);
/// assert_eq!(*pixels.0, [u32::MAX; 2]);
/// # Ok(())
/// # }
/// ```
pub unsafe trait OwnedBufMut: Send + 'static {
    /// Its first byte and its length.
    fn bytes_mut(&mut self) -> (*mut u8, usize);

    /// The first bytes and the lengths of its parts, if it is a list of several, which a message
    /// fills in order ([`Endpoint::recv_owned`](crate::Endpoint::recv_owned)). Other operations ask
    /// for [`OwnedBufMut::bytes_mut`] alone.
    fn parts_mut(&mut self) -> Option<&[(*mut u8, usize)]> {
        None
    }
}

/// The memory of a buffer to send from.
///
/// # Safety
/// The buffer is kept until the operation that uses the memory has ended.
pub(crate) unsafe fn to_send(buffer: &impl OwnedBuf) -> Scatter {
    // SAFETY: `OwnedBuf` keeps the bytes in place as long as the buffer is kept.
    unsafe {
        match buffer.parts() {
            Some(parts) => Scatter::many(parts.iter().map(|(ptr, len)| (ptr.cast_mut(), *len))),
            None => {
                let (ptr, len) = buffer.bytes();
                Scatter::one(ptr.cast_mut(), len)
            }
        }
    }
}

/// The memory of a buffer to receive into.
///
/// # Safety
/// As for [`to_send`].
pub(crate) unsafe fn to_fill(buffer: &mut impl OwnedBufMut) -> Scatter {
    // SAFETY: `OwnedBufMut` keeps the bytes in place as long as the buffer is kept.
    unsafe {
        if let Some(parts) = buffer.parts_mut() {
            return Scatter::many(parts.iter().copied());
        }
        let (ptr, len) = buffer.bytes_mut();
        Scatter::one(ptr, len)
    }
}

// SAFETY: a vector's elements lie on the heap and do not move with it.
unsafe impl OwnedBuf for Vec<u8> {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: as above. A receive fills its length, not its capacity.
unsafe impl OwnedBufMut for Vec<u8> {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: a box's contents do not move with it. Requests keep it in a `MaybeUninit`, which makes
// no claim of unique access when it is moved.
unsafe impl OwnedBuf for Box<[u8]> {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Box<[u8]> {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: shared bytes do not move, and nothing can write them.
unsafe impl OwnedBuf for Arc<[u8]> {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes of an arena's buffer do not move with it, and are its own.
unsafe impl OwnedBuf for ArenaBuf {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: as above. Peers may read them, but never write.
unsafe impl OwnedBufMut for ArenaBuf {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: the bytes of a frozen buffer do not move with it, and nobody can write them.
unsafe impl OwnedBuf for FrozenBuf {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes of a shared arena's buffer do not move with it, and nothing else in this
// process can reach them except as peers do: by a mapping of their file.
unsafe impl OwnedBuf for SharedBuf {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for SharedBuf {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes of a `Bytes` lie on the heap, with its owner or in static memory, and do not
// move with it; all that share them only read.
#[cfg(feature = "bytes")]
unsafe impl OwnedBuf for bytes::Bytes {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: the bytes of a `BytesMut` lie on the heap, and no two of them share any.
#[cfg(feature = "bytes")]
unsafe impl OwnedBuf for bytes::BytesMut {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

// SAFETY: as above. A receive fills its length, not its capacity.
#[cfg(feature = "bytes")]
unsafe impl OwnedBufMut for bytes::BytesMut {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

// SAFETY: static bytes stay for ever.
unsafe impl OwnedBuf for &'static [u8] {
    fn bytes(&self) -> (*const u8, usize) {
        (self.as_ptr(), self.len())
    }
}

/// A message of at most 56 bytes lies in the `Message` itself and would move with it, so messages
/// are sent on as vectors.
impl From<Message> for Vec<u8> {
    fn from(message: Message) -> Vec<u8> {
        message.into_vec()
    }
}

#[cfg(all(test, feature = "bytes", not(loom)))]
mod tests {
    use bytes::{Bytes, BytesMut};

    use crate::Endpoint;

    /// Shared, sliced and moved while they are on their way.
    #[test]
    fn buffers_of_the_crate_bytes_go_both_ways() {
        let name = format!("local:bytes-{}", std::process::id());
        let endpoint = Endpoint::listen(&name).unwrap();
        let to = endpoint.connect(&name).unwrap();
        let from = endpoint.accept().unwrap();
        for len in [0, 10, 5000, 3 << 20] {
            let whole = Bytes::from(vec![len as u8; len + 3]);
            let receive = endpoint.recv_owned(from, 1, BytesMut::zeroed(len));
            let sent = endpoint.send_owned(to, 1, whole.slice(3..));
            let (received, back) = Box::new(receive).wait();
            assert_eq!(received.unwrap().len, len as u64);
            assert_eq!(back, whole.slice(..len));
            let (receipt, part) = sent.wait();
            assert_eq!((receipt.unwrap().bytes, part.len()), (len as u64, len));
            let again = endpoint.send_owned(to, 2, back);
            assert_eq!(&*endpoint.recv(from, 2).unwrap(), &whole[3..]);
            again.wait().0.unwrap();
        }
    }
}
