//! After a node is back: the virtual machines that were stopped for it run again, each as it was to run before. One that a person has
//! started, changed or deleted meanwhile is theirs.

use jiff::Timestamp;

use super::{Errand, HostDone, Look, recorded};
use crate::hci::action::TaskWrite;
use crate::hci::nodes::some;
use crate::view::{Key, View};

/// One look.
pub fn restore_vm(view: &View, errand: &Errand, _: &HostDone, _: Timestamp) -> Look {
    let list = recorded(view, errand);
    let names = list.as_ref().and_then(|list| list.nodes.get(errand.node.as_str()));
    let mut what = Vec::new();
    let (mut starting, mut gone) = (Vec::new(), Vec::new());
    for name in names.into_iter().flatten() {
        let key = name.split_once('/').map(|(namespace, name)| Key::new(namespace, name));
        let Some(vm) = key.and_then(|key| view.hci.vms.get(&key)) else {
            gone.push(name.as_str());
            continue;
        };
        // Without the note nobody of ours has stopped it.
        let Some(run) = vm.run_before.clone().filter(|_| vm.run.is_off()) else {
            continue;
        };
        starting.push(name.as_str());
        what.push(TaskWrite::StartVm {
            vm: vm.target.clone(),
            run,
        });
    }
    if what.is_empty() {
        let gone = if gone.is_empty() {
            String::new()
        } else {
            format!("; not there any more: {}", some(&gone))
        };
        return Look::Done {
            says: format!("everybody who was stopped for {} is to run again{gone}", errand.node),
        };
    }
    Look::Write {
        what,
        says: format!("starts virtual machines again: {}", some(&starting)),
    }
}
