//! What runs on a simulated cluster: the parts kubeadm brings, a shop with its data and its monitoring, and the
//! awkward cases an upgrade meets (a bare pod, local storage, a budget without room). Builders return manifests.

use serde_json::{Value, json};

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

fn container(name: &str, image: &str, cpu: &str, memory: &str) -> Value {
    json!({ "name": name, "image": image, "resources": { "requests": { "cpu": cpu, "memory": memory } } })
}

fn app(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": name })
}

fn deployment(namespace: &str, name: &str, replicas: u32, container: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace, "labels": app(name) },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": app(name) },
            "template": { "metadata": { "labels": app(name) }, "spec": { "containers": [container] } },
        },
    })
}

fn daemon_set(namespace: &str, name: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": name, "namespace": namespace, "labels": app(name) },
        "spec": {
            "selector": { "matchLabels": app(name) },
            "template": {
                "metadata": { "labels": app(name) },
                "spec": { "hostNetwork": true, "tolerations": [{ "operator": "Exists" }], "containers": [container] },
            },
        },
    })
}

fn budget(namespace: &str, name: &str, rule: &str, value: &Value) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { rule: value, "selector": { "matchLabels": app(name) } },
    })
}

/// Puts the pods of a workload on different nodes, as people do who have been bitten.
fn apart(mut workload: Value) -> Value {
    let labels = workload["spec"]["selector"].clone();
    workload["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([{ "labelSelector": labels, "topologyKey": "kubernetes.io/hostname" }]);
    workload
}

/// What a cluster made by kubeadm runs.
pub(super) fn system(version: &str) -> Vec<Value> {
    let mut dns = deployment(
        "kube-system",
        "coredns",
        2,
        &container("coredns", "registry.k8s.io/coredns/coredns:v1.13.1", "100m", "70Mi"),
    );
    dns["spec"]["template"]["spec"]["tolerations"] = json!([
        { "key": "CriticalAddonsOnly", "operator": "Exists" },
        { "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" },
    ]);
    let proxy = container("kube-proxy", &format!("registry.k8s.io/kube-proxy:{version}"), "0", "0");
    let mut network = daemon_set(
        "kube-system",
        "cni",
        &container("agent", "example.org/cni/agent:v1.9.1", "100m", "64Mi"),
    );
    network["spec"]["template"]["spec"]["initContainers"] =
        json!([{ "name": "install", "image": "example.org/cni/install:v1.9.1" }]);
    vec![
        daemon_set("kube-system", "kube-proxy", &proxy),
        network,
        dns,
        budget("kube-system", "coredns", "minAvailable", &json!(1)),
    ]
}

/// A shop, its data, its monitoring, for a cluster with so many machines that take pods.
pub(super) fn shop(homes: usize) -> Vec<Value> {
    let mut web = deployment(
        "shop",
        "web",
        4,
        &container("web", "example.org/shop/web:2.4.0", "250m", "256Mi"),
    );
    web["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({ "httpGet": { "path": "/ready", "port": 8080 }, "initialDelaySeconds": 1, "periodSeconds": 2 });
    let cart = deployment(
        "shop",
        "cart",
        3,
        &container("cart", "example.org/shop/cart:2.4.0", "200m", "192Mi"),
    );
    let checkout = deployment(
        "shop",
        "checkout",
        2,
        &container("checkout", "example.org/shop/checkout:2.4.0", "300m", "256Mi"),
    );
    let mut import = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "import-catalogue", "namespace": "shop" },
        "spec": { "template": { "spec": { "containers": [container("import", "example.org/shop/import:2.4.0", "100m", "128Mi")] } } },
    });
    import["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    let mut objects = vec![namespace("shop"), namespace("data"), namespace("monitoring")];
    objects.extend([
        web,
        budget("shop", "web", "maxUnavailable", &json!("25%")),
        cart,
        budget("shop", "cart", "minAvailable", &json!("60%")),
        checkout,
        budget("shop", "checkout", "minAvailable", &json!(1)),
        import,
    ]);
    objects.extend(data(homes));
    objects.extend(monitoring());
    objects
}

fn data(homes: usize) -> Vec<Value> {
    // Its members keep apart: one more than there are machines would wait for ever.
    let members = u32::try_from(homes.clamp(1, 3)).unwrap_or(1);
    let mut database = apart(deployment(
        "data",
        "db",
        members,
        &container("db", "example.org/data/db:16.4", "500m", "1Gi"),
    ));
    database["kind"] = "StatefulSet".into();
    database["spec"]["serviceName"] = "db".into();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "db", "namespace": "data" },
        "spec": { "clusterIP": "None", "selector": app("db"), "ports": [{ "name": "sql", "port": 5432 }] },
    });
    let shell = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "adas-shell", "namespace": "data", "labels": { "made-by": "ada" } },
        "spec": { "containers": [container("shell", "example.org/tools/shell:1.0", "10m", "16Mi")] },
    });
    vec![
        service,
        database,
        budget("data", "db", "maxUnavailable", &json!(1)),
        shell,
    ]
}

fn monitoring() -> Vec<Value> {
    let mut cache = deployment(
        "monitoring",
        "metrics",
        1,
        &container("metrics", "example.org/monitoring/metrics:3.1", "250m", "512Mi"),
    );
    cache["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "recent", "emptyDir": {} }]);
    cache["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "recent", "mountPath": "/var/lib/metrics" }]);
    let exporter = container("exporter", "example.org/monitoring/exporter:1.8", "50m", "32Mi");
    vec![cache, daemon_set("monitoring", "node-exporter", &exporter)]
}

/// A Deployment with a budget that wants all of its pods, always.
pub(super) fn stuck() -> Vec<Value> {
    let licence = container("licence", "example.org/shop/licence:1.2", "50m", "64Mi");
    vec![
        deployment("shop", "licence", 1, &licence),
        budget("shop", "licence", "minAvailable", &json!(1)),
    ]
}

/// Filler that leaves every worker nearly full.
pub(super) fn crowd(workers: u32) -> Vec<Value> {
    let batch = container("batch", "example.org/batch/worker:5.0", "1500m", "3Gi");
    vec![
        namespace("batch"),
        deployment("batch", "numbers", workers * 4, &batch),
        budget("batch", "numbers", "maxUnavailable", &json!("10%")),
    ]
}
