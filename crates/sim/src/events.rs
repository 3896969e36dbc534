//! The Events actors leave behind, in core/v1 form as kubectl shows them. They are best effort: losing one never
//! changes what an actor does next.

use crate::object::{Kind, Object, name, namespace};
use crate::request::Request;
use jiff::Timestamp;
use serde_json::json;

/// What happened to an object.
pub struct Happening<'a> {
    pub object: &'a Object,
    pub component: &'static str,
    /// The node it happened on, where it did on one.
    pub host: &'a str,
    pub reason: &'static str,
    pub message: String,
    pub warning: bool,
}

impl Happening<'_> {
    pub fn request(&self, now: Timestamp, rng: &mut fastrand::Rng) -> Request {
        let meta = self.object.meta();
        let (api_version, kind) = self.object.kind().type_meta();
        // Events about cluster-scoped objects live in `default`, as client-go puts them.
        let home = if namespace(meta).is_empty() {
            "default"
        } else {
            namespace(meta)
        };
        let time = second(now);
        let body = json!({
            "metadata": { "name": format!("{}.{:016x}", name(meta), rng.u64(..)), "namespace": home },
            "involvedObject": {
                "apiVersion": api_version,
                "kind": kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "reason": self.reason,
            "message": self.message,
            "type": if self.warning { "Warning" } else { "Normal" },
            "source": { "component": self.component, "host": self.host },
            "reportingComponent": self.component,
            "reportingInstance": self.host,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        });
        Request::create(Kind::Event, home, body).best_effort()
    }
}

/// A time as `metav1.Time` writes it: whole seconds.
pub fn second(moment: Timestamp) -> String {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}

/// A time as `metav1.MicroTime` writes it: always six digits.
pub fn micro(moment: Timestamp) -> String {
    format!("{moment:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_api_reads_them() {
        let moment: Timestamp = "2026-11-15T08:00:00.123456789Z".parse().unwrap();
        assert_eq!(second(moment), "2026-11-15T08:00:00Z");
        assert_eq!(micro(moment), "2026-11-15T08:00:00.123456Z");
    }
}
