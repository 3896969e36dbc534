//! What all machines of a cluster share, and what `kubectl` tells of it: the two ConfigMaps that kubeadm keeps, its add-ons, and who last
//! wrote to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afloat_api::annotations;
use afloat_api::kubeadm::configuration::{TaggedPart, image_tag, with_image_tag};
use afloat_node::flags::numbers;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::SimHost;
use super::kubeadm::Said;
use super::layout::core_dns_tag;

/// Where Afloat notes in kubeadm's configuration which tags are its own.
const NOTE: &str = "/metadata/annotations/afloat.dev~1named-images";
const CORE_DNS: &str = "deployment/coredns";
/// What kubeadm writes for its add-ons: kinds and names.
const ADD_ONS: [(&str, &str); 12] = [
    ("ServiceAccount", "kube-proxy"),
    ("ClusterRoleBinding", "kubeadm:node-proxier"),
    ("Role", "kube-proxy"),
    ("RoleBinding", "kube-proxy"),
    ("ConfigMap", "kube-proxy"),
    ("DaemonSet", "kube-proxy"),
    ("ServiceAccount", "coredns"),
    ("ClusterRole", "system:coredns"),
    ("ClusterRoleBinding", "system:coredns"),
    ("ConfigMap", "coredns"),
    ("Deployment", "coredns"),
    ("Service", "kube-dns"),
];

/// What all machines of a cluster share.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<SharedState>>);

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedState {
    /// `kubernetesVersion` of the ConfigMap `kubeadm-config`.
    pub kubernetes_version: String,
    /// `clusterName` there, which is a person's.
    pub cluster_name: String,
    /// The image tags that it names for etcd and CoreDNS.
    pub etcd_tag: Option<String>,
    pub core_dns_tag: Option<String>,
    /// Which of them are Afloat's, as it noted it there.
    pub named_images: Option<String>,
    /// How often it was written.
    revision: u64,
    /// The version whose kubeadm wrote the ConfigMap `kubelet-config`.
    pub kubelet_config_version: String,
    /// Whether the cluster's address answers: some API server behind it does.
    pub api_reachable: bool,
    /// The version of each add-on's objects, by `daemonset/kube-proxy`.
    pub add_ons: BTreeMap<String, String>,
    /// The tag of the image that CoreDNS runs.
    pub core_dns: String,
    /// The version of each control plane's API server: kubeadm brings add-ons only where it finds no other than its own.
    pub api_servers: BTreeMap<String, String>,
    /// When kubeadm last wrote to an object; nothing of those that it wrote long ago.
    written: BTreeMap<String, Timestamp>,
}

impl SharedState {
    /// Everything at a version, as a cluster is that was made at it.
    pub fn set_version(&mut self, version: &str) {
        version.clone_into(&mut self.kubernetes_version);
        version.clone_into(&mut self.kubelet_config_version);
        self.set_add_ons(version);
    }

    /// A person writes it.
    pub fn write_config(&mut self, cluster_name: &str) {
        cluster_name.clone_into(&mut self.cluster_name);
        self.revision += 1;
    }

    /// What a configuration says of images, and who.
    fn take_tags(&mut self, config: &str) {
        let tag = |part| image_tag(config, part).map(str::to_owned);
        (self.etcd_tag, self.core_dns_tag) = (tag(TaggedPart::Etcd), tag(TaggedPart::CoreDns));
        let name = config.lines().find_map(|line| line.strip_prefix("clusterName: "));
        name.unwrap_or_default().clone_into(&mut self.cluster_name);
        self.revision += 1;
    }

    pub fn set_add_ons(&mut self, version: &str) {
        let names = ADD_ONS.map(|(kind, name)| format!("{}/{name}", kind.to_lowercase()));
        self.add_ons = names.into_iter().map(|name| (name, version.to_owned())).collect();
        core_dns_tag(version).clone_into(&mut self.core_dns);
    }

    /// kubeadm knows the ways of CoreDNS's configuration up to its own version, and none from one that is newer or that it does not know:
    /// whatever tag its own configuration names.
    pub fn core_dns_migrates(&self, version: &str) -> Result<(), String> {
        let (from, to) = (self.core_dns.as_str(), core_dns_tag(version));
        if numbers(from).is_empty() || numbers(from) > numbers(to) {
            return Err(format!("cannot migrate up to '{to}' from '{from}'"));
        }
        Ok(())
    }
}

impl Shared {
    pub fn new(version: &str) -> Self {
        let mut state = SharedState {
            kubernetes_version: String::new(),
            cluster_name: "sim".to_owned(),
            etcd_tag: None,
            core_dns_tag: None,
            named_images: None,
            revision: 7,
            kubelet_config_version: String::new(),
            api_reachable: true,
            add_ons: BTreeMap::new(),
            core_dns: String::new(),
            api_servers: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        state.set_version(version);
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn get(&self) -> MutexGuard<'_, SharedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for another cluster: what is changed in one of them is not changed in the other.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self(Arc::new(Mutex::new(self.get().clone())))
    }
}

impl SimHost {
    /// The end of `kubeadm upgrade apply`: what all nodes read then.
    pub(super) fn publish_config(&self, version: &str) {
        let mut shared = self.shared.get();
        for name in ["configmap/kubeadm-config", "configmap/kubelet-config"] {
            shared.written.insert(name.to_owned(), self.now);
        }
        version.clone_into(&mut shared.kubernetes_version);
        version.clone_into(&mut shared.kubelet_config_version);
        shared.revision += 1;
    }

    /// The last thing that kubeadm does on a control plane, where no other is behind.
    pub(super) fn publish_add_ons(&self, version: &str, core_dns: bool) -> Result<(), String> {
        let mut shared = self.shared.get();
        if shared.api_servers.values().any(|other| other != version) {
            return Ok(());
        }
        if core_dns {
            let migrates = shared.core_dns_migrates(version);
            migrates.map_err(|why| format!("error execution phase addon/coredns: {why}"))?;
            let named = shared.core_dns_tag.clone();
            shared.core_dns = named.unwrap_or_else(|| core_dns_tag(version).to_owned());
        }
        for (kind, name) in ADD_ONS {
            if core_dns || !name.contains("dns") {
                let name = format!("{}/{name}", kind.to_lowercase());
                shared.add_ons.insert(name.clone(), version.to_owned());
                shared.written.insert(name, self.now);
            }
        }
        Ok(())
    }

    /// `kubectl get configmap kubeadm-config --output json`
    pub(super) fn get_config_object(&self) -> Said {
        self.reaches_api()?;
        let object = object(&self.shared.get(), "configmap/kubeadm-config");
        object
            .map(|object| object.to_string())
            .ok_or_else(|| "not found".to_owned())
    }

    /// `kubectl patch configmap kubeadm-config --type=merge --field-manager=kubeadm --patch-file FILE`
    pub(super) fn patch_config(&self, file: &str) -> Said {
        self.reaches_api()?;
        let text = self.disk.text(file).ok_or("the path does not exist")?;
        let patch: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let text = |pointer: &str| patch.pointer(pointer).and_then(Value::as_str);
        let mut shared = self.shared.get();
        if text("/metadata/resourceVersion").is_some_and(|revision| revision != shared.revision.to_string()) {
            return Err("the object has been modified; please apply your changes to the latest version".to_owned());
        }
        shared.take_tags(text("/data/ClusterConfiguration").ok_or("no ClusterConfiguration")?);
        if let Some(note) = patch.pointer(NOTE) {
            shared.named_images = note.as_str().map(str::to_owned);
        }
        shared.written.insert("configmap/kubeadm-config".to_owned(), self.now);
        Ok(String::new())
    }

    /// `kubectl get TYPE/NAME … --ignore-not-found --show-managed-fields --output json`
    pub(super) fn get_objects(&self, names: &[&str]) -> Said {
        self.reaches_api()?;
        let shared = self.shared.get();
        let items: Vec<Value> = names.iter().filter_map(|name| object(&shared, name)).collect();
        Ok(if items.is_empty() {
            String::new()
        } else {
            json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
        })
    }

    /// `kubectl delete --ignore-not-found TYPE/NAME …`
    pub(super) fn delete_objects(&self, names: &[&str]) -> Said {
        self.reaches_api()?;
        self.shared
            .get()
            .add_ons
            .retain(|name, _| !names.contains(&name.as_str()));
        Ok(String::new())
    }

    /// `kubectl replace --filename FILE`
    pub(super) fn replace_objects(&self, file: &str) -> Said {
        self.reaches_api()?;
        let text = self.disk.text(file).ok_or("the path does not exist")?;
        let list: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let items = list.get("items").and_then(Value::as_array).ok_or("no list")?;
        let mut shared = self.shared.get();
        for item in items {
            let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
            if text("/metadata/resourceVersion").is_some() {
                return Err("the object has been modified; please apply your changes to the latest version".to_owned());
            }
            let (kind, name) = (
                text("/kind").ok_or("no kind")?,
                text("/metadata/name").ok_or("no name")?,
            );
            let name = format!("{}/{name}", kind.to_lowercase());
            let version = text("/data/version").and_then(|text| text.split_whitespace().last());
            let version = version.ok_or("no version")?.to_owned();
            match name.as_str() {
                "configmap/kubeadm-config" => {
                    shared.kubernetes_version = version;
                    shared.take_tags(text("/data/ClusterConfiguration").unwrap_or_default());
                    shared.named_images = text(NOTE).map(str::to_owned);
                }
                "configmap/kubelet-config" => shared.kubelet_config_version = version,
                _ => {
                    let place = shared.add_ons.get_mut(&name).ok_or("there is no such object")?;
                    *place = version;
                    let image = text("/spec/template/spec/containers/0/image").filter(|_| name == CORE_DNS);
                    if let Some((_, tag)) = image.and_then(|image| image.rsplit_once(':')) {
                        tag.clone_into(&mut shared.core_dns);
                    }
                }
            }
        }
        Ok(String::new())
    }
}

fn config(shared: &SharedState) -> String {
    let version = &shared.kubernetes_version;
    let name = &shared.cluster_name;
    let mut config = format!(
        "clusterName: {name}\ndns: {{}}\netcd:\n  local:\n    dataDir: /var/lib/etcd\nkubernetesVersion: {version}\n"
    );
    for (part, tag) in [
        (TaggedPart::Etcd, &shared.etcd_tag),
        (TaggedPart::CoreDns, &shared.core_dns_tag),
    ] {
        let named = tag.as_ref().and_then(|tag| with_image_tag(&config, part, tag));
        config = named.unwrap_or(config);
    }
    config
}

fn object(shared: &SharedState, name: &str) -> Option<Value> {
    let (kind, version) = match name {
        "configmap/kubeadm-config" => ("ConfigMap", &shared.kubernetes_version),
        "configmap/kubelet-config" => ("ConfigMap", &shared.kubelet_config_version),
        _ => {
            let named = |(kind, own): &&(&str, &str)| format!("{}/{own}", kind.to_lowercase()) == name;
            (ADD_ONS.iter().find(named)?.0, shared.add_ons.get(name)?)
        }
    };
    let written = shared.written.get(name).copied().unwrap_or(Timestamp::UNIX_EPOCH);
    let (_, own) = name.split_once('/')?;
    let managers = json!([{"manager": "kubeadm", "operation": "Update", "time": written}]);
    let revision = shared.revision.to_string();
    let mut metadata =
        json!({"name": own, "namespace": "kube-system", "resourceVersion": revision, "managedFields": managers});
    let mut data = json!({"version": version});
    if name == "configmap/kubeadm-config" {
        data["ClusterConfiguration"] = json!(config(shared));
    }
    let note = shared
        .named_images
        .as_ref()
        .filter(|_| name == "configmap/kubeadm-config");
    if let Some(note) = note {
        metadata["annotations"] = json!({annotations::NAMED_IMAGES: note});
    }
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data});
    if name == CORE_DNS {
        let image = format!("registry.k8s.io/coredns/coredns:{}", shared.core_dns);
        object["spec"] = json!({"template": {"spec": {"containers": [{"name": "coredns", "image": image}]}}});
    }
    Some(object)
}
