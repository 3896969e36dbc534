//! The account of one request: from its arrival to the last byte of its answer, for the log and the metrics.

use std::net::SocketAddr;
use std::time::Instant;

use http::{Method, Request, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use crate::metrics::Metrics;

/// How a request came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    pub peer: Option<SocketAddr>,
    /// On a connection beyond the limit: only the pages for probes are served there.
    pub crowded: bool,
}

/// What is noted of a request; told when it is dropped, which is when its answer is sent or given up.
#[derive(Debug)]
pub struct Account {
    metrics: Metrics,
    begun: Instant,
    peer: Option<SocketAddr>,
    method: Method,
    /// As it was written, so that no control character reaches the log.
    path: String,
    pub code: StatusCode,
    pub bytes: u64,
    /// What the answer's body should have; less is a broken answer.
    pub expected: u64,
    pub problem: Option<String>,
    /// Asked again and again by probes: told only to those who look closely.
    pub quiet: bool,
    /// The place among the requests served at once.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl Account {
    pub fn open<B>(metrics: &Metrics, request: &Request<B>, arrival: Arrival) -> Self {
        metrics.begun();
        Self {
            metrics: metrics.clone(),
            begun: Instant::now(),
            peer: arrival.peer,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            code: StatusCode::OK,
            bytes: 0,
            expected: 0,
            problem: None,
            quiet: false,
            permit: None,
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let whole = self.bytes >= self.expected;
        self.metrics.ended(&self.method, self.code, self.bytes, whole);
        let peer = self.peer.map(tracing::field::display);
        let (method, path, code) = (self.method.as_str(), self.path.as_str(), self.code.as_u16());
        let (bytes, problem) = (self.bytes, self.problem.as_deref());
        let milliseconds = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if problem.is_some() || self.code.is_server_error() {
            tracing::warn!(
                peer,
                method,
                path,
                code,
                bytes,
                milliseconds,
                problem,
                "not served as it should be"
            );
        } else if !whole {
            tracing::info!(
                peer,
                method,
                path,
                code,
                bytes,
                milliseconds,
                "the client left before the end"
            );
        } else if self.quiet {
            tracing::debug!(peer, method, path, code, bytes, milliseconds, "served");
        } else {
            tracing::info!(peer, method, path, code, bytes, milliseconds, "served");
        }
    }
}
