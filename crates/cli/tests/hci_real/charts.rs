//! Charts as an old and a new release bring them, small but real: with values of their own, with charts inside them, and with kinds that
//! others count on. Packaged by helm itself into one folder, from which fleet and Rancher's installer take them. Harvester's own kinds are a
//! chart of upstream's.

use std::fs;
use std::path::{Path, PathBuf};

use afloat_realparts::Definitions;

use super::helm::Helm;

pub const OLD_RANCHER: &str = "v2.11.3";
pub const OLD: &str = "1.6.0";
const NEW: &str = "1.7.0";
const MONITORING: [&str; 2] = ["105.1.1+up61.3.2", "105.1.2+up61.3.2"];

const SERVER: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: { app: {{ .Release.Name }} }
  template:
    metadata:
      labels: { app: {{ .Release.Name }} }
    spec:
      containers:
      - name: {{ .Release.Name }}
        image: "{{ .Values.image }}:{{ .Values.rancherImageTag | default .Chart.AppVersion }}"
        args: ["--hostname={{ .Values.hostname }}"]
"#;
/// Has no meaning without a value that the chart before did not know.
const AUDIT: &str = r#"        env:
        - { name: AUDIT_LEVEL, value: "{{ .Values.auditLog.level }}" }
"#;
const KIND: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: PLURAL.GROUP
spec:
  group: GROUP
  names: { kind: KIND, plural: PLURAL }
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: { type: object, x-kubernetes-preserve-unknown-fields: true }
";
const KUBEVIRT: &str = r"
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata:
  name: kubevirt
spec:
{{ toYaml .Values.spec | indent 2 }}
";

/// A kind, with a field that only newer releases know.
fn kind(plural: &str, group: &str, name: &str, is_new: bool) -> String {
    let text = KIND
        .replace("PLURAL", plural)
        .replace("GROUP", group)
        .replace("KIND", name);
    let newer = if is_new {
        "          quota: { type: integer }\n"
    } else {
        ""
    };
    format!("{}\n{newer}", text.trim_end())
}

/// Where packaged charts lie.
pub struct Shelf {
    folder: PathBuf,
}

impl Shelf {
    /// Packages all of them.
    pub fn fill(folder: &Path, helm: &Helm) -> Self {
        let shelf = Self {
            folder: folder.to_owned(),
        };
        for (is_new, version) in [(false, OLD), (true, NEW)] {
            let release = format!("v{version}");
            // No module has the kinds of the release between: those of the next one stand for them.
            let kinds = Definitions::locate(if is_new { "harvester-next" } else { "harvester" }).unwrap();
            shelf.package(helm, &kinds, version, &release);
            shelf.make(helm, "harvester", version, &release, &harvester());
            let monitoring = MONITORING[usize::from(is_new)];
            let kinds = kind("servicemonitors", "monitoring.coreos.com", "ServiceMonitor", is_new);
            let files = [("templates/kinds.yaml", kinds)];
            shelf.make(helm, "rancher-monitoring-crd", monitoring, monitoring, &files);
        }
        shelf
    }

    /// Packages Rancher's, and says where it lies.
    pub fn rancher(&self, helm: &Helm, version: &str) -> PathBuf {
        let is_new = version != OLD_RANCHER;
        let (audit, level) = if is_new {
            (AUDIT, "auditLog: { level: 0 }\n")
        } else {
            ("", "")
        };
        let values = "replicas: 3\nhostname: unset.example.org\nimage: rancher/rancher\n";
        let files = [
            ("templates/rancher.yaml", format!("{}\n{audit}", SERVER.trim_end())),
            ("values.yaml", format!("{values}{level}")),
            ("charts/rancher-crd/Chart.yaml", described("rancher-crd")),
            (
                "charts/rancher-crd/templates/projects.yaml",
                kind("projects", "rancher.example.org", "Project", is_new),
            ),
        ];
        self.make(helm, "rancher", version.trim_start_matches('v'), version, &files);
        self.chart("rancher", version.trim_start_matches('v'))
    }

    pub fn chart(&self, name: &str, version: &str) -> PathBuf {
        self.folder.join(format!("{name}-{version}.tgz"))
    }

    fn make(&self, helm: &Helm, name: &str, version: &str, app: &str, files: &[(&str, String)]) {
        let source = self.folder.join("sources").join(version).join(name);
        for (path, text) in files.iter().chain(&[("Chart.yaml", described(name))]) {
            let path = source.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.package(helm, &source, version, app);
    }

    fn package(&self, helm: &Helm, source: &Path, version: &str, app: &str) {
        let [source, folder] = [source, &self.folder].map(|path| path.to_str().unwrap());
        let words = [
            "package",
            source,
            "--version",
            version,
            "--app-version",
            app,
            "--destination",
            folder,
        ];
        helm.tell(&words).unwrap();
    }
}

fn described(name: &str) -> String {
    format!("apiVersion: v2\nname: {name}\nversion: 0.0.0\n")
}

/// Harvester itself, with KubeVirt as a chart inside it, as upstream has it.
fn harvester() -> [(&'static str, String); 5] {
    let values = "replicas: 1\nhostname: unset.example.org\nimage: rancher/harvester\n";
    let methods = "spec:\n  workloadUpdateStrategy:\n    workloadUpdateMethods: [LiveMigrate]\n";
    [
        ("templates/harvester.yaml", SERVER.to_owned()),
        ("values.yaml", values.to_owned()),
        ("charts/kubevirt/Chart.yaml", described("kubevirt")),
        ("charts/kubevirt/values.yaml", methods.to_owned()),
        ("charts/kubevirt/templates/kubevirt.yaml", KUBEVIRT.to_owned()),
    ]
}
