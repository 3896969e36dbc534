//! Afloat's pods on nodes, as Kubernetes objects: bound to their node, privileged, with the host's root at `/host`, the steps
//! as init containers. They get no credential of the API server: what they have to say is in their termination messages.

use std::collections::BTreeMap;

use afloat_api::node::BUNDLE_KEY;
use afloat_api::{GROUP, StepContainer, VERSION, labels};
use afloat_core::action::TaskPod;
use serde_json::{Value, json};

/// Where a step finds the host.
const HOST: &str = "/host";
/// Name of the container that ends at once after the last step: a pod must have one that is no init container.
const LAST: &str = "done";
/// The longest value a label may have; names of nodes may be longer.
const LONGEST_LABEL: usize = 63;

pub fn task_pod(pod: &TaskPod, bundle_key: Option<&str>) -> Value {
    let steps: Vec<Value> = pod.steps.iter().map(|each| step(each, bundle_key)).collect();
    let last: Vec<Value> = pod.steps.last().map(last).into_iter().collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": &*pod.key.name,
            "namespace": &*pod.key.namespace,
            "labels": labels_of(pod),
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "NodeKubeadmUpgrade",
                "name": &*pod.owner.key.name,
                "uid": pod.owner.uid.as_str(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            // Bound here, not by the scheduler: the node is cordoned, and the scheduler may be what is being upgraded.
            "nodeName": pod.node.as_str(),
            "restartPolicy": "OnFailure",
            "hostPID": true,
            "hostNetwork": true,
            // With the cluster's DNS an image or a peer could not be found while CoreDNS moves.
            "dnsPolicy": "Default",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "priorityClassName": "system-node-critical",
            "tolerations": [{ "operator": "Exists" }],
            "initContainers": steps,
            "containers": last,
            "volumes": [{ "name": "host", "hostPath": { "path": "/", "type": "Directory" } }],
        },
    })
}

fn labels_of(pod: &TaskPod) -> BTreeMap<&'static str, String> {
    let mut all = BTreeMap::from([
        ("app.kubernetes.io/name", "afloat".to_owned()),
        (labels::TASK, pod.task.word().to_owned()),
        (labels::ATTEMPT, pod.attempt.to_string()),
        (labels::UPGRADE_UID, pod.upgrade_uid.to_string()),
    ]);
    if pod.node.as_str().len() <= LONGEST_LABEL {
        all.insert(labels::NODE, pod.node.to_string());
    }
    all
}

fn step(step: &StepContainer, bundle_key: Option<&str>) -> Value {
    let named = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut env: Vec<Value> = step
        .env
        .iter()
        // Whom to trust is the operator's to say, not of whoever wrote the object.
        .filter(|variable| bundle_key.is_none() || variable.name != BUNDLE_KEY)
        .map(|variable| named(&variable.name, &variable.value))
        .collect();
    env.extend(bundle_key.map(|key| named(BUNDLE_KEY, key)));
    let mut container = json!({
        "name": step.name,
        "image": step.image,
        "imagePullPolicy": "IfNotPresent",
        "env": env,
        "securityContext": { "privileged": true },
        // A step that could not even write its report leaves the end of its log instead.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{ "name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer" }],
    });
    say(&mut container, "command", &step.command);
    say(&mut container, "args", &step.args);
    container
}

/// The end of the pod: the image that is there already, nothing mounted, nothing allowed.
fn last(step: &StepContainer) -> Value {
    let mut container = json!({
        "name": LAST,
        "image": step.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["node", LAST],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
    });
    say(&mut container, "command", &step.command);
    container
}

fn say(container: &mut Value, field: &str, words: &[String]) {
    if !words.is_empty() {
        container[field] = json!(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use afloat_api::common::StepEnv;
    use afloat_core::action::Task;
    use afloat_core::view::{Key, NodeName, Revision, Target, Uid};

    fn pod(node: &str) -> TaskPod {
        let step = |name: &str| StepContainer {
            name: name.to_owned(),
            image: "registry.example/afloat:v1.36.3".to_owned(),
            command: vec!["/afloat".to_owned()],
            args: vec!["node".to_owned(), name.to_owned()],
            env: Arc::new(vec![StepEnv {
                name: "AFLOAT_NODE".to_owned(),
                value: node.to_owned(),
            }]),
            timeout_seconds: None,
        };
        TaskPod {
            key: Key::new("afloat", "worker-1-0b2f4c6e-upgrade-2"),
            node: NodeName::from(node),
            node_uid: Uid::from("node-uid"),
            task: Task::Upgrade,
            attempt: 2,
            upgrade_uid: Uid::from("0b2f4c6e-1111-4222-8333-444455556666"),
            owner: Target {
                key: Key::new("afloat", "worker-1-0b2f4c6e"),
                uid: Uid::from("owner-uid"),
                revision: Revision(3),
            },
            steps: vec![step("containerd"), step("kubelet")],
            emptied: true,
        }
    }

    #[test]
    fn p24_a_task_pod_is_what_the_recorded_one_is() {
        let rendered = serde_json::to_string_pretty(&task_pod(&pod("worker-1"), None)).unwrap();
        assert_eq!(rendered, include_str!("task_pod.json").trim_end());
    }

    #[test]
    fn p27_a_task_pod_holds_no_credential_and_only_its_steps_are_privileged() {
        let rendered = task_pod(&pod("worker-1"), None);
        let spec = &rendered["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["serviceAccountName"], Value::Null);
        assert_eq!(
            spec["volumes"].as_array().unwrap().len(),
            1,
            "the host and nothing else"
        );
        assert_eq!(spec["containers"][0]["securityContext"]["privileged"], Value::Null);
        assert_eq!(spec["containers"][0]["volumeMounts"], Value::Null);
    }

    #[test]
    fn p26_the_steps_are_privileged_and_work_on_the_host_itself() {
        let rendered = task_pod(&pod("worker-1"), None);
        let spec = &rendered["spec"];
        assert_eq!((&spec["hostPID"], &spec["hostNetwork"]), (&json!(true), &json!(true)));
        let steps = spec["initContainers"].as_array().unwrap();
        assert!(!steps.is_empty());
        for step in steps {
            assert_eq!(step["securityContext"]["privileged"], true, "{step}");
            assert_eq!(step["volumeMounts"][0]["mountPath"], HOST, "{step}");
        }
    }

    #[test]
    fn p29_every_step_is_told_the_keys_of_bundles_whatever_its_object_says() {
        let mut forged = pod("worker-1");
        Arc::make_mut(&mut forged.steps[0].env).push(StepEnv {
            name: BUNDLE_KEY.to_owned(),
            value: "another key".to_owned(),
        });
        let rendered = task_pod(&forged, Some("our key"));
        for step in rendered["spec"]["initContainers"].as_array().unwrap() {
            let env = step["env"].as_array().unwrap();
            let keys: Vec<&Value> = env.iter().filter(|variable| variable["name"] == BUNDLE_KEY).collect();
            assert_eq!(keys, [&json!({ "name": BUNDLE_KEY, "value": "our key" })]);
        }
    }

    #[test]
    fn a_node_whose_name_is_no_label_has_its_pods_all_the_same() {
        let long = "n".repeat(80);
        let rendered = task_pod(&pod(&long), None);
        assert_eq!(rendered["spec"]["nodeName"], long.as_str());
        assert_eq!(rendered["metadata"]["labels"][labels::NODE], Value::Null);
    }
}
