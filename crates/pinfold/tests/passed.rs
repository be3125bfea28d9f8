//! Endpoints that listen at a socket that was made elsewhere, as a service manager makes it.

use std::{net::TcpListener, thread};

use pinfold::{Endpoint, Error};

#[test]
fn callers_that_wait_already_are_answered_and_the_socket_goes_on() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", socket.local_addr().unwrap());
    for tag in 0..3 {
        let to = address.clone();
        let caller = thread::spawn(move || {
            let endpoint = Endpoint::builder().local_shortcut(false).build().unwrap();
            let peer = endpoint.connect(&to).unwrap();
            endpoint.send(peer, tag, &tag.to_le_bytes()).unwrap();
            endpoint.recv(peer, tag).unwrap().to_vec()
        });
        // The one before is closed: only the socket listens meanwhile.
        let passed = socket.try_clone().unwrap().into();
        let endpoint = Endpoint::builder().listen_on(&address, passed).build().unwrap();
        assert_eq!(endpoint.listens_at().as_ref(), Some(&address));
        let peer = endpoint.accept().unwrap();
        let message = endpoint.recv(peer, tag).unwrap().to_vec();
        assert_eq!(message, tag.to_le_bytes());
        endpoint.send(peer, tag, &[message, vec![7]].concat()).unwrap();
        assert_eq!(caller.join().unwrap().len(), 9);
    }
}

#[test]
fn a_socket_that_is_elsewhere_or_none_is_an_error() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let passed = || socket.try_clone().unwrap().into();
    let other = format!("tcp:127.0.0.1:{}", if at.port() == 7 { 8 } else { 7 });
    for address in ["local:passed", &other] {
        let made = Endpoint::builder().listen_on(address, passed()).build();
        assert!(matches!(made, Err(Error::NotAllowed { .. })), "{address}: {made:?}");
    }
    let caller = std::net::TcpStream::connect(at).unwrap();
    let made = Endpoint::builder().listen_on("tcp:127.0.0.1:0", caller.into()).build();
    assert!(matches!(made, Err(Error::Os { .. })), "{made:?}");
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let made = Endpoint::builder().listen_on("tcp:0.0.0.0:0", everywhere.into()).build();
    assert!(matches!(made, Err(Error::KeyNeeded { .. })), "{made:?}");
}
