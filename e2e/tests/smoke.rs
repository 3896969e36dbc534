//! One real control-plane node upgraded in place, with its etcd data, its workload and a file that a person had changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::sync::mpsc;
use std::time::Duration;

use afloat_e2e::{Account, Moments, Site};
use afloat_lab::{Machine, Release, Spec};

const TO: &str = "v1.36.3";
/// A file that a person tuned on the machine.
const TUNED: &str = "/etc/sysctl.d/90-site.conf";

/// A CNI plugin that is not the bundle's any more, and works as before.
const PLUGIN: &str = "/opt/cni/bin/portmap";

fn run(machine: &Machine, script: &str) -> String {
    machine.exec(["sh", "-c", script]).unwrap().trim().to_owned()
}

/// containerd's process, and the one of the container that every machine has, each with when it started.
fn processes(machine: &Machine) -> [String; 2] {
    let started =
        |which: &str| format!("for pid in $({which}); do echo $pid since $(cut -d ' ' -f 22 /proc/$pid/stat); done");
    let containerd = started("systemctl show --property=MainPID --value containerd");
    [containerd, started("pgrep -f '^sleep infinity$'")].map(|script| run(machine, &script))
}

/// The form of containerd's configuration: of the file, and the newest that the containerd here knows.
fn config_versions(machine: &Machine) -> [String; 2] {
    let version = "sed -n 's/^version = //p'";
    let [file, known] = [
        format!("{version} /etc/containerd/config.toml"),
        format!("containerd config default | {version}"),
    ];
    [run(machine, &file), run(machine, &known)]
}

/// What runtime and plugins were like, and are seen to be like meanwhile.
struct Before {
    plugin: String,
    processes: [String; 2],
    config: [String; 2],
    /// The processes as the step after containerd and the plugins begins: the kubelet and kubeadm have not touched any container yet.
    meanwhile: mpsc::Receiver<[String; 2]>,
    moments: Moments,
}

impl Before {
    /// Also lets a plugin be another one than the bundle's.
    fn look(site: &Site) -> Self {
        let machine = site.lab.machine("cp-1").unwrap();
        let plugin = site.digest("cp-1", PLUGIN).unwrap();
        run(&machine, &format!("printf x >> {PLUGIN}"));
        assert_ne!(site.digest("cp-1", PLUGIN).unwrap(), plugin);
        let processes = processes(&machine);
        assert!(
            processes.iter().all(|process| process.lines().count() == 1),
            "{processes:?}"
        );
        let config = config_versions(&machine);
        let (sender, meanwhile) = mpsc::channel();
        let moments = Moments::of(
            machine,
            |entry| (entry.step == "kubeadm").then(|| entry.step.clone()),
            move |machine| {
                // Whoever waits for it says that nothing came.
                let _ = sender.send(self::processes(machine));
                Ok(())
            },
        );
        Self {
            plugin,
            processes,
            config,
            meanwhile,
            moments,
        }
    }

    fn assert_runtime_replaced(self, site: &Site, account: &Account) {
        self.moments.stop().unwrap();
        let steps = &account.nodes[0].steps;
        let step = |name: &str| steps.iter().find(|step| step.name == name).unwrap();
        assert_eq!(step("cni").state, "Succeeded", "{}", step("cni").message);
        let plugin = site.digest("cp-1", PLUGIN).unwrap();
        assert_eq!(plugin, self.plugin, "{PLUGIN} is not the bundle's");

        let meanwhile = self.meanwhile.try_recv().unwrap_or_default();
        assert_ne!(
            meanwhile,
            <[String; 2]>::default(),
            "the step kubeadm was not seen to begin"
        );
        assert_ne!(meanwhile[0], self.processes[0], "containerd was not restarted");
        assert_eq!(
            meanwhile[1], self.processes[1],
            "a container did not outlive containerd's restart"
        );

        let node = site.object(&["get", "node", "cp-1"]).unwrap();
        let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap();
        let wanted = Release::of(TO).unwrap().containerd_version().unwrap();
        // containerd says it with the letter or without, as it was built.
        let bare = |version: &str| {
            version
                .trim_start_matches("containerd://")
                .trim_start_matches('v')
                .to_owned()
        };
        assert_eq!(bare(runtime), bare(&wanted));

        let machine = site.lab.machine("cp-1").unwrap();
        let config = config_versions(&machine);
        assert_ne!(config, self.config, "the new containerd has no newer form");
        assert_eq!(
            config[0],
            config[1],
            "the configuration was not migrated: {}",
            step("containerd").message
        );
    }
}

#[test]
fn p1_p36_a_single_real_node_is_upgraded_in_place() {
    let site = Site::up(&Spec::single("e2e-smoke"), TO).unwrap();
    site.lab
        .machine("cp-1")
        .unwrap()
        .exec(["sh", "-c", &format!("echo vm.swappiness=1 > {TUNED}")])
        .unwrap();
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();

    let before = Before::look(&site);

    let followed = site
        .upgrade(
            &["--delete-emptydir-data", "--evict-unmanaged"],
            Duration::from_mins(10),
            None,
            |_| Ok(()),
        )
        .unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    if followed.exit_code != Some(0) {
        println!("{}", site.diagnosis());
    }
    let account = site.account_to_table(&followed).unwrap();
    println!("{account}");

    assert_eq!(followed.exit_code, Some(0));
    site.settled(Duration::from_mins(3)).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), Vec::<String>::new());
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");
    let tuned = site.lab.machine("cp-1").unwrap().exec(["cat", TUNED]).unwrap();
    assert_eq!(tuned.trim(), "vm.swappiness=1");
    let server = site.object(&["version"]).unwrap();
    assert_eq!(server["serverVersion"]["gitVersion"], TO);
    before.assert_runtime_replaced(&site, &account);
    // Not its overhead: it runs beside whatever else a change is checked by, and seconds say little there.
    assert_eq!(
        site.parts_not_at(&Release::of(TO).unwrap()).unwrap(),
        Vec::<String>::new()
    );
}
