//! Addresses as they are typed: their place among the words, and the likely intention.

use std::path::{Path, PathBuf};

use pinfold::Endpoint;

use super::{failure::Failure, name::printable};

/// Checks the words of `pinfold send` before any file is read.
///
/// # Errors
/// [`Failure::Usage`], with the right words; [`Failure::Connect`] for an address that is none.
pub(super) fn of_sender(files: &[PathBuf], address: &str) -> Result<(), Failure> {
    let among = files.iter().position(|file| is_address(file) && !file.exists());
    if !begins_as_one(address) {
        let word = printable(address.as_bytes());
        if let Some(at) = among {
            let rest = files.iter().enumerate().filter(|(other, _)| *other != at);
            let mut words: Vec<String> = rest.map(|(_, file)| shown(file)).collect();
            words.push(word);
            let (words, address) = (words.join(" "), shown(&files[at]));
            return usage(format!("the address comes last: pinfold send {words} {address}"));
        }
        if let Some(meant) = meant(address) {
            return usage(format!("{word:?} is not an address; did you mean {meant}?"));
        }
        let files: Vec<String> = files.iter().map(|file| shown(file)).collect();
        let words = [files, vec![word.clone()]].concat().join(" ");
        return usage(format!(
            "{word:?} is not an address, so there is nowhere to send to; the address is the last word: \
             pinfold send {words} local:NAME, or tcp:HOST:PORT"
        ));
    }
    if let Some(at) = among {
        let (one, other) = (shown(&files[at]), printable(address.as_bytes()));
        return usage(format!("{one} and {other} are both addresses; a transfer has one receiver"));
    }
    Endpoint::check_address(address).map_err(|error| match meant(address) {
        Some(meant) => Failure::Usage(format!("{error}; did you mean {meant}?")),
        None => Failure::Connect(error),
    })
}

/// Checks the words of `pinfold recv`; an address to listen at has other rules, which the library
/// knows.
///
/// # Errors
/// [`Failure::Usage`], with the right words.
pub(super) fn of_receiver(address: &str, directory: Option<&Path>) -> Result<(), Failure> {
    if begins_as_one(address) {
        let listens = Endpoint::check_address(address).is_ok();
        return match meant(address).filter(|_| !listens) {
            Some(meant) if !meant.ends_with(":0") => {
                let word = printable(address.as_bytes());
                usage(format!("{word:?} is not an address; did you mean {meant}?"))
            }
            _ => Ok(()),
        };
    }
    let word = printable(address.as_bytes());
    if let Some(other) = directory.filter(|other| is_address(other)) {
        let other = shown(other);
        return usage(format!("the address comes first: pinfold recv {other} {word}"));
    }
    if let Some(meant) = meant(address) {
        return usage(format!("{word:?} is not an address; did you mean {meant}?"));
    }
    usage(format!(
        "{word:?} is not an address to listen at; the address is the first word: \
         pinfold recv local:NAME {word}, or tcp:HOST:PORT"
    ))
}

fn usage(why: String) -> Result<(), Failure> {
    Err(Failure::Usage(why))
}

fn shown(file: &Path) -> String {
    printable(file.as_os_str().as_encoded_bytes())
}

fn is_address(word: &Path) -> bool {
    word.to_str().is_some_and(begins_as_one)
}

fn begins_as_one(word: &str) -> bool {
    word.starts_with("local:") || word.starts_with("tcp:")
}

/// The address that a word is meant to be but for its spelling, if there is one.
fn meant(word: &str) -> Option<String> {
    let trimmed = word.trim();
    let lower = match trimmed.split_once(':') {
        Some((scheme, rest)) => format!("{}:{rest}", scheme.trim().to_ascii_lowercase()),
        None => return None,
    };
    let slashes = lower.replacen("://", ":", 1);
    let slashes = slashes.strip_suffix('/').unwrap_or(&slashes).to_owned();
    let port_alone = trimmed.rsplit_once(':').map(|(host, port)| format!("tcp:{host}:{port}"));
    let candidates = [Some(lower), Some(slashes), port_alone];
    let is_one = |meant: &String| meant != word && Endpoint::check_address(meant).is_ok();
    candidates.into_iter().flatten().find(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(result: Result<(), Failure>) -> String {
        let failure = result.unwrap_err();
        assert_eq!(failure.status(), 2, "{failure}");
        failure.to_string()
    }

    fn send(files: &[&str], address: &str) -> Result<(), Failure> {
        of_sender(&files.iter().map(PathBuf::from).collect::<Vec<_>>(), address)
    }

    #[test]
    fn words_in_another_order_are_set_right() {
        let says = "the address comes last: pinfold send a b local:box";
        assert_eq!(said(send(&["local:box", "a"], "b")), says);
        let says = "local:a and local:b are both addresses; a transfer has one receiver";
        assert_eq!(said(send(&["local:a"], "local:b")), says);
        let directory = Some(Path::new("local:box"));
        let says = "the address comes first: pinfold recv local:box out";
        assert_eq!(said(of_receiver("out", directory)), says);
        send(&["a"], "local:box").unwrap();
        of_receiver("local:box", Some(Path::new("out"))).unwrap();
        of_receiver("tcp:0.0.0.0:0", None).unwrap();
    }

    #[test]
    fn who_forgets_the_address_is_told_where_it_goes() {
        let text = said(send(&["a"], "b"));
        assert!(text.ends_with("pinfold send a b local:NAME, or tcp:HOST:PORT"), "{text}");
        let text = said(of_receiver("out", None));
        assert!(text.contains("pinfold recv local:NAME out"), "{text}");
    }

    #[test]
    fn what_was_meant_is_said() {
        for (word, address) in [
            ("tcp://host:7000", "tcp:host:7000"),
            ("tcp://host:7000/", "tcp:host:7000"),
            ("TCP:host:7000", "tcp:host:7000"),
            (" local:box", "local:box"),
            ("local://box", "local:box"),
            ("host:7000", "tcp:host:7000"),
            ("10.0.0.7:7000", "tcp:10.0.0.7:7000"),
        ] {
            let text = said(send(&[], word));
            assert!(text.ends_with(&format!("did you mean {address}?")), "{word:?}: {text}");
            let text = said(of_receiver(word, None));
            assert!(text.ends_with(&format!("did you mean {address}?")), "{word:?}: {text}");
        }
        for (word, why) in [
            ("tcp:host", "the port is missing"),
            ("tcp:host:70000", "the port is above 65535"),
            ("tcp:host:0", "port 0 is for listening"),
            ("tcp::7", "the host is empty"),
            ("local:", "the name is empty"),
            ("local:a b", "the name has characters"),
        ] {
            let text = said(send(&[], word));
            assert!(text.contains(why), "{word:?}: {text}");
        }
    }
}
