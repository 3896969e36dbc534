//! The web side of Afloat. So far the router with the health endpoint that a probe asks; pages come with what they
//! show. It serves no file and reads no cluster yet.

use axum::Router;
use axum::routing::get;

/// Everything the dashboard answers.
pub fn router() -> Router {
    Router::new().route("/healthz", get(|| async { "ok" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn ask(path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn healthz_says_ok_and_nothing_else_is_served() {
        assert_eq!(ask("/healthz").await, (StatusCode::OK, "ok".to_owned()));
        assert_eq!(ask("/").await.0, StatusCode::NOT_FOUND);
    }
}
