//! The port itself: every operation of `Host` on a simulated machine, each change a place where it may die.

use afloat_node::digest::Digest;
use afloat_node::host::{
    Answer, Command, Endpoint, EtcdMember, EtcdStatus, Forward, Host, HostError, Job, Listed, Room, Signal, UnitOrder,
    UnitState,
};
use afloat_node::paths;

use super::files::File;
use super::{Moment, SimHost, Unit, seconds};

pub(super) fn refused(action: &'static str, object: &str, message: &str) -> HostError {
    HostError::Failed {
        action,
        object: object.to_owned(),
        message: message.to_owned(),
    }
}

/// Where a file is staged before it is renamed over its target.
fn beside(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    format!("{folder}/.{name}.afloat-new")
}

impl SimHost {
    /// Does an operation, unless the machine dies at it; `half` is what one that dies within leaves behind.
    fn operate<T>(&mut self, half: impl FnOnce(&mut Self), whole: impl FnOnce(&mut Self) -> Answer<T>) -> Answer<T> {
        if self.down {
            return Err(HostError::Crashed);
        }
        self.operations += 1;
        let crash = self.faults.crash.filter(|crash| crash.operation == self.operations);
        let Some(crash) = crash else {
            return whole(self);
        };
        match crash.moment {
            Moment::Before => {}
            Moment::Within => half(self),
            Moment::After => {
                let _ = whole(self);
            }
        }
        if crash.power {
            self.lose_power();
        }
        Err(HostError::Crashed)
    }

    /// A change that is there or is not.
    fn change<T>(&mut self, whole: impl FnOnce(&mut Self) -> Answer<T>) -> Answer<T> {
        self.operate(|_| {}, whole)
    }

    /// A question changes nothing: to die at it is to die after the change before it.
    fn ask<T>(&self, answer: impl FnOnce(&Self) -> T) -> Answer<T> {
        if self.down {
            Err(HostError::Crashed)
        } else {
            Ok(answer(self))
        }
    }

    fn place_file(&mut self, path: &str, file: File) {
        self.disk.remove_file(&beside(path));
        self.disk.place(path, file);
        // Of files that come only manifests start something by themselves.
        if path.starts_with(paths::MANIFESTS) {
            self.settle();
        }
    }
}

impl Host for SimHost {
    fn read(&mut self, path: &str) -> Answer<Option<Vec<u8>>> {
        self.ask(|host| host.disk.get(path).map(|file| file.bytes().to_vec()))
    }

    fn size(&mut self, path: &str) -> Answer<Option<u64>> {
        self.ask(|host| host.disk.get(path).map(|file| file.bytes().len() as u64))
    }

    fn digest(&mut self, path: &str) -> Answer<Option<Digest>> {
        self.ask(|host| host.disk.get(path).map(File::digest))
    }

    fn list(&mut self, folder: &str) -> Answer<Vec<Listed>> {
        self.ask(|host| {
            let files = host.disk.under(folder).map(|(path, file)| Listed {
                path: path.clone(),
                bytes: file.bytes().len() as u64,
            });
            files.collect()
        })
    }

    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> Answer<()> {
        self.operate(
            |host| host.disk.write(&beside(path), &content[..content.len() / 2], 0o600),
            |host| {
                host.place_file(path, File::new(content, mode));
                Ok(())
            },
        )
    }

    fn rewrite(&mut self, path: &str, content: &[u8]) -> Answer<()> {
        let mode = self.disk.get(path).map_or(0o600, |file| file.mode);
        self.write(path, content, mode)
    }

    fn copy(&mut self, from: &str, to: &str) -> Answer<()> {
        self.operate(
            |host| host.disk.write(&beside(to), b"half of it", 0o600),
            |host| {
                if host.faults.copy_failures > 0 {
                    host.faults.copy_failures -= 1;
                    return Err(refused("copy", from, "input/output error"));
                }
                let file = host.disk.get(from).cloned();
                let file = file.ok_or_else(|| refused("copy", from, "there is no such file"))?;
                host.place_file(to, file);
                Ok(())
            },
        )
    }

    fn append(&mut self, path: &str, content: &[u8]) -> Answer<()> {
        self.operate(
            |host| host.disk.append(path, &content[..content.len() / 2]),
            |host| {
                if [paths::KUBELET, "/usr/local/bin/containerd"].contains(&path) {
                    return Err(refused("write to", path, "text file busy"));
                }
                host.disk.append(path, content);
                Ok(())
            },
        )
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer<()> {
        self.change(|host| {
            if !host.disk.rename(from, to) {
                return Err(refused("rename", from, "there is no such file"));
            }
            host.settle();
            Ok(())
        })
    }

    fn remove(&mut self, path: &str) -> Answer<()> {
        self.change(|host| {
            host.disk.remove(path);
            host.settle();
            Ok(())
        })
    }

    fn sync(&mut self) -> Answer<()> {
        self.change(|host| {
            host.disk.sync();
            Ok(())
        })
    }

    fn room(&mut self, path: &str) -> Answer<Room> {
        // Of all that lies in memory only what was put there is there.
        let lacks = path.starts_with("/run/") && self.disk.under(path).next().is_none();
        if lacks && !self.down {
            return Err(refused("look for room on", path, "no such file or directory"));
        }
        self.ask(|host| host.room)
    }

    fn boot(&mut self) -> Answer<String> {
        if self.faults.boot_failures > 0 && !self.down {
            self.faults.boot_failures -= 1;
            return Err(refused("read", "boot_id", "input/output error"));
        }
        self.ask(|host| host.boots.to_string())
    }

    fn unit(&mut self, unit: &str) -> Answer<UnitState> {
        self.ask(|host| host.unit_state(unit))
    }

    fn order(&mut self, unit: &str, order: UnitOrder) -> Answer<()> {
        self.change(|host| {
            let active = host.unit_state(unit) == UnitState::Active;
            match order {
                UnitOrder::Start if active => {}
                UnitOrder::Start => host.start_unit(unit),
                UnitOrder::Stop => host.stop_unit(unit),
                UnitOrder::Restart => {
                    host.stop_unit(unit);
                    host.start_unit(unit);
                }
                UnitOrder::Enable | UnitOrder::Disable => {
                    let entry = host.units.entry(unit.to_owned()).or_insert(Unit {
                        state: UnitState::Inactive,
                        enabled: false,
                    });
                    entry.enabled = order == UnitOrder::Enable;
                }
            }
            host.settle();
            Ok(())
        })
    }

    fn command_line(&mut self, unit: &str) -> Answer<Vec<String>> {
        self.ask(|host| {
            if unit != paths::CONTAINERD_UNIT || host.unit_state(unit) != UnitState::Active {
                return Vec::new();
            }
            let program = "/usr/local/bin/containerd".to_owned();
            [program].into_iter().chain(host.runtime_options.clone()).collect()
        })
    }

    fn reload_units(&mut self) -> Answer<()> {
        self.change(|_| Ok(()))
    }

    fn run(&mut self, job: &str, command: &Command) -> Answer<Job> {
        self.operate(|host| host.run_half(command), |host| Ok(host.run_job(job, command)))
    }

    fn end_jobs(&mut self) -> Answer<()> {
        self.change(|host| {
            host.end_jobs_that_run();
            Ok(())
        })
    }

    fn runs(&mut self, container: &str) -> Answer<bool> {
        self.ask(|host| host.runs_part(container))
    }

    fn signal(&mut self, container: &str, signal: Signal) -> Answer<()> {
        self.change(|host| {
            host.signal_part(container, signal);
            Ok(())
        })
    }

    fn process(&mut self, container: &str) -> Answer<Option<String>> {
        self.ask(|host| host.process_of(container))
    }

    fn lives(&mut self, process: &str) -> Answer<bool> {
        self.ask(|host| host.part_of(process).is_some())
    }

    fn kill(&mut self, process: &str) -> Answer<()> {
        self.change(|host| {
            if let Some(part) = host.part_of(process) {
                host.signal_part(part, Signal::Kill);
            }
            Ok(())
        })
    }

    fn takes_connections(&mut self) -> Answer<bool> {
        self.ask(Self::api_server_listens)
    }

    fn forward(&mut self, forward: Option<&Forward>) -> Answer<()> {
        self.change(|host| {
            if host.faults.no_netfilter {
                return Err(HostError::Unsupported("forward connections: it has no netfilter"));
            }
            let now = host.now;
            host.forward = forward.map(|forward| (forward.clone(), now + seconds(i64::from(forward.seconds))));
            Ok(())
        })
    }

    fn forwarding(&mut self) -> Answer<Option<Forward>> {
        self.ask(|host| {
            let (forward, until) = host.forward.as_ref()?;
            let left = u32::try_from(until.duration_since(host.now).as_secs()).ok();
            left.filter(|left| *left > 0).map(|seconds| Forward {
                peers: forward.peers.clone(),
                seconds,
            })
        })
    }

    fn serving(&mut self, peers: &[String]) -> Answer<Vec<String>> {
        self.ask(|host| {
            let serves = |peer: &&String| !host.silent_peers.contains(*peer);
            peers.iter().filter(serves).cloned().collect()
        })
    }

    fn well(&mut self, endpoint: Endpoint) -> Answer<bool> {
        self.ask(|host| match endpoint {
            Endpoint::ApiServer => host.api_server_ready(),
            Endpoint::ControllerManager => host.part_answers("kube-controller-manager"),
            Endpoint::Scheduler => host.part_answers("kube-scheduler"),
            Endpoint::Etcd => host.etcd_healthy(),
            Endpoint::Runtime => host.unit_state(paths::CONTAINERD_UNIT) == UnitState::Active,
            Endpoint::Kubelet => host.kubelet_ready(),
        })
    }

    fn etcd(&mut self) -> Answer<EtcdStatus> {
        self.ask(Self::etcd_status)
    }

    fn hand_over_etcd(&mut self) -> Answer<()> {
        self.change(|host| {
            host.member.leads = false;
            Ok(())
        })
    }

    fn etcd_members(&mut self) -> Answer<Vec<EtcdMember>> {
        self.ask(Self::listed_members)?
    }

    fn remove_etcd_member(&mut self, id: &str) -> Answer<()> {
        self.change(|host| host.remove_member(id))
    }

    fn add_etcd_learner(&mut self, peer_url: &str) -> Answer<Vec<EtcdMember>> {
        self.change(|host| host.add_learner(peer_url))
    }

    fn promote_etcd_learner(&mut self, id: &str) -> Answer<bool> {
        self.change(|host| host.promote_learner(id))
    }
}
