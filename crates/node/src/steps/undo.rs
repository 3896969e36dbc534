//! Undoing an attempt: everything it kept is put back and compared, its parts ended and started in the same order as they were
//! changed. Etcd has rules of its own, which are in `etcd`.

use std::collections::BTreeSet;

use afloat_api::Reason;
use afloat_api::common::NodeRole;
use afloat_api::node::{StepOutcome, steps};

use crate::host::{Answer, Listed};
use crate::instruction::{Context, Gate, Instruction, Ran};
use crate::journal::{Journal, Kept};
use crate::paths;
use crate::steps::etcd::{self, Act};
use crate::steps::kubeadm;

/// Whether a step may have changed anything.
fn touched(journal: &Journal, step: &str) -> bool {
    journal.step(step).is_some_and(|state| {
        let skipped = matches!(&state.ended, Some((_, report)) if report.outcome == StepOutcome::Skipped);
        state.done > 0 && !skipped
    })
}

pub fn program(journal: &Journal) -> Vec<Instruction> {
    let plan = &journal.plan;
    let control_plane = plan.role != NodeRole::Worker;
    let kubernetes = kubernetes_touched(journal);
    let runtime = touched(journal, steps::CONTAINERD);
    let forwarded = journal.facts.contains_key("aside");
    // A kubeadm that nobody waits for any more would go on writing what is being put back.
    let mut program = vec![Instruction::EndJobs];
    if control_plane && kubernetes {
        program.extend([
            Instruction::Etcd(Act::Decide),
            Instruction::AwaitPeers,
            Instruction::Etcd(Act::CheckJoin),
        ]);
        if forwarded {
            // After it came back it must stand aside again.
            program.push(Instruction::Forward);
        }
        program.extend(kubeadm::end_all());
    } else if kubernetes {
        program.push(Instruction::StopKubelet);
    }
    if !journal.kept.is_empty() {
        program.push(Instruction::Restore);
    }
    if runtime {
        program.extend([Instruction::RestartRuntime, Instruction::Gate(Gate::Runtime)]);
    }
    if control_plane && kubernetes {
        program.extend(etcd::before_start(journal));
        program.push(Instruction::RestartKubelet);
        program.extend(etcd::after_start(journal));
    } else if kubernetes {
        program.push(Instruction::RestartKubelet);
    }
    if kubernetes || runtime {
        program.push(Instruction::Gate(Gate::Node));
    }
    if journal.facts.contains_key("cluster") && kubeadm::wrote_to_cluster(journal) {
        program.push(Instruction::RestoreCluster);
    }
    if forwarded {
        program.push(Instruction::EndForwarding);
    }
    program.push(Instruction::Prove);
    program
}

fn kubernetes_touched(journal: &Journal) -> bool {
    touched(journal, steps::KUBEADM) || touched(journal, steps::KUBELET)
}

fn stays(journal: &Journal, path: &str) -> bool {
    path == paths::manifest("etcd") && etcd::manifest_stays(journal)
}

/// Puts every file back that is not as it was.
pub fn restore(c: &mut Context<'_>) -> Answer<Ran> {
    let journal = c.journal;
    if c.is_control_plane() && kubernetes_touched(journal) {
        // A machine that restarted since runs the new kubelet again: it would start the old API server.
        let ended = c.end(&["etcd"], kubeadm::SECONDS_ETCD)?;
        if ended != Ran::Done {
            return Ok(ended);
        }
    }
    let mut kept: Vec<&Kept> = journal.kept.iter().rev().collect();
    // Before the manifests: should the machine restart in between, no kubelet is newer than the API server it starts.
    kept.sort_by_key(|kept| kept.path != paths::KUBELET);
    for kept in kept.into_iter().filter(|kept| !stays(journal, &kept.path)) {
        let present = c.host.digest(&kept.path)?;
        match kept.digest {
            digest if digest == present => {}
            Some(_) => c.host.copy(&kept.copy(), &kept.path)?,
            None => c.host.remove(&kept.path)?,
        }
    }
    // Backups of kubeadm's own, which it leaves behind.
    if let Some(before) = journal.facts.get("tmp") {
        for leaving in leavings(&c.host.list(paths::KUBEADM_TMP)?, before) {
            c.host.remove(&leaving)?;
        }
    }
    Ok(Ran::Done)
}

/// What kubeadm left in its folder: the files that were not there before, with the folders it made for them.
fn leavings(files: &[Listed], before: &str) -> BTreeSet<String> {
    let had = |folder: &str| before.lines().any(|path| path.starts_with(&format!("{folder}/")));
    let new = files
        .iter()
        .filter(|file| !before.lines().any(|path| path == file.path));
    let leavings = new.map(|file| {
        let mut top = file.path.as_str();
        while let Some((folder, _)) = top.rsplit_once('/') {
            if folder == paths::KUBERNETES || had(folder) {
                break;
            }
            top = folder;
        }
        top.to_owned()
    });
    leavings.collect()
}

/// Sees that every file is as it was.
pub fn prove(c: &mut Context<'_>) -> Answer<Ran> {
    let journal = c.journal;
    for Kept { path, digest } in journal.kept.iter().filter(|kept| !stays(journal, &kept.path)) {
        if c.host.digest(path)? != *digest {
            return Ok(Ran::Failed {
                reason: Reason::RollbackFailed,
                message: format!("{path} is not what it was before the upgrade: somebody else has changed it since"),
            });
        }
    }
    Ok(Ran::Done)
}

/// What is said when all is undone.
pub fn message(journal: &Journal) -> String {
    if !journal.has_changed_anything() {
        return "nothing was changed, so there was nothing to undo".to_owned();
    }
    let mut message = format!("{} files are as they were", journal.kept.len());
    if let Some(member) = etcd::message(journal) {
        message = format!("{message}; {member}");
    }
    if let Some(why) = journal.undoing().and_then(|state| state.unasked.as_ref()) {
        message = format!("{why}; {message}");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k2_what_kubeadm_left_goes_with_its_folders_and_what_was_there_stays() {
        let file = |path: &str| Listed {
            path: path.to_owned(),
            bytes: 1,
        };
        let tmp = paths::KUBEADM_TMP;
        let files = [
            file(&format!("{tmp}/kubeadm-backup-etcd-1/etcd/member/snap/db")),
            file(&format!("{tmp}/kubeadm-backup-manifests-1/etcd.yaml")),
            file(&format!("{tmp}/mine/note")),
        ];
        assert_eq!(leavings(&files[..2], "").into_iter().collect::<Vec<_>>(), [tmp]);
        let left: Vec<_> = leavings(&files, &format!("{tmp}/mine/note")).into_iter().collect();
        assert_eq!(
            left,
            [
                format!("{tmp}/kubeadm-backup-etcd-1"),
                format!("{tmp}/kubeadm-backup-manifests-1")
            ]
        );
        assert!(leavings(&files, &files.each_ref().map(|file| file.path.clone()).join("\n")).is_empty());
    }
}
