//! Clients of the cluster, behind two load balancers that know of its API servers by health checks alone (rule 11). Between two moments at
//! which an API server changes, everything goes on as it was: what was sent meanwhile is reckoned when the next one does, and only for as
//! long as checks may still find something out. A run in which nobody changes costs nothing.

use std::sync::Arc;

use afloat_core::view::{Component, NodeName};

use super::machine::{Facts, Machine};
use super::time::{Millis, SECOND, clock};

/// A balancer: how often it looks, and after how many checks in a row it believes that a server went or came.
struct Kind {
    word: &'static str,
    every: Millis,
    fall: u32,
    rise: u32,
    /// Who refuses a connection is followed by another.
    redispatches: bool,
}

const KINDS: [Kind; 2] = [
    Kind {
        word: "that looks every 500 ms",
        every: 500,
        fall: 2,
        rise: 2,
        redispatches: true,
    },
    Kind {
        word: "that looks every 1.5 s and asks nobody else",
        every: 1500,
        fall: 3,
        rise: 2,
        redispatches: false,
    },
];

/// Everything happens at multiples of this.
const TICK: Millis = 50;
/// How often a client asks each balancer.
const ASKED: Millis = 250;
/// By then checks have found out all there is, and clients are quiet until an API server changes again.
const WINDOW: Millis = 6 * SECOND;

/// What clients asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Clients {
    pub sent: u64,
    /// Each by faults, or because no API server could have answered it: any other breaks the rule.
    pub lost: u64,
}

/// What can be seen of a server on the network.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// It answers what it does not hand on.
    answers: bool,
    /// It takes connections, whether it can answer or not.
    listens: bool,
    forwards_to: Option<Arc<[String]>>,
}

impl Seen {
    fn of(facts: &Facts) -> Self {
        let listens = |part: &super::machine::Part| part.running;
        Self {
            answers: facts.serves_api(),
            listens: facts.powered && facts.part(Component::ApiServer).is_some_and(listens),
            forwards_to: facts.forwards_to.clone(),
        }
    }
}

/// What a balancer believes of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Belief {
    up: bool,
    /// So many checks in a row have said otherwise.
    against: u32,
}

#[derive(Clone, Debug)]
struct Server {
    name: NodeName,
    address: String,
    seen: Seen,
    beliefs: [Belief; KINDS.len()],
    /// Since a fault it has not answered again: what it loses is nobody's doing.
    excused: bool,
}

/// What becomes of a request that a balancer sends to a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Answered,
    Refused,
    Unanswered,
}

/// Balancers and clients.
#[derive(Debug, Default)]
pub struct Traffic {
    servers: Vec<Server>,
    /// Etcd has its majority.
    majority: bool,
    /// When a server changed last.
    since: Millis,
    /// Whose turn it is: of the servers at each balancer, and of the peers at whoever stands aside.
    turns: [usize; KINDS.len()],
    peer_turn: usize,
    pub clients: Clients,
    /// The first request that was lost by our doing.
    ours: Option<String>,
}

impl Traffic {
    /// Servers are looked at anew; what happened since the last change is reckoned first. Says what was lost by our doing.
    pub fn look<'a>(
        &mut self,
        now: Millis,
        machines: impl Iterator<Item = &'a Machine>,
        majority: bool,
    ) -> Option<String> {
        let there: Vec<&Machine> = machines.filter(|machine| machine.control_plane).collect();
        let same = |(server, machine): (&Server, &&Machine)| {
            server.name == machine.name && server.seen == Seen::of(&machine.facts)
        };
        let unchanged =
            self.majority == majority && self.servers.len() == there.len() && self.servers.iter().zip(&there).all(same);
        if unchanged {
            return None;
        }
        self.reckon(now);
        self.majority = majority;
        let before = std::mem::take(&mut self.servers);
        let known = |name: &NodeName| before.iter().find(|server| server.name == *name);
        self.servers = there
            .iter()
            .map(|machine| Server::of(machine, known(&machine.name)))
            .collect();
        for index in 0..self.servers.len() {
            let taken = self.takes_all(&self.servers[index]);
            let new = known(&self.servers[index].name).is_none();
            let server = &mut self.servers[index];
            // Without a majority nobody answers, and whose servers come back first is nobody's doing either.
            server.excused = !majority || server.excused && !taken;
            if new {
                server.beliefs = [Belief { up: taken, against: 0 }; KINDS.len()];
            }
        }
        self.ours.take()
    }

    /// Nothing changes any more. Says what was lost by our doing.
    pub fn end(&mut self, now: Millis) -> Option<String> {
        self.reckon(now);
        self.ours.take()
    }

    /// A machine lost its power by a fault.
    pub fn power_lost(&mut self, name: &NodeName) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.name == *name) {
            server.excused = true;
        }
    }

    /// What was sent since the last change, with servers as they have been since then.
    fn reckon(&mut self, now: Millis) {
        let from = std::mem::replace(&mut self.since, now);
        let end = now.min(from + WINDOW);
        let mut tick = from.next_multiple_of(TICK);
        while tick < end {
            if self.all_is_known() {
                let (asked, up) = (
                    asked_within(tick, end),
                    self.servers.iter().any(|server| server.beliefs[0].up),
                );
                self.clients.sent += asked;
                self.clients.lost += if up { 0 } else { asked };
                return;
            }
            self.check(tick);
            if tick.is_multiple_of(ASKED) {
                for balancer in 0..KINDS.len() {
                    self.ask(balancer, tick);
                }
            }
            tick += TICK;
        }
    }

    /// Every balancer believes what is true: no check finds anything out, and every request ends as the others do.
    fn all_is_known(&self) -> bool {
        self.servers.iter().all(|server| {
            let (all, none) = (self.takes_all(server), self.takes_none(server));
            let mut beliefs = server.beliefs.iter();
            beliefs.all(|belief| belief.against == 0 && if belief.up { all } else { none })
        })
    }

    fn peers<'a>(&'a self, peers: &'a [String]) -> impl Iterator<Item = Option<&'a Server>> {
        peers
            .iter()
            .map(|peer| self.servers.iter().find(|server| server.address == *peer))
    }

    fn takes_all(&self, server: &Server) -> bool {
        match &server.seen.forwards_to {
            None => server.seen.answers,
            Some(peers) => self.peers(peers).all(|peer| peer.is_some_and(Server::answers)),
        }
    }

    fn takes_none(&self, server: &Server) -> bool {
        match &server.seen.forwards_to {
            None => !server.seen.answers,
            Some(peers) => !self.peers(peers).any(|peer| peer.is_some_and(Server::answers)),
        }
    }

    /// What becomes of a connection to a server, and whether a fault excuses that it is lost.
    fn connect(&mut self, index: usize) -> (Fate, bool) {
        let server = &self.servers[index];
        let Some(peers) = &server.seen.forwards_to else {
            return (server.fate(), server.excused);
        };
        // As the kernel does: one after the other.
        self.peer_turn += 1;
        let address = peers.get(self.peer_turn % peers.len().max(1));
        match address.and_then(|address| self.servers.iter().find(|peer| peer.address == *address)) {
            Some(peer) if peer.seen.forwards_to.is_none() => (peer.fate(), server.excused || peer.excused),
            // Two that hand on to each other are of our making.
            Some(_) => (Fate::Refused, server.excused),
            // A person took it out of the cluster.
            None => (Fate::Refused, true),
        }
    }

    /// Checks of both balancers that are due at a moment: not those of all servers at once.
    fn check(&mut self, tick: Millis) {
        for index in 0..self.servers.len() {
            let phase = TICK * u64::try_from(index).unwrap_or_default();
            for (balancer, kind) in KINDS.iter().enumerate() {
                if !(tick + phase).is_multiple_of(kind.every) {
                    continue;
                }
                let answered = self.connect(index).0 == Fate::Answered;
                let belief = &mut self.servers[index].beliefs[balancer];
                if answered == belief.up {
                    belief.against = 0;
                    continue;
                }
                belief.against += 1;
                if belief.against >= if belief.up { kind.fall } else { kind.rise } {
                    *belief = Belief {
                        up: answered,
                        against: 0,
                    };
                }
            }
        }
    }

    /// One request through a balancer.
    fn ask(&mut self, balancer: usize, now: Millis) {
        self.clients.sent += 1;
        let up: Vec<usize> = (0..self.servers.len())
            .filter(|index| self.servers[*index].beliefs[balancer].up)
            .collect();
        self.turns[balancer] += 1;
        let turn = self.turns[balancer];
        let tries = if KINDS[balancer].redispatches {
            up.len()
        } else {
            up.len().min(1)
        };
        let mut blamed = None;
        for nth in 0..tries {
            let index = up[(turn + nth) % up.len()];
            let (fate, excused) = self.connect(index);
            if fate == Fate::Answered {
                return;
            }
            if !excused {
                blamed = Some(index);
            }
            if fate == Fate::Unanswered {
                break;
            }
        }
        self.clients.lost += 1;
        let Some(index) = blamed else { return };
        let name = &self.servers[index].name;
        let mut others = self.servers.iter().filter(|server| server.name != *name);
        if self.majority
            && self.ours.is_none()
            && let Some(another) = others.find(|server| server.answers())
        {
            self.ours = Some(format!(
                "a request through the balancer {} is lost at {}: {} was sent it and does not answer, while {} would",
                KINDS[balancer].word,
                clock(now),
                name,
                another.name
            ));
        }
    }
}

impl Server {
    fn of(machine: &Machine, known: Option<&Self>) -> Self {
        Self {
            name: machine.name.clone(),
            address: machine.address().to_owned(),
            seen: Seen::of(&machine.facts),
            beliefs: known.map(|known| known.beliefs).unwrap_or_default(),
            excused: known.is_some_and(|known| known.excused),
        }
    }

    /// It answers by itself, and hands nothing on.
    fn answers(&self) -> bool {
        self.seen.answers && self.seen.forwards_to.is_none()
    }

    fn fate(&self) -> Fate {
        if self.seen.answers {
            Fate::Answered
        } else if self.seen.listens {
            Fate::Unanswered
        } else {
            Fate::Refused
        }
    }
}

/// How many requests clients send through all balancers from a moment to before another.
fn asked_within(from: Millis, to: Millis) -> u64 {
    let before = |at: Millis| at.div_ceil(ASKED);
    before(to).saturating_sub(before(from)) * KINDS.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MINUTE;

    /// Three servers that answer, as balancers have known for long.
    fn three() -> Traffic {
        let server = |nth: usize| Server {
            name: NodeName::from(format!("cp-{nth}")),
            address: format!("10.0.0.{nth}"),
            seen: Seen {
                answers: true,
                listens: true,
                forwards_to: None,
            },
            beliefs: [Belief { up: true, against: 0 }; KINDS.len()],
            excused: false,
        };
        Traffic {
            servers: (1..=3).map(server).collect(),
            majority: true,
            // The first one is asked first.
            turns: [2; KINDS.len()],
            ..Traffic::default()
        }
    }

    fn to(peers: &[&str]) -> Arc<[String]> {
        peers.iter().map(|peer| (*peer).to_owned()).collect()
    }

    /// What comes of a change of the first server until a moment: requests lost, and the one that is held against us.
    fn after(change: impl FnOnce(&mut Traffic), until: Millis) -> (u64, Option<String>) {
        let mut traffic = three();
        change(&mut traffic);
        traffic.reckon(until);
        (traffic.clients.lost, traffic.ours)
    }

    fn ended(traffic: &mut Traffic) {
        traffic.servers[0].seen.answers = false;
        traffic.servers[0].seen.listens = false;
    }

    #[test]
    fn requests_are_sent_while_servers_change_and_no_longer() {
        let mut traffic = three();
        traffic.reckon(SECOND);
        assert_eq!(traffic.clients, Clients { sent: 8, lost: 0 });
        traffic.reckon(60 * SECOND);
        let (both, window) = (KINDS.len() as u64, WINDOW / ASKED);
        assert_eq!(
            traffic.clients,
            Clients {
                sent: 8 + both * window,
                lost: 0
            }
        );
    }

    #[test]
    fn a_server_that_ends_while_requests_are_sent_to_it_loses_some_until_checks_find_out() {
        let (lost, ours) = after(ended, MINUTE);
        assert!((3..=8).contains(&lost), "{lost}");
        assert!(ours.is_some_and(|ours| ours.contains("cp-1 was sent it")));
        // One that takes connections and does not answer loses some through both.
        let (more, _) = after(|traffic| traffic.servers[0].seen.answers = false, MINUTE);
        assert!(more > lost, "{more} {lost}");
    }

    #[test]
    fn one_that_stands_aside_loses_nothing_for_as_long_as_its_peers_answer() {
        let aside = |traffic: &mut Traffic| {
            ended(traffic);
            traffic.servers[0].seen.forwards_to = Some(to(&["10.0.0.2", "10.0.0.3"]));
        };
        assert_eq!(after(aside, MINUTE), (0, None));
        // A peer that stands aside as well only hands it on.
        let (_, ours) = after(
            |traffic| {
                aside(traffic);
                traffic.servers[1].seen.forwards_to = Some(to(&["10.0.0.3"]));
            },
            MINUTE,
        );
        assert!(ours.is_some());
    }

    #[test]
    fn what_faults_or_the_end_of_all_servers_cost_is_lost_and_held_against_nobody() {
        let dead = |traffic: &mut Traffic| {
            ended(traffic);
            traffic.power_lost(&NodeName::from("cp-1"));
        };
        let (lost, ours) = after(dead, MINUTE);
        assert!(lost > 0 && ours.is_none());
        // A peer without power, of one that stands aside.
        let (lost, ours) = after(
            |traffic| {
                dead(traffic);
                traffic.servers[1].seen.forwards_to = Some(to(&["10.0.0.1", "10.0.0.3"]));
                traffic.servers[1].seen.answers = false;
            },
            MINUTE,
        );
        assert!(lost > 0 && ours.is_none());
        let (lost, ours) = after(
            |traffic| {
                traffic.majority = false;
                for server in &mut traffic.servers {
                    server.seen.answers = false;
                }
            },
            MINUTE,
        );
        assert!(lost > 0 && ours.is_none());
    }
}
