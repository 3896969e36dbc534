//! What the server counts, for Prometheus. Paths are never labels: a client could invent any number of them.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Answered {
    method: &'static str,
    code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Ended {
    result: &'static str,
}

#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<Answered, Counter>,
    bytes: Counter,
    cut_off: Counter,
    in_flight: Gauge,
    connections: Gauge,
    checksums: Family<Ended, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            requests: Family::default(),
            bytes: Counter::default(),
            cut_off: Counter::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            checksums: Family::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = registry.sub_registry_with_prefix("afloat_repo");
        registry.register(
            "requests",
            "Requests answered, by method and code",
            self.requests.clone(),
        );
        registry.register(
            "sent_bytes",
            "Bytes of answers handed to connections",
            self.bytes.clone(),
        );
        let says = "Answers that ended before their last byte: the client left, or the file could not be read on";
        registry.register("cut_off", says, self.cut_off.clone());
        registry.register("in_flight", "Requests being answered", self.in_flight.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("checksums", "Checksums computed, by result", self.checksums.clone());
    }

    pub fn begun(&self) {
        self.in_flight.inc();
    }

    pub fn ended(&self, method: &Method, code: StatusCode, bytes: u64, whole: bool) {
        let method = match *method {
            Method::GET => "GET",
            Method::HEAD => "HEAD",
            _ => "other",
        };
        let labels = Answered {
            method,
            code: code.as_u16(),
        };
        self.in_flight.dec();
        self.requests.get_or_create(&labels).inc();
        self.bytes.inc_by(bytes);
        if !whole {
            self.cut_off.inc();
        }
    }

    /// Counted for as long as the answer lives.
    pub fn connected(&self) -> Connected {
        self.connections.inc();
        Connected(self.connections.clone())
    }

    pub fn checksum(&self, done: bool) {
        let result = if done { "done" } else { "failed" };
        self.checksums.get_or_create(&Ended { result }).inc();
    }

    /// As the page has it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to memory cannot fail; half a page is better than none all the same.
        let _infallible = encode(&mut text, &registry);
        text
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}
