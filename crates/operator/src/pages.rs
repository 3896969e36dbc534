//! `/metrics`, `/healthz` and `/readyz` of the operator itself. No other page, and nothing secret on these.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics::Metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the process is able to work: its view is complete, or it waits for its turn to lead.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The pages.
pub fn router(metrics: Metrics, readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(told).with_state(metrics))
}

async fn ready(State(readiness): State<Readiness>) -> impl IntoResponse {
    if readiness.get() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the cluster is still being read\n")
    }
}

async fn told(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn ask(router: Router, path: &str) -> (StatusCode, String) {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_pages_say_how_the_operator_is() {
        let (metrics, readiness) = (Metrics::default(), Readiness::default());
        metrics.decision("Upgrade");
        let router = router(metrics, readiness.clone());
        assert_eq!(ask(router.clone(), "/healthz").await.0, StatusCode::OK);
        assert_eq!(ask(router.clone(), "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        readiness.set(true);
        assert_eq!(ask(router.clone(), "/readyz").await.0, StatusCode::OK);
        assert!(
            ask(router, "/metrics")
                .await
                .1
                .contains("afloat_decisions_total{name=\"Upgrade\"} 1")
        );
    }
}
