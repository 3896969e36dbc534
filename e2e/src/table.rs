//! One table over all tests of a run: `make` names a file in `AFLOAT_E2E_TABLE`, every test adds its nodes to it, and `make` prints it at the
//! end. Each test is a process of its own and they run one after the other, so a file is all they share.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use crate::account::{Account, Filling, NodeAccount};
use crate::{Error, Followed, Site};

const NAMED_BY: &str = "AFLOAT_E2E_TABLE";

impl Site {
    /// What the upgrade cost, node by node; also a part of the table of the whole run, under the name of this site.
    pub fn account_to_table(&self, followed: &Followed) -> Result<Account, Error> {
        let account = self.account(followed)?;
        if let Some(path) = std::env::var_os(NAMED_BY).map(PathBuf::from) {
            let ended = match followed.exit_code {
                Some(code) => format!("exit code {code}"),
                None => "killed".to_owned(),
            };
            let title = format!(
                "{}: {ended} after {:.0}s",
                self.lab.spec().name,
                followed.took.as_secs_f64()
            );
            let open = OpenOptions::new().create(true).append(true).open(&path);
            open.and_then(|mut file| file.write_all(section(&title, &account).as_bytes()))
                .map_err(Error::file(&path))?;
        }
        Ok(account)
    }
}

fn section(title: &str, account: &Account) -> String {
    let mut text = format!(
        "{title}\n  {:<6} {:<11} {:>7} {:>8} {:>5} {:>5}  {}\n",
        "NODE", "STATE", "WINDOW", "OVERHEAD", "LOST", "PAGES", "STEPS"
    );
    for node in &account.nodes {
        // Where nobody counted, nothing was seen to be lost: that is not the same as none.
        let lost = |of: &std::collections::BTreeMap<String, u64>| match of.get(&node.node) {
            _ if of.is_empty() => "-".to_owned(),
            lost => lost.copied().unwrap_or_default().to_string(),
        };
        let window = node.window.map(|took| format!("{took:.0}s")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {:<6} {:<11} {window:>7} {:>7.1}s {:>5} {:>5}  {}",
            node.node,
            node.state,
            node.seconds(Filling::Overhead),
            lost(&account.lost),
            lost(&account.pages_lost),
            steps(node),
        );
        if !node.failure.is_empty() {
            let _ = writeln!(text, "         failed: {}", node.failure);
        }
    }
    text
}

/// `containerd 4s, kubeadm 37s, kubelet Failed`.
fn steps(node: &NodeAccount) -> String {
    let steps = node.steps.iter().map(|step| match step.seconds {
        Some(took) if step.state == "Succeeded" => format!("{} {took:.0}s", step.name),
        Some(took) => format!("{} {} {took:.0}s", step.name, step.state),
        None => format!("{} {}", step.name, step.state),
    });
    steps.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_a_line_with_its_steps_and_what_was_lost() {
        let step = |name: &str, state: &str, ended: Option<&str>| json!({"name": name, "state": state, "startedAt": "2026-01-02T03:04:00Z", "finishedAt": ended});
        let upgrade = json!({
            "spec": {"node": {"name": "w-1"}},
            "status": {
                "state": "RolledBack", "attempt": 1,
                "history": [
                    {"state": "Draining", "at": "2026-01-02T03:04:00Z", "attempt": 1},
                    {"state": "RolledBack", "at": "2026-01-02T03:04:22Z", "attempt": 1},
                ],
                "steps": [
                    step("cni", "Succeeded", Some("2026-01-02T03:04:03Z")),
                    step("kubeadm", "Failed", Some("2026-01-02T03:04:09Z")),
                    step("kubelet", "Pending", None),
                ],
                "failure": {"message": "kubeadm said no"},
            },
        });
        let mut account = Account {
            nodes: vec![NodeAccount::of(&upgrade, "", None)],
            ..Account::default()
        };
        let seen = section("e2e-x: exit code 1 after 30s", &account);
        let line = seen.lines().nth(2).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..3], ["w-1", "RolledBack", "22s"], "{seen}");
        assert_eq!(words[4..6], ["-", "-"], "nobody counted: {seen}");
        assert!(line.ends_with("cni 3s, kubeadm Failed 9s, kubelet Pending"), "{seen}");
        assert!(seen.ends_with("failed: kubeadm said no\n"), "{seen}");

        account.lost.insert("w-1".to_owned(), 7);
        account.pages_lost.insert("-".to_owned(), 0);
        let seen = section("e2e-x", &account);
        let words: Vec<&str> = seen.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words[4..6], ["7", "0"], "{seen}");
    }
}
