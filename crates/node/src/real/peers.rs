//! Which other control planes serve: each is asked at `/readyz`, as a load balancer does. A peer without power answers nothing for
//! seconds, and the swap of this node must not wait for it: but for the first time, what was heard last is told while it is asked again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::real::https::{self, Request, Trust};

/// Between two questions to the same peer.
const AGAIN: Duration = Duration::from_secs(1);

/// What was heard of peers, by their addresses.
#[derive(Default)]
pub struct Peers(BTreeMap<String, Heard>);

struct Heard {
    asked: Instant,
    serves: Arc<AtomicBool>,
    asking: Arc<AtomicBool>,
}

impl Peers {
    /// Those that serve, in the order in which they were named.
    pub fn serving(&mut self, peers: &[String], port: u16, trust: &Trust) -> Vec<String> {
        let asked: Vec<_> = peers.iter().map(|peer| self.ask(peer, port, trust)).collect();
        for first in asked.into_iter().flatten() {
            // A thread that could not end well has heard nothing.
            let _ = first.join();
        }
        let serves = |peer: &&String| {
            self.0
                .get(*peer)
                .is_some_and(|heard| heard.serves.load(Ordering::Acquire))
        };
        peers.iter().filter(serves).cloned().collect()
    }

    /// Asks a peer unless it is being asked or was a moment ago; whom to wait for, where nothing was heard of it yet.
    fn ask(&mut self, peer: &str, port: u16, trust: &Trust) -> Option<JoinHandle<()>> {
        let known = self.0.get(peer);
        let first = known.is_none();
        let busy = |heard: &Heard| heard.asking.load(Ordering::Acquire) || heard.asked.elapsed() < AGAIN;
        if known.is_some_and(busy) {
            return None;
        }
        let heard = self.0.entry(peer.to_owned()).or_insert_with(|| Heard {
            asked: Instant::now(),
            serves: Arc::default(),
            asking: Arc::default(),
        });
        heard.asked = Instant::now();
        heard.asking.store(true, Ordering::Release);
        let (serves, asking) = (Arc::clone(&heard.serves), Arc::clone(&heard.asking));
        let (peer, trust) = (peer.to_owned(), trust.clone());
        let asks = thread::Builder::new().spawn(move || {
            serves.store(answers(&peer, port, &trust), Ordering::Release);
            asking.store(false, Ordering::Release);
        });
        if let Ok(thread) = asks {
            return first.then_some(thread);
        }
        heard.asking.store(false, Ordering::Release);
        None
    }
}

/// An API server that is not ready says so with 500 or more; one that lets nobody ask unknown serves all the same.
fn answers(peer: &str, port: u16, trust: &Trust) -> bool {
    let request = Request {
        host: peer,
        port,
        path: "/readyz",
        body: None,
    };
    https::ask(&request, trust).is_ok_and(|answered| answered.status < 500)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::{Sender, channel};

    /// A server on an address of this machine alone, which says what it is told to.
    fn server(address: &str, port: u16) -> (u16, Sender<&'static str>) {
        let listener = TcpListener::bind((address, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (say, said) = channel::<&str>();
        thread::spawn(move || {
            let mut status = "200 OK";
            while let Ok((mut socket, _)) = listener.accept() {
                while let Ok(next) = said.try_recv() {
                    status = next;
                }
                let _ = socket.read(&mut [0; 1024]);
                let _ = write!(
                    socket,
                    "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
        });
        (port, say)
    }

    fn until(mut seen: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !seen() {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn only_peers_that_answer_well_serve_and_it_is_noticed_when_that_changes() {
        let (port, one) = server("127.0.0.1", 0);
        let (_, other) = server("127.0.0.2", port);
        let named = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(str::to_owned);
        let mut peers = Peers::default();
        let mut serving = || peers.serving(&named, port, &Trust::Plain);
        // Nobody listens at the third.
        assert_eq!(serving(), named[..2]);
        one.send("500 Internal Server Error").unwrap();
        until(|| serving() == named[1..2]);
        other.send("503 Service Unavailable").unwrap();
        until(|| serving().is_empty());
        one.send("401 Unauthorized").unwrap();
        until(|| serving() == named[..1]);
    }
}
