//! Reads the events of a watch for as long as some are due, and a moment longer to see one too many. How long that is differs between the two
//! servers; what counts as an event does not.

use std::time::Duration;

use serde_json::Value;

use crate::{body::parse_body, target::Watch};

/// How a server is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// Longest wait for an event that is due.
    pub(crate) due: Duration,
    /// Wait for an event that is not.
    pub(crate) surplus: Duration,
    /// How many events each step gave on the other server, where the step itself does not say.
    pub(crate) counts: Option<&'a [usize]>,
}

impl Reading<'_> {
    /// As many events as are due and those that come at once after them; up to the object of that name where one is given.
    pub(crate) fn events(&self, watch: &mut dyn Watch, due: usize, last: Option<&str>) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let wait = if last.is_some() || events.len() < due {
                self.due
            } else {
                self.surplus
            };
            let Some(line) = watch.line(wait) else { return events };
            let event = parse_body(&line);
            if is_heartbeat(&event) {
                continue;
            }
            let ended = last.is_some_and(|name| event["object"]["metadata"]["name"].as_str() == Some(name));
            events.push(event);
            if ended {
                return events;
            }
        }
    }
}

/// A bookmark that only says how far the server is. The real one sends them when its timer says so, at times right behind another event, and
/// promises no interval; the one that ends the initial events is a promise and is compared.
fn is_heartbeat(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] != "true"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Lines(Vec<Value>);

    impl Watch for Lines {
        fn status(&self) -> u16 {
            200
        }

        fn headers(&self) -> &[(String, String)] {
            &[]
        }

        fn line(&mut self, _wait: Duration) -> Option<Vec<u8>> {
            (!self.0.is_empty()).then(|| self.0.remove(0).to_string().into_bytes())
        }
    }

    fn event(kind: &str, name: &str) -> Value {
        json!({"type": kind, "object": {"metadata": {"name": name}}})
    }

    fn kinds(lines: Vec<Value>, last: Option<&str>) -> Vec<String> {
        let reading = Reading {
            due: Duration::ZERO,
            surplus: Duration::ZERO,
            counts: None,
        };
        let events = reading.events(&mut Lines(lines), 1, last);
        events.iter().map(|event| event["type"].to_string()).collect()
    }

    #[test]
    fn a_bookmark_that_comes_by_the_servers_timer_is_no_event() {
        let heartbeat = || json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}});
        assert_eq!(
            kinds(vec![heartbeat(), event("DELETED", "a"), heartbeat()], None),
            ["\"DELETED\""]
        );
    }

    #[test]
    fn the_bookmark_that_ends_the_initial_events_is_one() {
        let end =
            json!({"type": "BOOKMARK", "object": {"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}});
        assert_eq!(
            kinds(vec![event("ADDED", "a"), end], None),
            ["\"ADDED\"", "\"BOOKMARK\""]
        );
    }

    #[test]
    fn reading_stops_behind_the_named_object_and_not_before_a_surplus_one() {
        let lines = || vec![event("ADDED", "a"), event("ADDED", "b"), event("ADDED", "c")];
        assert_eq!(kinds(lines(), Some("b")).len(), 2);
        assert_eq!(kinds(lines(), None).len(), 3);
    }
}
