//! Carrying out one action on the storage, as the real executor does it over HTTP: what an action becomes as a request is in
//! `crates/operator/src/execute`, and the preconditions that go with it there hold here.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::harvester::Upgrade;
use afloat_api::labels;
use afloat_core::hci::action::{ClusterChange, HciAction, HciJob, Hook, NodeMark, Repo, TaskWrite};
use afloat_core::hci::view::{HciKind, HciObject, Image, Job, Log, Migration, RestoreList, Seen};
use afloat_core::hci::{Tri, condition_of};
use afloat_core::view::{Key, Node, NodeName, Revision, Target, Uid, Workload, WorkloadKind};

use super::bugs::Bug;
use super::rules::is_pending;
use super::store::{Loose, Shelf, meant};
use super::world::World;
use crate::store::{Meant, Refused, Writer};
use crate::time::second;

/// What a write left in the storage, to be taken into the writer's own view at once.
#[derive(Clone, Debug)]
pub enum Answer {
    Nothing,
    Node(Arc<Node>),
    Workload(Arc<Workload>),
    Hci(HciObject),
    /// Deleted, at this revision.
    Gone(Shelf, Target, u64),
}

type Done = Result<Answer, Refused>;

/// Carries out actions for one operator or one task.
pub struct Executor<'a> {
    pub world: &'a mut World,
    pub writer: Writer,
    pub verb: &'static str,
    pub bug: Option<Bug>,
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "each does the whole of an action, and actions may be refused"
)]
impl Executor<'_> {
    fn loose(&self) -> Loose {
        Loose {
            uid: self.bug == Some(Bug::IgnoreUid),
            revision: matches!(self.bug, Some(Bug::DropRevision | Bug::IgnoreUid)),
        }
    }

    pub fn execute(&mut self, action: &HciAction) -> Done {
        match action {
            HciAction::Confirm { target } => {
                let there = self.world.store.hci.upgrades.get(&target.key);
                meant(there, target, self.loose()).map(|_| Answer::Nothing)
            }
            HciAction::WriteUpgrade { target, before, after } => self.write_upgrade(target, before, after),
            HciAction::NotLatest { target } => self.change_upgrade(target, |upgrade| {
                let labels = upgrade.metadata.labels.get_or_insert_default();
                labels.remove(labels::HARVESTER_LATEST_UPGRADE);
            }),
            HciAction::MarkNode { node, mark, value } => self.change_node(node, |node| match mark {
                NodeMark::Pause => node.hci.pause.clone_from(value),
                NodeMark::PendingOsImage => node.hci.pending_os_image.clone_from(value),
            }),
            HciAction::Untaint { .. } if self.bug == Some(Bug::LeaveTaint) => Ok(Answer::Nothing),
            HciAction::TaintPending { node, taints } => self.change_node(node, |node| node.taints.clone_from(taints)),
            HciAction::Untaint { node, keep } => {
                let upgrade = self.world.upgrade().map(|upgrade| &upgrade.what);
                let runs = upgrade.is_some_and(|upgrade| condition_of(upgrade, "NodesUpgraded") == Some(Tri::Unknown));
                let keeps = self.bug == Some(Bug::KeepPending) && runs;
                self.change_node(node, |node| {
                    let ours = node.taints.iter().filter(|taint| keeps && is_pending(taint));
                    node.taints = keep.iter().chain(ours).cloned().collect();
                })
            }
            HciAction::CreateJob(job) => self.create_job(job),
            HciAction::CreateLog { key, upgrade } => {
                let log = Log {
                    upgrade: Arc::clone(&upgrade.key.name),
                    ..Log::default()
                };
                self.create(HciKind::UpgradeLog, key, upgrade, log, HciObject::UpgradeLog)
            }
            HciAction::StopLog { log, conditions } => {
                let there = meant(self.world.store.hci.logs.get(&log.key), log, self.loose())?;
                self.change(HciObject::UpgradeLog, &there, |log| {
                    log.conditions.clone_from(conditions);
                })
            }
            HciAction::DeleteLog { log } => self.delete(HciKind::UpgradeLog, log),
            HciAction::CreateImage { key, upgrade, .. } => {
                let image = Image {
                    upgrade: Some(Arc::clone(&upgrade.key.name)),
                    ..Image::default()
                };
                self.create(HciKind::Image, key, upgrade, image, HciObject::Image)
            }
            HciAction::LabelImage { image, upgrade } => {
                let there = meant(self.world.store.hci.images.get(&image.key), image, self.loose())?;
                self.change(HciObject::Image, &there, |image| image.upgrade.clone_from(upgrade))
            }
            HciAction::DeleteJob { job } => self.delete(HciKind::Job, job),
            HciAction::DeleteImage { image } => self.delete(HciKind::Image, image),
            HciAction::DeleteRepoService { service } => self.delete(HciKind::Service, service),
            HciAction::CreateRepo(repo) => self.create_repo(repo),
            HciAction::CreateRepoService { key, upgrade } => {
                self.create(HciKind::Service, key, upgrade, (), HciObject::Service)
            }
            HciAction::RestartRepo { deployment, .. } => self.restart_repo(deployment),
            HciAction::DeleteRepo { deployment } => self.delete_repo(deployment),
            HciAction::PatchCluster { cluster, change } => self.patch_cluster(cluster, change),
            HciAction::Task(write) => self.task(write),
            _ => self.execute_more(action),
        }
    }

    /// What is changed around an upgrade.
    fn execute_more(&mut self, action: &HciAction) -> Done {
        match action {
            HciAction::Answer { secret, hook, value } => {
                let there = meant(self.world.store.hci.plans.get(&secret.key), secret, self.loose())?;
                let value = Some(value.to_string());
                self.change(HciObject::Plan, &there, |plan| match hook {
                    Hook::PreDrain => plan.pre_hook = value,
                    Hook::PostDrain => plan.post_hook = value,
                })
            }
            HciAction::PauseChart { chart, by } => {
                let there = meant(self.world.store.hci.charts.get(&chart.key), chart, self.loose())?;
                self.change(HciObject::Chart, &there, |chart| {
                    chart.paused = by.is_some();
                    chart.paused_by.clone_from(by);
                })
            }
            HciAction::RestoreUpdateMethods { chart, methods } => {
                let there = meant(self.world.store.hci.charts.get(&chart.key), chart, self.loose())?;
                self.change(HciObject::Chart, &there, |chart| {
                    chart.update_methods = Arc::clone(methods);
                    chart.update_methods_before = None;
                })
            }
            HciAction::RecordVms { .. } => self.record_vms(action),
            HciAction::SetLonghorn { setting, value } => {
                let there = self.world.store.hci.longhorn_settings.get(&setting.key);
                let there = meant(there, setting, self.loose())?;
                self.change(HciObject::LonghornSetting, &there, |there| *there = Arc::clone(value))
            }
            HciAction::EnableAddon { addon, enabled } => {
                let there = meant(self.world.store.hci.addons.get(&addon.key), addon, self.loose())?;
                self.change(HciObject::Addon, &there, |addon| addon.enabled = *enabled)
            }
            _ => Ok(Answer::Nothing),
        }
    }

    fn task(&mut self, write: &TaskWrite) -> Done {
        let (loose, hci) = (self.loose(), &self.world.store.hci);
        match write {
            TaskWrite::TaintForDrain { node, taints } => self.change_node(node, |node| node.taints.clone_from(taints)),
            TaskWrite::StopVm { vm, off, before } => {
                let there = meant(hci.vms.get(&vm.key), vm, loose)?;
                self.change(HciObject::Vm, &there, |vm| {
                    vm.run = off.clone();
                    vm.run_before = Some(before.clone());
                    vm.run_after = None;
                })
            }
            TaskWrite::StartVm { .. } if self.bug == Some(Bug::ForgetStart) => Ok(Answer::Nothing),
            TaskWrite::StartVm { vm, run, after } => {
                let there = meant(hci.vms.get(&vm.key), vm, loose)?;
                self.change(HciObject::Vm, &there, |vm| {
                    vm.run = run.clone();
                    vm.run_before = None;
                    vm.run_after.clone_from(after);
                })
            }
            TaskWrite::Migrate { key, vmi, to } => self.migrate(key, vmi, to.as_ref()),
            TaskWrite::NoteCancelled { job, all } => {
                let there = meant(hci.jobs.get(&job.key), job, loose)?;
                self.change(HciObject::Job, &there, |job| job.cancelled.clone_from(all))
            }
            TaskWrite::CancelMigration { migration } => self.delete(HciKind::Migration, migration),
            TaskWrite::DetachVolume { volume } => {
                let there = meant(hci.volumes.get(&volume.key), volume, loose)?;
                self.change(HciObject::Volume, &there, |volume| volume.wanted = None)
            }
            TaskWrite::AskForKubernetes { cluster, version } => {
                let there = meant(hci.clusters.get(&cluster.key), cluster, loose)?;
                self.change(HciObject::Cluster, &there, |cluster| {
                    cluster.kubernetes_version = Arc::clone(version);
                })
            }
            TaskWrite::SetImage { server, image, .. } => {
                let there = meant(hci.servers.get(&server.key), server, loose)?;
                self.change(HciObject::Server, &there, |server| {
                    server.rolled_out &= server.image == *image;
                    server.image = Arc::clone(image);
                })
            }
            TaskWrite::RollOutChart {
                chart,
                version,
                update_methods_before,
            } => {
                let there = meant(hci.charts.get(&chart.key), chart, loose)?;
                self.change(HciObject::Chart, &there, |chart| {
                    chart.paused = false;
                    chart.paused_by = None;
                    if let Some(version) = version {
                        chart.version = Arc::clone(version);
                    }
                    if let Some(before) = update_methods_before {
                        chart.update_methods_before = Some(Arc::clone(before));
                        chart.update_methods = Arc::from("[]");
                    }
                })
            }
            TaskWrite::UpdateAddon { addon, version } => {
                let there = meant(hci.addons.get(&addon.key), addon, loose)?;
                self.change(HciObject::Addon, &there, |addon| addon.version = Arc::clone(version))
            }
        }
    }

    fn change<T: Clone>(
        &mut self,
        wrap: fn(Arc<Seen<T>>) -> HciObject,
        there: &Arc<Seen<T>>,
        change: impl FnOnce(&mut T),
    ) -> Done {
        let mut after = Seen::clone(there);
        change(&mut after.what);
        let object = wrap(Arc::new(after));
        let (kind, key) = (object.kind(), there.target.key.clone());
        self.world.write(self.writer, self.verb, object);
        let written = self.world.store.hci.get(kind, &key);
        Ok(written.map_or(Answer::Nothing, Answer::Hci))
    }

    fn change_node(&mut self, target: &Target, change: impl FnOnce(&mut Node)) -> Done {
        let name = NodeName::from(Arc::clone(&target.key.name));
        let loose = self.loose();
        let meant = Meant {
            key: &name,
            uid: (!loose.uid).then(|| target.uid.as_str()),
            revision: (!loose.revision).then_some(target.revision.0),
        };
        let base = &mut self.world.store.base;
        let written = base.update::<Node>(self.writer, self.verb, &meant, change)?;
        self.world.settle();
        Ok(Answer::Node(written))
    }

    fn change_upgrade(&mut self, target: &Target, change: impl FnOnce(&mut Upgrade)) -> Done {
        let there = self.world.store.hci.upgrades.get(&target.key);
        let there = meant(there, target, self.loose())?;
        self.change(HciObject::Upgrade, &there, change)
    }

    /// Labels, annotations, finalizers and status, each where it changes.
    fn write_upgrade(&mut self, target: &Target, before: &Upgrade, after: &Upgrade) -> Done {
        let there = self.world.store.hci.upgrades.get(&target.key);
        let there = meant(there, target, self.loose())?;
        let mut next = Upgrade::clone(&there.what);
        let (old, new) = (&before.metadata, &after.metadata);
        carry(old.labels.as_ref(), new.labels.as_ref(), &mut next.metadata.labels);
        carry(
            old.annotations.as_ref(),
            new.annotations.as_ref(),
            &mut next.metadata.annotations,
        );
        if old.finalizers != new.finalizers {
            next.metadata.finalizers.clone_from(&new.finalizers);
        }
        if before.status != after.status {
            next.status.clone_from(&after.status);
        }
        let free = next.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        if there.deleting && free {
            return self.remove(HciKind::Upgrade, &there.target);
        }
        self.change(HciObject::Upgrade, &there, |upgrade| *upgrade = next)
    }

    fn remove(&mut self, kind: HciKind, target: &Target) -> Done {
        self.world.remove(self.writer, self.verb, kind, &target.key);
        let revision = self.world.store.revision();
        Ok(Answer::Gone(Shelf::Hci(kind), target.clone(), revision))
    }

    fn delete(&mut self, kind: HciKind, target: &Target) -> Done {
        let loose = self.loose();
        match self.world.store.hci.known(kind, &target.key) {
            Some((uid, _)) if uid != target.uid && !loose.uid => Err(Refused::Conflict),
            _ => self.remove(kind, target),
        }
    }

    /// Makes an object; one that is there already is fine where it was made for the same upgrade.
    fn create<T>(
        &mut self,
        kind: HciKind,
        key: &Key,
        upgrade: &Target,
        what: T,
        wrap: fn(Arc<Seen<T>>) -> HciObject,
    ) -> Done {
        if let Some(there) = self.world.store.hci.get(kind, key) {
            let ours = self.world.store.owner(Shelf::Hci(kind), key) == Some(&upgrade.uid);
            return if ours && !there.deleting() {
                Ok(Answer::Hci(there))
            } else {
                Err(Refused::AlreadyExists)
            };
        }
        self.world.store.own(Shelf::Hci(kind), key, &upgrade.uid);
        self.world.is_owned(&upgrade.uid);
        let object = Seen {
            target: self.world.store.born(&key.namespace, &key.name),
            deleting: false,
            what,
        };
        self.made(wrap(Arc::new(object)))
    }

    fn made(&mut self, object: HciObject) -> Done {
        let (kind, key) = (object.kind(), object.target().key.clone());
        self.world.write(self.writer, self.verb, object);
        let made = self.world.store.hci.get(kind, &key);
        Ok(made.map_or(Answer::Nothing, Answer::Hci))
    }

    fn create_job(&mut self, job: &HciJob) -> Done {
        if !self.world.store.hci.jobs.contains_key(&job.key) {
            self.world.job_specs.insert(job.key.clone(), job.clone());
        }
        let what = Job {
            upgrade_uid: Some(job.upgrade.uid.clone()),
            created_at: Some(second(self.world.now)),
            ..Job::default()
        };
        self.create(HciKind::Job, &job.key, &job.upgrade, what, HciObject::Job)
    }

    fn migrate(&mut self, key: &Key, vmi: &Arc<str>, to: Option<&NodeName>) -> Done {
        if self.world.store.hci.migrations.contains_key(key) {
            return Err(Refused::AlreadyExists);
        }
        let what = Migration {
            vmi: Arc::clone(vmi),
            to: to.cloned(),
            created_at: Some(second(self.world.now)),
            ..Migration::default()
        };
        let target = self.world.store.born(&key.namespace, &key.name);
        self.made(HciObject::Migration(Arc::new(Seen {
            target,
            deleting: false,
            what,
        })))
    }

    fn record_vms(&mut self, action: &HciAction) -> Done {
        let HciAction::RecordVms {
            list,
            key,
            upgrade,
            node,
            vms,
        } = action
        else {
            return Ok(Answer::Nothing);
        };
        let vms = if self.bug == Some(Bug::ForgetRecord) {
            std::collections::BTreeSet::new()
        } else {
            vms.clone()
        };
        if let Some(list) = list {
            let there = self.world.store.hci.restore_lists.get(&list.key);
            let there = meant(there, list, self.loose())?;
            return self.change(HciObject::RestoreList, &there, |list| {
                list.nodes.insert(node.as_str().to_owned(), vms);
            });
        }
        let nodes = BTreeMap::from([(node.as_str().to_owned(), vms)]);
        let upgrade_uid = Some(upgrade.uid.clone());
        let what = RestoreList { upgrade_uid, nodes };
        self.create(HciKind::RestoreList, key, upgrade, what, HciObject::RestoreList)
    }

    fn patch_cluster(&mut self, cluster: &Target, change: &ClusterChange) -> Done {
        let there = meant(self.world.store.hci.clusters.get(&cluster.key), cluster, self.loose())?;
        let forgets = self.bug == Some(Bug::AskTwice);
        self.change(HciObject::Cluster, &there, |cluster| {
            cluster.kubernetes_version = Arc::clone(&change.kubernetes_version);
            cluster.provision_generation = change.provision_generation;
            cluster.strategy = change.strategy.clone();
            cluster.rolled_out_for = change.rolled_out_for.clone().filter(|_: &Uid| !forgets);
            cluster.before.clone_from(&change.before);
        })
    }

    fn create_repo(&mut self, repo: &Repo) -> Done {
        let place = Shelf::Workload;
        if let Some(there) = self.world.store.repo(&repo.key).cloned() {
            let ours = self.world.store.owner(place, &repo.key) == Some(&repo.upgrade.uid);
            return if ours {
                Ok(Answer::Workload(there))
            } else {
                Err(Refused::AlreadyExists)
            };
        }
        self.world.store.own(place, &repo.key, &repo.upgrade.uid);
        self.world.is_owned(&repo.upgrade.uid);
        let workload = Workload {
            kind: WorkloadKind::Deployment,
            key: repo.key.clone(),
            uid: self.world.store.base.new_uid(),
            revision: Revision(0),
            replicas: repo.replicas,
            ready: 0,
            owner: None,
        };
        self.put_repo(workload)
    }

    fn put_repo(&mut self, workload: Workload) -> Done {
        let written = self.world.store.base.put(self.writer, self.verb, workload);
        self.world.settle();
        Ok(Answer::Workload(written))
    }

    fn restart_repo(&mut self, target: &Target) -> Done {
        let loose = self.loose();
        let there = self.world.store.repo(&target.key).ok_or(Refused::NotFound)?;
        if (there.uid != target.uid && !loose.uid) || (there.revision != target.revision && !loose.revision) {
            return Err(Refused::Conflict);
        }
        // Its pods come anew one by one; how many serve does not change, as far as can be seen.
        let again = Workload::clone(there);
        self.put_repo(again)
    }

    fn delete_repo(&mut self, target: &Target) -> Done {
        let there = self.world.store.repo(&target.key);
        if there.is_some_and(|there| there.uid != target.uid) && !self.loose().uid {
            return Err(Refused::Conflict);
        }
        self.world.remove_repo(self.writer, &target.key);
        let revision = self.world.store.revision();
        Ok(Answer::Gone(Shelf::Workload, target.clone(), revision))
    }
}

/// Changes of a map of labels or annotations, key by key: what others wrote meanwhile stays.
fn carry(
    old: Option<&BTreeMap<String, String>>,
    new: Option<&BTreeMap<String, String>>,
    there: &mut Option<BTreeMap<String, String>>,
) {
    if old == new {
        return;
    }
    let empty = BTreeMap::new();
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let there = there.get_or_insert_default();
    for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(value)) {
        there.insert(key.clone(), value.clone());
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        there.remove(key);
    }
}
