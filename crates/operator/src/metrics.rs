//! What the operator counts about itself, for Prometheus. Names of nodes are never labels: there may be thousands.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What was asked of an API server, and the code of its answer; 0 where none came.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct Requested {
    pub verb: String,
    pub resource: String,
    pub code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Named {
    name: String,
}

type Counts = Family<Named, Counter>;
type Durations = Family<Named, Histogram, fn() -> Histogram>;

/// From half a second to five hours, each bound twice the one before.
fn durations() -> Histogram {
    Histogram::new((0..16).map(|power| 0.5 * f64::from(1 << power)))
}

#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<Requested, Counter>,
    decisions: Counts,
    actions: Counts,
    refusals: Counts,
    waits: Counts,
    waited: Durations,
    unreadable: Counts,
    interrupted: Counts,
    events_lost: Counter,
    queue_depth: Gauge,
    leading: Gauge,
    states: Durations,
    steps: Durations,
    phases: Durations,
}

impl Default for Metrics {
    fn default() -> Self {
        let timed = || Durations::new_with_constructor(durations as fn() -> Histogram);
        let metrics = Self {
            registry: Arc::default(),
            requests: Family::default(),
            decisions: Family::default(),
            actions: Family::default(),
            refusals: Family::default(),
            waits: Family::default(),
            waited: timed(),
            unreadable: Family::default(),
            interrupted: Family::default(),
            events_lost: Counter::default(),
            queue_depth: Gauge::default(),
            leading: Gauge::default(),
            states: timed(),
            steps: timed(),
            phases: timed(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = registry.sub_registry_with_prefix("afloat");
        let says = "Requests to the API server, by verb, resource and code; code 0 where no answer came";
        registry.register("api_requests", says, self.requests.clone());
        registry.register(
            "decisions",
            "Decisions, by the kind they were about",
            self.decisions.clone(),
        );
        registry.register("actions", "Actions carried out, by their name", self.actions.clone());
        registry.register("refusals", "Actions refused, by their name", self.refusals.clone());
        registry.register("waits", "Waits that have begun, by reason", self.waits.clone());
        registry.register(
            "wait_duration_seconds",
            "How long waits lasted that are over, by reason",
            self.waited.clone(),
        );
        registry.register(
            "unreadable_objects",
            "Objects left out as they cannot be read, by kind",
            self.unreadable.clone(),
        );
        registry.register(
            "watch_interruptions",
            "Watches that broke off, by kind",
            self.interrupted.clone(),
        );
        registry.register("events_lost", "Events that were not written", self.events_lost.clone());
        registry.register(
            "queue_depth",
            "Objects that wait for a decision",
            self.queue_depth.clone(),
        );
        registry.register(
            "leading",
            "1 while this process is the one that works",
            self.leading.clone(),
        );
        registry.register(
            "node_state_duration_seconds",
            "How long nodes were in a state",
            self.states.clone(),
        );
        registry.register(
            "step_duration_seconds",
            "How long steps took on nodes",
            self.steps.clone(),
        );
        registry.register(
            "phase_duration_seconds",
            "How long phases of upgrades took",
            self.phases.clone(),
        );
    }

    pub fn request(&self, what: &Requested) {
        self.requests.get_or_create(what).inc();
    }

    pub fn decision(&self, kind: &str) {
        count(&self.decisions, kind);
    }

    pub fn action(&self, name: &str, refused: bool) {
        count(if refused { &self.refusals } else { &self.actions }, name);
    }

    pub fn wait(&self, reason: &str) {
        count(&self.waits, reason);
    }

    pub fn waited(&self, reason: &str, time: Duration) {
        observe(&self.waited, reason, time);
    }

    pub fn unreadable(&self, kind: &str) {
        count(&self.unreadable, kind);
    }

    pub fn interrupted(&self, kind: &str) {
        count(&self.interrupted, kind);
    }

    pub fn event_lost(&self) {
        self.events_lost.inc();
    }

    pub fn queue_depth(&self, depth: usize) {
        self.queue_depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub fn leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    pub fn state_took(&self, state: &str, time: Duration) {
        observe(&self.states, state, time);
    }

    pub fn step_took(&self, step: &str, time: Duration) {
        observe(&self.steps, step, time);
    }

    pub fn phase_took(&self, phase: &str, time: Duration) {
        observe(&self.phases, phase, time);
    }

    /// Everything, as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if encode(&mut text, &registry).is_err() {
            let _written = write!(text, "# EOF");
        }
        text
    }
}

fn count(family: &Counts, name: &str) {
    family.get_or_create(&Named { name: name.to_owned() }).inc();
}

fn observe(family: &Durations, name: &str, time: Duration) {
    family
        .get_or_create(&Named { name: name.to_owned() })
        .observe(time.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told() {
        let metrics = Metrics::default();
        metrics.request(&Requested {
            verb: "patch".to_owned(),
            resource: "nodes".to_owned(),
            code: 409,
        });
        metrics.wait("WaitingForEtcd");
        metrics.step_took("kubelet", Duration::from_secs(3));
        metrics.queue_depth(4);
        let text = metrics.text();
        for line in [
            r#"afloat_api_requests_total{verb="patch",resource="nodes",code="409"} 1"#,
            r#"afloat_waits_total{name="WaitingForEtcd"} 1"#,
            r#"afloat_step_duration_seconds_bucket{le="4.0",name="kubelet"} 1"#,
            "afloat_queue_depth 4",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
