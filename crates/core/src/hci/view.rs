//! What the core sees of a Harvester-like cluster beyond nodes and pods: the front door's objects, Rancher's questions, virtual
//! machines, volumes, charts. Each object is reduced to what decisions need; whoever keeps the view puts them in and takes
//! them out by kind, without knowing more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use afloat_api::foreign::rancher::MachinePlan;
use afloat_api::harvester::{Upgrade, Version};

use crate::view::{Key, NodeName, Revision, Target, Uid};

mod objects;

pub use objects::{
    Addon, Attachment, Backup, Bundle, Cancelled, CapiCluster, Chart, Engine, HelmRelease, Image, Job, LocalCluster,
    Log, Machine, Migration, NodeMarks, RepoAnswer, RestoreList, Run, Schedule, Server, Ticket, Upstream, Vm, Vmi,
    Volume,
};

/// An object as it was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen<T> {
    pub target: Target,
    /// It is being deleted.
    pub deleting: bool,
    pub what: T,
}

impl<T> Deref for Seen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

/// Makes the shelves, one per kind, and what can be done with an object of whatever kind.
macro_rules! shelves {
    ($($(#[$doc:meta])* $kind:ident in $field:ident: $type:ty),* $(,)?) => {
        /// A kind of the HCI part of the view.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, strum::EnumIter, strum::IntoStaticStr)]
        pub enum HciKind {
            $($(#[$doc])* $kind,)*
        }

        /// One object of the HCI part of the view; cheap to copy.
        #[derive(Clone, Debug, PartialEq)]
        pub enum HciObject {
            $($kind(Arc<Seen<$type>>),)*
        }

        impl HciObject {
            pub fn kind(&self) -> HciKind {
                match self {
                    $(Self::$kind(_) => HciKind::$kind,)*
                }
            }

            pub fn target(&self) -> &Target {
                match self {
                    $(Self::$kind(object) => &object.target,)*
                }
            }

            pub fn deleting(&self) -> bool {
                match self {
                    $(Self::$kind(object) => object.deleting,)*
                }
            }

            /// The same object as it is after a write.
            pub fn at_revision(&mut self, revision: Revision) {
                match self {
                    $(Self::$kind(object) => Arc::make_mut(object).target.revision = revision,)*
                }
            }

            /// Whether nothing but the revision differs.
            pub fn says_the_same(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$kind(one), Self::$kind(other)) => {
                        one.target.uid == other.target.uid && one.deleting == other.deleting && one.what == other.what
                    })*
                    _ => false,
                }
            }
        }

        /// Everything of the HCI part, by kind.
        #[derive(Clone, Debug, Default)]
        pub struct Hci {
            $($(#[$doc])* pub $field: BTreeMap<Key, Arc<Seen<$type>>>,)*
            vmis_by_node: BTreeMap<NodeName, BTreeSet<Key>>,
            migrations_by_vm: BTreeMap<Key, BTreeSet<Key>>,
            /// What the repository of an Upgrade answered last.
            pub repos: BTreeMap<Key, RepoAnswer>,
            /// Image of the Jobs where the Upgrade names none: the operator's own.
            pub image: Arc<str>,
        }

        impl Hci {
            /// Puts an object in; whether anything but its revision is new.
            pub fn put(&mut self, object: HciObject) -> bool {
                self.unindex(object.kind(), &object.target().key.clone());
                let changed = match object {
                    $(HciObject::$kind(object) => {
                        let before = self.$field.insert(object.target.key.clone(), Arc::clone(&object));
                        before.is_none_or(|before| {
                            before.target.uid != object.target.uid
                                || before.deleting != object.deleting
                                || before.what != object.what
                        })
                    })*
                };
                changed
            }

            /// Takes an object out; whether it was there.
            pub fn remove(&mut self, kind: HciKind, key: &Key) -> bool {
                self.unindex(kind, key);
                match kind {
                    $(HciKind::$kind => self.$field.remove(key).is_some(),)*
                }
            }

            pub fn get(&self, kind: HciKind, key: &Key) -> Option<HciObject> {
                match kind {
                    $(HciKind::$kind => self.$field.get(key).map(|object| HciObject::$kind(Arc::clone(object))),)*
                }
            }

            pub fn known(&self, kind: HciKind, key: &Key) -> Option<(Uid, Revision)> {
                match kind {
                    $(HciKind::$kind => {
                        let target = &self.$field.get(key)?.target;
                        Some((target.uid.clone(), target.revision))
                    })*
                }
            }

            pub fn keys(&self, kind: HciKind) -> BTreeSet<Key> {
                match kind {
                    $(HciKind::$kind => self.$field.keys().cloned().collect(),)*
                }
            }
        }
    };
}

shelves! {
    /// Upgrades of Harvester.
    Upgrade in upgrades: Upgrade,
    /// Releases that can be upgraded to.
    Version in versions: Version,
    /// Settings of Harvester: the value that counts.
    Setting in settings: Arc<str>,
    /// Collections of logs.
    UpgradeLog in logs: Log,
    /// Images of virtual machines, the ISO among them.
    Image in images: Image,
    /// Addons of Harvester.
    Addon in addons: Addon,
    /// Backups and snapshots of virtual machines.
    Backup in backups: Backup,
    /// Backups by the clock.
    Schedule in schedules: Schedule,
    /// Restores of either.
    Restore in restores: Backup,
    /// Rancher's provisioning clusters.
    Cluster in clusters: LocalCluster,
    /// Cluster API's view of the same.
    CapiCluster in capi_clusters: CapiCluster,
    /// Machines of Cluster API.
    Machine in machines: Machine,
    /// Plan secrets, without their data.
    Plan in plans: MachinePlan,
    /// Charts that fleet manages.
    Chart in charts: Chart,
    /// What Rancher handed to fleet of them.
    Bundle in bundles: Bundle,
    /// Jobs of upgrades.
    Job in jobs: Job,
    /// Services of repositories.
    Service in services: (),
    /// Lists of virtual machines that were stopped.
    RestoreList in restore_lists: RestoreList,
    /// Virtual machines.
    Vm in vms: Vm,
    /// Virtual machines that run.
    Vmi in vmis: Vmi,
    /// Migrations.
    Migration in migrations: Migration,
    /// Volumes of Longhorn.
    Volume in volumes: Volume,
    /// Engines of Longhorn.
    Engine in engines: Engine,
    /// Who wants Longhorn's volumes to be attached.
    Attachment in attachments: Attachment,
    /// Settings of Longhorn.
    LonghornSetting in longhorn_settings: Arc<str>,
    /// Harvester's own controller.
    Upstream in upstream: Upstream,
    /// Deployments of Rancher and of what serves its charts.
    Server in servers: Server,
    /// Revisions of Rancher's own chart, as helm keeps them; without what they hold.
    HelmRelease in helm_releases: HelmRelease,
}

/// Takes one of those away that are found by another.
fn forget<K: Ord>(found: &mut BTreeMap<K, BTreeSet<Key>>, by: &K, key: &Key) {
    if let Some(keys) = found.get_mut(by) {
        keys.remove(key);
        if keys.is_empty() {
            found.remove(by);
        }
    }
}

impl HciKind {
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }

    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl Hci {
    /// Puts a running virtual machine where it can be found by its node, and a migration by its machine. Called after [`Hci::put`].
    fn index(&mut self, kind: HciKind, key: &Key) {
        if let Some(node) = self.node_of(kind, key) {
            self.vmis_by_node.entry(node).or_default().insert(key.clone());
        }
        if let Some(vm) = self.vm_of(kind, key) {
            self.migrations_by_vm.entry(vm).or_default().insert(key.clone());
        }
    }

    fn unindex(&mut self, kind: HciKind, key: &Key) {
        if let Some(node) = self.node_of(kind, key) {
            forget(&mut self.vmis_by_node, &node, key);
        }
        if let Some(vm) = self.vm_of(kind, key) {
            forget(&mut self.migrations_by_vm, &vm, key);
        }
    }

    fn node_of(&self, kind: HciKind, vmi: &Key) -> Option<NodeName> {
        let vmi = self.vmis.get(vmi).filter(|_| kind == HciKind::Vmi);
        vmi.and_then(|vmi| vmi.node.clone())
    }

    fn vm_of(&self, kind: HciKind, migration: &Key) -> Option<Key> {
        let there = self.migrations.get(migration).filter(|_| kind == HciKind::Migration)?;
        Some(Key {
            namespace: Arc::clone(&migration.namespace),
            name: Arc::clone(&there.vmi),
        })
    }

    /// Puts an object in and keeps the index true; whether anything but its revision is new.
    pub fn take(&mut self, object: HciObject) -> bool {
        let (kind, key) = (object.kind(), object.target().key.clone());
        let changed = self.put(object);
        self.index(kind, &key);
        changed
    }

    /// The migrations of a virtual machine that are there, by name.
    pub fn migrations_of<'a>(&'a self, vm: &Key) -> impl Iterator<Item = &'a Arc<Seen<Migration>>> + use<'a> {
        let keys = self.migrations_by_vm.get(vm).into_iter().flatten();
        keys.filter_map(|key| self.migrations.get(key))
    }

    /// The virtual machines that are on a node and not over.
    pub fn vmis_on<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a Arc<Seen<Vmi>>> {
        let keys = self.vmis_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.vmis.get(key)).filter(|vmi| vmi.alive())
    }

    /// The value of a setting that counts; empty where there is no such setting.
    pub fn setting(&self, name: &str) -> &str {
        self.settings
            .get(&Key::new("", name))
            .map_or("", |setting| &setting.what)
    }

    /// Who was stopped for an upgrade. The list of an earlier one of the same name is not its own.
    pub fn restore_list_of(&self, upgrade: &Key) -> Option<&Arc<Seen<RestoreList>>> {
        let list = self.restore_lists.get(&RestoreList::key(&upgrade.name))?;
        let ours = self.upgrades.get(upgrade).map(|upgrade| &upgrade.target.uid);
        let both = list.upgrade_uid.as_ref().zip(ours);
        both.is_none_or(|(of, ours)| of == ours).then_some(list)
    }

    /// The cluster Rancher runs in.
    pub fn local_cluster(&self) -> Option<&Arc<Seen<LocalCluster>>> {
        use afloat_api::foreign::rancher::{LOCAL_CLUSTER, LOCAL_NAMESPACE};
        self.clusters.get(&Key::new(LOCAL_NAMESPACE, LOCAL_CLUSTER))
    }

    /// The plan secret of a node, through its Machine.
    pub fn plan_of(&self, node: &NodeName) -> Option<&Arc<Seen<MachinePlan>>> {
        let machine = self
            .machines
            .values()
            .find(|machine| machine.node.as_ref() == Some(node))?;
        let name = &*machine.target.key.name;
        self.plans.values().find(|plan| plan.machine == name)
    }
}
