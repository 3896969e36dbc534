//! Counts every request of the operator where it leaves it, whoever sent it: lists, watches, leases and probes by mirrors as much as the
//! requests of actions. One that kube repeats because the server was too busy counts once.

use http::{Method, Request, Uri};
use kube::client::Body;

use crate::metrics::{Metrics, Requested};

/// What comes after a namespace's name without being a resource in it.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

/// The same client, with every request counted.
pub fn counting(client: kube::Client, metrics: &Metrics) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let metrics = metrics.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, metrics) = (client.clone(), metrics.clone());
        async move {
            let mut count = Count {
                metrics,
                what: what(request.method(), request.uri()),
            };
            let answer = client.send(request).await;
            count.what.code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            answer
        }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}

/// Counts when it goes: a request that nobody waited for any longer was sent all the same.
struct Count {
    metrics: Metrics,
    what: Requested,
}

impl Drop for Count {
    fn drop(&mut self) {
        self.metrics.request(&self.what);
    }
}

/// Verb and resource, as access rules name them, but for evictions: those have a verb of their own here, as nobody else's requests are refused on purpose.
/// Names are never part of it.
fn what(method: &Method, uri: &Uri) -> Requested {
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let below = match parts.as_slice() {
        ["api", _, below @ ..] | ["apis", _, _, below @ ..] => below,
        other => other.get(..1).unwrap_or_default(),
    };
    let below = match below {
        ["namespaces", _, inner, ..] if !OF_NAMESPACES.contains(inner) => below.get(2..).unwrap_or_default(),
        other => other,
    };
    let (resource, named, sub) = match below {
        [] => ("", false, None),
        [resource] => (*resource, false, None),
        [resource, _] => (*resource, true, None),
        [resource, _, sub, ..] => (*resource, true, Some(*sub)),
    };
    let watches = uri
        .query()
        .is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
    let verb = match *method {
        Method::GET if watches => "watch",
        Method::GET if named || !uri.path().starts_with("/api") => "get",
        Method::GET => "list",
        Method::POST if sub == Some("eviction") => "evict",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    };
    Requested {
        verb: verb.to_owned(),
        resource: sub.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}")),
        code: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_by_what_it_asks_and_never_by_a_name() {
        let pods = "/api/v1/namespaces/shop/pods";
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/pods?limit=500".to_owned(), "list", "pods"),
            (
                "GET",
                "/api/v1/pods?watch=true&timeoutSeconds=290".to_owned(),
                "watch",
                "pods",
            ),
            ("GET", format!("{pods}/web-1"), "get", "pods"),
            ("GET", format!("{pods}?fieldSelector=spec.nodeName%3Dw"), "list", "pods"),
            ("POST", format!("{pods}/web-1/eviction"), "evict", "pods/eviction"),
            ("DELETE", format!("{pods}/web-1"), "delete", "pods"),
            ("DELETE", pods.to_owned(), "deletecollection", "pods"),
            ("GET", "/api/v1/namespaces/shop".to_owned(), "get", "namespaces"),
            ("GET", "/api/v1/namespaces".to_owned(), "list", "namespaces"),
            (
                "PUT",
                "/api/v1/namespaces/shop/finalize".to_owned(),
                "update",
                "namespaces/finalize",
            ),
            (
                "PATCH",
                "/api/v1/nodes/w-1?fieldManager=afloat".to_owned(),
                "patch",
                "nodes",
            ),
            (
                "PATCH",
                "/apis/upgrade.afloat.dev/v1/namespaces/a/nodekubeadmupgrades/w-1/status".to_owned(),
                "patch",
                "nodekubeadmupgrades/status",
            ),
            (
                "POST",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases".to_owned(),
                "create",
                "leases",
            ),
            ("GET", "/apis/apps/v1".to_owned(), "list", ""),
            ("GET", "/readyz?verbose".to_owned(), "get", "readyz"),
            ("GET", "/openapi/v3/apis/apps/v1".to_owned(), "get", "openapi"),
        ] {
            let found = what(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(
                (found.verb.as_str(), found.resource.as_str()),
                (verb, resource),
                "{method} {uri}"
            );
        }
    }

    #[tokio::test]
    async fn every_request_is_counted_even_one_that_nobody_waited_for() {
        let metrics = Metrics::default();
        let busy = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path().ends_with("slow") {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(429).body(Body::empty()).unwrap())
        });
        let client = counting(kube::Client::new(busy, "default"), &metrics);
        let ask = |path: &str| Request::get(path).body(Vec::new()).unwrap();
        assert!(client.request_text(ask("/api/v1/nodes/quick")).await.is_err());
        let slow = client.request_text(ask("/api/v1/nodes/slow"));
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(20), slow)
                .await
                .is_err()
        );
        let text = metrics.text();
        for code in ["429", "0"] {
            let line = format!(r#"afloat_api_requests_total{{verb="get",resource="nodes",code="{code}"}} 1"#);
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
}
