//! Making a Kubernetes cluster of machines with kubeadm, and the test workload in it.

use std::{fs, thread, time::Duration};

use crate::{
    Error, Lab, Machine, Progress,
    contents::KUBE_VIP,
    shell::{self, wait_for},
    spec::{API_PORT, HARSH, PLAIN, PODS, Role, Spec, VIRTUAL},
};

/// Short enough for a test, long enough for two cores.
const READY_WITHIN: Duration = Duration::from_mins(4);
/// What real machines have and these do not: their own kernel, memory and processors, and no swap.
pub(crate) const NOT_CHECKED: &str = "SystemVerification,Swap,Mem,NumCPU";
const CONFIG: &str = "/root/kubeadm.yaml";
/// kube-vip's, in `kube-system`.
pub(crate) const LEASE: &str = "plndr-cp-lock";
/// An image is there, so this is a container's start and an election.
const ELECTED_WITHIN: Duration = Duration::from_mins(2);

/// What a machine must know to join.
#[derive(Debug, Clone)]
pub(crate) struct Secrets {
    token: String,
    certificate_key: String,
}

impl Secrets {
    pub(crate) fn random() -> Self {
        let letters = |count: usize, among: &str| -> String {
            (0..count)
                .filter_map(|_| fastrand::choice(among.as_bytes()).map(|byte| char::from(*byte)))
                .collect()
        };
        let token = "abcdefghijklmnopqrstuvwxyz0123456789";
        Self {
            token: format!("{}.{}", letters(6, token), letters(16, token)),
            certificate_key: letters(64, "0123456789abcdef"),
        }
    }
}

fn registration(machine: &Machine) -> String {
    format!(
        "nodeRegistration:\n  criSocket: unix:///run/containerd/containerd.sock\n  imagePullPolicy: IfNotPresent\n  \
         ignorePreflightErrors: [{NOT_CHECKED}]\n  kubeletExtraArgs: [{{name: node-ip, value: {}}}]\n",
        machine.address()
    )
}

fn init_config(spec: &Spec, secrets: &Secrets, machine: &Machine) -> String {
    let Secrets { token, certificate_key } = secrets;
    let (address, registration) = (machine.address(), registration(machine));
    let (name, version, mode) = (&spec.name, &spec.version, &spec.proxy_mode);
    format!(
        "apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: {address}}}
certificateKey: {certificate_key}
bootstrapTokens: [{{token: {token}, ttl: 24h0m0s, usages: [signing, authentication], groups: [\"system:bootstrappers:kubeadm:default-node-token\"]}}]
{registration}---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {version}
clusterName: {name}
controlPlaneEndpoint: \"{PLAIN}:{API_PORT}\"
networking: {{podSubnet: {PODS}}}
apiServer: {{certSANs: [{PLAIN}, {HARSH}, {VIRTUAL}]}}
controllerManager: {{extraArgs: [{{name: allocate-node-cidrs, value: \"false\"}}]}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
resolvConf: /etc/kubelet-resolv.conf
serializeImagePulls: false
# All machines share one disk: how full it is says nothing about a machine.
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 100Mi, nodefs.available: \"0%\", nodefs.inodesFree: \"0%\", imagefs.available: \"0%\", imagefs.inodesFree: \"0%\"}}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {mode}
clusterCIDR: {PODS}
# A machine of the lab may not write these.
conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
"
    )
}

fn join_config(secrets: &Secrets, machine: &Machine) -> String {
    let Secrets { token, certificate_key } = secrets;
    let text = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken: {{token: {token}, \
         apiServerEndpoint: \"{PLAIN}:{API_PORT}\", unsafeSkipCAVerification: true}}\n{}",
        registration(machine)
    );
    if machine.role() == Role::ControlPlane {
        let address = machine.address();
        return format!(
            "{text}controlPlane: {{localAPIEndpoint: {{advertiseAddress: {address}}}, certificateKey: {certificate_key}}}\n"
        );
    }
    text
}

/// From booted machines to a cluster.
pub(crate) fn form(lab: &Lab, progress: &Progress) -> Result<(), Error> {
    let spec = lab.spec();
    let secrets = Secrets::random();
    let machines = lab.machines();
    let Some((first, others)) = machines.split_first() else {
        return Err(Error::Size);
    };
    shell::write(&first.seen_from_outside(CONFIG), &init_config(spec, &secrets, first))?;
    first.exec(["kubeadm", "init", "--upload-certs", "--config", CONFIG])?;
    first.copy_out("/etc/kubernetes/admin.conf", &lab.kubeconfig())?;
    progress.say(&format!("{} is a control plane", first.name()));
    thread::scope(|scope| {
        let joining: Vec<_> = others
            .iter()
            .filter(|machine| machine.role() == Role::Worker)
            .map(|worker| scope.spawn(|| join(worker, &secrets, progress)))
            .collect();
        // One at a time: etcd takes one new member at a time.
        for machine in others.iter().filter(|machine| machine.role() == Role::ControlPlane) {
            join(machine, &secrets, progress)?;
        }
        joining
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or(Err(Error::Broken("a join"))))
    })?;
    if spec.workers == 0 {
        lab.kubectl(["taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-"])?;
    }
    if spec.virtual_address {
        start_virtual_address(lab, progress)?;
    }
    apply(lab, "lookout.yaml", include_str!("../files/lookout.yaml"))?;
    if spec.workload {
        start_workload(lab)?;
    }
    await_ready(lab, progress)
}

/// The first control plane is elected: the others stand only once it is.
fn start_virtual_address(lab: &Lab, progress: &Progress) -> Result<(), Error> {
    let machines = lab.machines();
    let control_planes = machines.iter().filter(|machine| machine.role() == Role::ControlPlane);
    for (number, machine) in control_planes.enumerate() {
        let unfinished = machine.seen_from_outside("/etc/kubernetes/manifests/.kube-vip.yaml");
        let manifest = machine.seen_from_outside("/etc/kubernetes/manifests/kube-vip.yaml");
        shell::write(&unfinished, &kube_vip_manifest(machine.name()))?;
        // The kubelet reads a manifest as soon as it is there, and those with a dot in front never.
        fs::rename(&unfinished, &manifest).map_err(Error::file(&manifest))?;
        if number == 0 {
            await_holder(lab, machine.name())?;
        }
        let pod = format!("pod/kube-vip-{}", machine.name());
        await_kubectl(
            lab,
            &[
                "--namespace=kube-system",
                "wait",
                "--for=condition=Ready",
                "--timeout=5s",
                &pod,
            ],
        )?;
    }
    let server = format!("--server=https://{VIRTUAL}:{API_PORT}");
    await_kubectl(lab, &[&server, "--request-timeout=5s", "get", "--raw=/readyz"])?;
    progress.say(&format!("{VIRTUAL} is held by the first control plane"));
    Ok(())
}

fn kube_vip_manifest(node: &str) -> String {
    include_str!("../files/kube-vip.yaml")
        .replace("@IMAGE@", KUBE_VIP)
        .replace("@NODE@", node)
        .replace("@ADDRESS@", &VIRTUAL.to_string())
        .replace("@PORT@", &API_PORT.to_string())
}

fn await_holder(lab: &Lab, wanted: &str) -> Result<(), Error> {
    let what = format!("{wanted} as the holder of lease kube-system/{LEASE}");
    wait_for(&what, ELECTED_WITHIN, Duration::from_millis(500), || {
        let asked = lab.virtual_holder().map_err(|error| error.to_string())?;
        let said = || format!("its holder is {:?}", asked.as_deref().unwrap_or("nobody"));
        (asked.as_deref() == Some(wanted)).then_some(()).ok_or_else(said)
    })
}

fn await_kubectl(lab: &Lab, words: &[&str]) -> Result<(), Error> {
    let what = format!("kubectl {}", words.join(" "));
    let asked = || lab.kubectl(words.iter().copied()).map_err(|error| error.to_string());
    wait_for(&what, ELECTED_WITHIN, Duration::from_millis(500), asked).map(drop)
}

fn join(machine: &Machine, secrets: &Secrets, progress: &Progress) -> Result<(), Error> {
    shell::write(&machine.seen_from_outside(CONFIG), &join_config(secrets, machine))?;
    machine.exec(["kubeadm", "join", "--config", CONFIG])?;
    progress.say(&format!("{} has joined", machine.name()));
    Ok(())
}

/// One more worker for a cluster that is there, with secrets of its own.
pub(crate) fn join_worker(lab: &Lab, worker: &Machine, progress: &Progress) -> Result<(), Error> {
    let secrets = Secrets::random();
    let machines = lab.machines();
    let first = machines.first().ok_or(Error::Size)?;
    first.exec(["kubeadm", "token", "create", &secrets.token])?;
    join(worker, &secrets, progress)?;
    await_ready(lab, progress)
}

fn start_workload(lab: &Lab) -> Result<(), Error> {
    // With one machine nothing could ever move, and a budget would only say so.
    let available = if lab.spec().control_planes + lab.spec().workers > 1 {
        "2"
    } else {
        "0"
    };
    let text = include_str!("../files/workload.yaml").replace("@AVAILABLE@", available);
    apply(lab, "workload.yaml", &text)
}

fn apply(lab: &Lab, name: &str, text: &str) -> Result<(), Error> {
    let file = lab.folder().join(name);
    shell::write(&file, text)?;
    lab.kubectl(["apply", "-f", &file.display().to_string()]).map(drop)
}

fn await_ready(lab: &Lab, progress: &Progress) -> Result<(), Error> {
    let within = format!("--timeout={}s", READY_WITHIN.as_secs());
    wait_for("all nodes", READY_WITHIN, Duration::from_millis(500), || {
        lab.kubectl(["wait", "--for=condition=Ready", "node", "--all", &within])
            .map_err(|error| error.to_string())
    })?;
    progress.say("all nodes are Ready");
    let mut rollouts = vec![
        ("kube-system", "daemonset/kube-proxy"),
        ("kube-system", "deployment/coredns"),
        ("default", "daemonset/lookout"),
    ];
    if lab.spec().workload {
        rollouts.push(("default", "deployment/web"));
    }
    for (namespace, what) in rollouts {
        lab.kubectl(["--namespace", namespace, "rollout", "status", what, &within])?;
    }
    progress.say("kube-proxy, CoreDNS and the workload are ready");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stand_in_for_kube_vip_is_told_its_node_and_address() {
        let manifest = kube_vip_manifest("cp-2");
        for wanted in [
            "--node=cp-2",
            "--address=10.77.0.5",
            "https://kubernetes:6443",
            "/kube-vip:stand-in",
        ] {
            assert!(manifest.contains(wanted), "{wanted} is not in {manifest}");
        }
        assert!(!manifest.contains('@'), "{manifest}");
        let read: serde_json::Value = serde_saphyr::from_str(&manifest).unwrap();
        assert_eq!(read["spec"]["containers"][0]["name"], "kube-vip");
    }
}
