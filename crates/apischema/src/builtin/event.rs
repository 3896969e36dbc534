//! One stored event, two APIs: `v1` and `events.k8s.io/v1` show the same object under other field names. Stored is the
//! `v1` form.

use serde_json::Value;

use super::fields::{remove, set};

/// Field of `v1` → the same field of `events.k8s.io/v1`.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Turns a stored (`v1`) event into what `events.k8s.io/v1` shows.
pub fn core_to_events(event: &mut Value) {
    for (core, events) in RENAMED {
        rename(event, core, events);
    }
    normal_form(event, "events.k8s.io/v1", "events.k8s.io");
}

/// Turns an `events.k8s.io/v1` event into the stored (`v1`) form.
pub fn events_to_core(event: &mut Value) {
    for (core, events) in RENAMED {
        rename(event, events, core);
    }
    normal_form(event, "v1", "");
}

fn rename(event: &mut Value, from: &str, to: &str) {
    if let Some(value) = remove(event, from) {
        set(event, to, value);
    }
}

/// The two types disagree on which fields are printed when empty.
fn normal_form(event: &mut Value, api_version: &str, group: &str) {
    set(event, "apiVersion", api_version);
    // Both forms hold the same types under other names, so nothing can be refused here.
    let _ = super::normalise(group, "v1", "Event", event);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "words", "count": 2,
            "involvedObject": {"kind": "Pod", "name": "p"}, "reportingComponent": "c", "source": {"component": "c"},
        });
        super::super::normalise("", "v1", "Event", &mut event).expect("fits");
        let before = event.clone();
        core_to_events(&mut event);
        assert_eq!(event["note"], "words");
        assert_eq!(event["regarding"], json!({"kind": "Pod", "name": "p"}));
        assert_eq!(event["deprecatedCount"], 2);
        assert_eq!(event["reportingController"], "c");
        events_to_core(&mut event);
        assert_eq!(event, before);
    }
}
