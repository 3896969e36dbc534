//! Whoever runs the pods of ReplicaSets, where a real controller of Deployments makes them: each has at once what it wants. There are no pods.

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

use crate::object::Kind;
use crate::request::Request;

/// Answers ReplicaSets until it is dropped.
pub(super) async fn run(client: kube::Client) {
    let all = Api::<ReplicaSet>::all(client.clone());
    let mut changes = std::pin::pin!(watcher(all, watcher::Config::default()).default_backoff());
    while let Some(change) = changes.next().await {
        let Ok(watcher::Event::Apply(set) | watcher::Event::InitApply(set)) = change else {
            continue;
        };
        let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let seen = set.status.as_ref().and_then(|status| status.observed_generation);
        if seen == set.metadata.generation {
            continue;
        }
        let status = json!({
            "replicas": wanted, "fullyLabeledReplicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted,
            "observedGeneration": set.metadata.generation,
        });
        let request = Request::patch_status(Kind::ReplicaSet, &set.metadata, &status);
        if let Err(failure) = request.send(&client).await {
            tracing::debug!(%failure, "a ReplicaSet is gone");
        }
    }
}
