//! What a test breaks on a machine, and how it mends it: each stays broken until it is mended, whatever an upgrade does meanwhile.

use crate::{Error, Site};

const PATCHES: &str = "/etc/kubernetes/patches";
const KUBELET_DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";
/// The unit that keeps a wrong image under the API server's name.
const WRONG_IMAGE: &str = "wrong-image";

impl Site {
    fn run(&self, machine: &str, script: &str) -> Result<String, Error> {
        Ok(self.lab.machine(machine)?.exec(["sh", "-c", script])?)
    }

    /// A patch that cannot be applied: kubeadm fails when it writes the kubelet's configuration, on a control plane after everything
    /// else was swapped. Whoever wrote it thought of another field.
    pub fn break_kubeadm(&self, machine: &str) -> Result<(), Error> {
        let patch = r#"[{"op": "test", "path": "/maxPods", "value": 42}]"#;
        let write = format!("mkdir -p {PATCHES} && echo '{patch}' > {PATCHES}/kubeletconfiguration0+json.json");
        self.run(machine, &write).map(drop)
    }

    pub fn mend_kubeadm(&self, machine: &str) -> Result<(), Error> {
        self.run(machine, &format!("rm -r {PATCHES}")).map(drop)
    }

    /// The next version's kubelet does not start: its unit refuses it.
    pub fn break_kubelet(&self, machine: &str) -> Result<(), Error> {
        let check = format!("ExecStartPre=/bin/sh -c \"! kubelet --version | grep {}\"", self.to());
        let script = format!(
            "mkdir -p {KUBELET_DROP_INS} && printf '[Service]\n{check}\n' > {KUBELET_DROP_INS}/refuse.conf && systemctl daemon-reload"
        );
        self.run(machine, &script).map(drop)
    }

    pub fn mend_kubelet(&self, machine: &str) -> Result<(), Error> {
        let script = format!("rm {KUBELET_DROP_INS}/refuse.conf && systemctl daemon-reload");
        self.run(machine, &script).map(drop)
    }

    /// Once it was brought, the next version's API server is an image without such a program: its container never starts.
    pub fn break_api_server(&self, machine: &str) -> Result<(), Error> {
        let image = format!("registry.k8s.io/kube-apiserver:{}", self.to());
        let wrong = "$(ctr -n k8s.io images ls -q | grep /pause: | head -n 1)";
        let replace = format!(
            "ctr -n k8s.io images ls -q | grep -qx {image} && ctr -n k8s.io images tag --force {wrong} {image}"
        );
        // Again and again: between being staged and being upgraded may be less than a second.
        let script = format!("systemd-run --quiet --unit {WRONG_IMAGE} sh -c 'while sleep 0.5; do {replace}; done'");
        self.run(machine, &script).map(drop)
    }

    /// Once the next version's etcd has its manifest, its data is damaged: neither that one nor the one before starts on it any more.
    pub fn break_etcd(&self, machine: &str, tag: &str) -> Result<(), Error> {
        let manifest = "/etc/kubernetes/manifests/etcd.yaml";
        let damage = "dd if=/dev/urandom of=/var/lib/etcd/member/snap/db bs=4096 count=16 conv=notrunc";
        // Once: what joins anew is to stay as it is.
        let script = format!(
            "systemd-run --quiet --unit damaged-etcd sh -c 'until grep -q etcd:{tag} {manifest}; do sleep 0.2; done; {damage}'"
        );
        self.run(machine, &script).map(drop)
    }

    /// From now on what is brought stays.
    pub fn mend_api_server(&self, machine: &str) -> Result<(), Error> {
        self.run(machine, &format!("systemctl stop {WRONG_IMAGE}")).map(drop)
    }
}
