//! Ending the parts of a control plane, in an order that also holds on a machine that restarts in the middle.

use afloat_api::Reason;

use crate::host::{Answer, Signal, UnitOrder, UnitState};
use crate::instruction::{Context, Ran, Waiting};
use crate::paths;
use crate::steps::stand_aside;

impl Context<'_> {
    /// Ends containers: asked first, killed when they take too long. What comes before them in the order of ending has ended by then, and
    /// runs again where the machine restarted in the middle: it is ended once more, before them.
    pub fn end(&mut self, parts: &[&str], seconds: u32) -> Answer<Ran> {
        let first = paths::PARTS
            .iter()
            .position(|part| parts.contains(part))
            .unwrap_or_default();
        let (before, _) = paths::PARTS.split_at(first);
        match self.end_each(before, seconds)? {
            Ran::Done => self.end_each(parts, seconds),
            waits => Ok(waits),
        }
    }

    fn end_each(&mut self, parts: &[&str], seconds: u32) -> Answer<Ran> {
        // After a reboot in the middle it runs again, and would start again what is ended here.
        // One that fails again and again counts too: systemd is about to start it once more.
        if !matches!(
            self.host.unit(paths::KUBELET_UNIT)?,
            UnitState::Inactive | UnitState::Unknown
        ) {
            self.host.order(paths::KUBELET_UNIT, UnitOrder::Stop)?;
        }
        if parts.contains(&"etcd")
            && self.host.runs("etcd")?
            && let Some(held) = stand_aside::hold_etcd(self)?
        {
            return Ok(held);
        }
        let late = self.now.duration_since(self.since).as_secs() >= i64::from(seconds);
        let mut left = Vec::new();
        for part in parts {
            if !self.host.runs(part)? {
                continue;
            }
            self.host
                .signal(part, if late { Signal::Kill } else { Signal::Terminate })?;
            left.push(*part);
        }
        Ok(if left.is_empty() {
            Ran::Done
        } else {
            Ran::Wait(Waiting {
                reason: Reason::WaitingForStep,
                message: format!("{} has not ended yet", left.join(" and ")),
            })
        })
    }
}
