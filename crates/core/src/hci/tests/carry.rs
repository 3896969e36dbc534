//! What each action makes of the cluster in memory.

use std::sync::Arc;

use afloat_api::foreign::rancher::{LOCAL_CLUSTER, LOCAL_NAMESPACE};
use afloat_api::labels;

use super::world::{NAME, RELEASE, World};
use crate::hci::action::{ClusterChange, HciAction, Hook, JobKind, NodeMark};
use crate::hci::view::{HciObject, Image, Job};
use crate::testing::uid;
use crate::view::{Key, Revision, Workload, WorkloadKind};

impl World {
    /// Carries out one action.
    pub fn carry_out(&mut self, action: &HciAction) {
        match action {
            HciAction::WriteUpgrade { target, after, .. } => {
                assert_eq!(
                    target.revision,
                    self.view.hci.upgrades[&Self::key()].target.revision,
                    "out of date"
                );
                self.put_upgrade((**after).clone());
            }
            HciAction::Confirm { .. } => {}
            HciAction::NotLatest { target } => {
                let mut older = self.view.hci.upgrades[&target.key].what.clone();
                let labels = older.metadata.labels.get_or_insert_default();
                labels.remove(labels::HARVESTER_LATEST_UPGRADE);
                self.take(&target.key.namespace, &target.key.name, older, HciObject::Upgrade);
            }
            HciAction::MarkNode { node, mark, value } => {
                let value = value.clone();
                let as_of = self.view.nodes_as_of;
                self.change_node(&node.key.name, |node| match mark {
                    NodeMark::Pause => node.hci.pause = value,
                    NodeMark::PendingOsImage => node.hci.pending_os_image = value,
                });
                // Own writes are taken in, and say nothing about other nodes.
                self.view.nodes_as_of = as_of;
            }
            HciAction::TaintPending { node, taints } | HciAction::Untaint { node, keep: taints } => {
                self.change_node(&node.key.name, |node| node.taints.clone_from(taints));
            }
            HciAction::CreateJob(job) => {
                let multus = matches!(job.kind, JobKind::HoldMultus | JobKind::LetMultusGo);
                let made = Job {
                    complete: multus && !self.multus_hangs,
                    upgrade_uid: Some(job.upgrade.uid.clone()),
                    created_at: Some(self.now),
                    ..Job::default()
                };
                assert!(
                    !self.view.hci.jobs.contains_key(&job.key),
                    "{} is there already",
                    job.key
                );
                self.take(&job.key.namespace, &job.key.name, made, HciObject::Job);
            }
            HciAction::DeleteJob { job } => {
                self.view.hci.jobs.remove(&job.key);
            }
            _ => self.carry_out_on_images(action),
        }
    }

    /// What becomes of logs, images and the repository.
    fn carry_out_on_images(&mut self, action: &HciAction) {
        match action {
            HciAction::CreateLog { key, .. } => self.put_log(&key.name, self.log),
            HciAction::StopLog { log, conditions } => {
                let mut stopped = self.view.hci.logs[&log.key].what.clone();
                stopped.conditions.clone_from(conditions);
                self.take(&log.key.namespace, &log.key.name, stopped, HciObject::UpgradeLog);
            }
            HciAction::DeleteLog { log } => {
                self.view.hci.logs.remove(&log.key);
            }
            HciAction::CreateImage { key, .. } => {
                let image = Image {
                    upgrade: Some(Arc::from(NAME)),
                    imported: true,
                    ..Image::default()
                };
                self.take(&key.namespace, &key.name, image, HciObject::Image);
            }
            HciAction::LabelImage { image, upgrade } => {
                let mut changed = self.view.hci.images[&image.key].what.clone();
                changed.upgrade.clone_from(upgrade);
                self.take(&image.key.namespace, &image.key.name, changed, HciObject::Image);
            }
            HciAction::DeleteImage { image } => {
                self.view.hci.images.remove(&image.key);
            }
            HciAction::CreateRepo(repo) => {
                let workload = Workload {
                    kind: WorkloadKind::Deployment,
                    key: repo.key.clone(),
                    uid: uid(&repo.key.name),
                    revision: Revision(1),
                    replicas: repo.replicas,
                    ready: repo.replicas,
                    owner: None,
                };
                self.view
                    .workloads
                    .insert((WorkloadKind::Deployment, repo.key.clone()), Arc::new(workload));
                self.answer(Ok(RELEASE));
            }
            HciAction::CreateRepoService { key, .. } => self.take(&key.namespace, &key.name, (), HciObject::Service),
            HciAction::DeleteRepo { deployment } => {
                self.view
                    .workloads
                    .remove(&(WorkloadKind::Deployment, deployment.key.clone()));
            }
            HciAction::DeleteRepoService { service } => {
                self.view.hci.services.remove(&service.key);
            }
            _ => self.carry_out_more(action),
        }
    }

    fn carry_out_more(&mut self, action: &HciAction) {
        match action {
            HciAction::PatchCluster { cluster, change } => self.change_cluster(&cluster.key, change),
            HciAction::Answer { secret, hook, value } => {
                let mut plan = self.view.hci.plans[&secret.key].what.clone();
                match hook {
                    Hook::PreDrain => plan.pre_hook = Some(value.to_string()),
                    Hook::PostDrain => plan.post_hook = Some(value.to_string()),
                }
                self.take(LOCAL_NAMESPACE, &secret.key.name, plan, HciObject::Plan);
            }
            HciAction::PauseChart { chart, by } => {
                let mut changed = self.view.hci.charts[&chart.key].what.clone();
                changed.paused = by.is_some();
                changed.paused_by.clone_from(by);
                self.take(LOCAL_NAMESPACE, &chart.key.name, changed, HciObject::Chart);
            }
            HciAction::RestoreUpdateMethods { chart, methods } => {
                let mut changed = self.view.hci.charts[&chart.key].what.clone();
                changed.update_methods = Arc::clone(methods);
                changed.update_methods_before = None;
                self.take(LOCAL_NAMESPACE, &chart.key.name, changed, HciObject::Chart);
            }
            HciAction::RecordVms {
                key,
                upgrade,
                node,
                vms,
                ..
            } => {
                let there = self.view.hci.restore_lists.get(key).map(|list| list.what.clone());
                let mut list = there.unwrap_or_default();
                list.upgrade_uid = Some(upgrade.uid.clone());
                list.nodes.insert(node.to_string(), vms.clone());
                self.take(&key.namespace, &key.name, list, HciObject::RestoreList);
            }
            HciAction::SetLonghorn { setting, value } => {
                let name = setting.key.name.to_string();
                self.take("longhorn-system", &name, Arc::clone(value), HciObject::LonghornSetting);
            }
            HciAction::EnableAddon { addon, enabled } => {
                let mut changed = self.view.hci.addons[&addon.key].what.clone();
                changed.enabled = *enabled;
                self.take(&addon.key.namespace, &addon.key.name, changed, HciObject::Addon);
            }
            HciAction::RestartRepo { .. } => {}
            other => panic!("not carried out: {other:?}"),
        }
    }

    fn change_cluster(&mut self, cluster: &Key, change: &ClusterChange) {
        let mut changed = self.view.hci.clusters[cluster].what.clone();
        changed.kubernetes_version = Arc::clone(&change.kubernetes_version);
        changed.provision_generation = change.provision_generation;
        changed.strategy = change.strategy.clone();
        changed.rolled_out_for.clone_from(&change.rolled_out_for);
        changed.before.clone_from(&change.before);
        self.take(LOCAL_NAMESPACE, LOCAL_CLUSTER, changed, HciObject::Cluster);
    }
}
