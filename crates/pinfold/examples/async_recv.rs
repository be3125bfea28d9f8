//! Requests as futures, under any executor: here the smallest there is, below. Run it: `cargo run
//! --example async_recv`.
//!
//! The other side is a thread with an endpoint of its own.

use std::{
    error::Error,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use pinfold::{Endpoint, Progress};

const QUESTION: u64 = 1;
const ANSWER: u64 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let address = format!("local:async-recv-{}", std::process::id());
    // Dedicated: a thread of the endpoint's own completes the futures.
    let endpoint = Endpoint::builder().listen(&address).progress(Progress::Dedicated).build()?;
    let other = thread::spawn(move || double(&address));

    let answer = block_on(async {
        let peer = endpoint.accept_request().await?;
        let (sent, _buffer) = endpoint.send_owned(peer, QUESTION, vec![1, 2, 3]).await;
        sent?;
        endpoint.recv_request(peer, ANSWER).await
    })?;
    assert_eq!(*answer, [2, 4, 6]);

    other.join().expect("the other side")?;
    println!("a question and its answer went by futures");
    Ok(())
}

fn double(address: &str) -> pinfold::Result<()> {
    let endpoint = Endpoint::new()?;
    let peer = endpoint.connect(address)?;
    let question = endpoint.recv(peer, QUESTION)?;
    let answer: Vec<u8> = question.iter().map(|number| 2 * number).collect();
    endpoint.send(peer, ANSWER, &answer)?;
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
