//! The eviction API, as `pkg/registry/core/pod/storage/eviction.go` has it: budgets are asked, counted down at once, and the
//! pod deleted. The disruption controller catches up later.

use afloat_core::view::{Key, Pod, PodBudget, PodPhase};

use super::{Meant, Refused, Store, Writer};
use crate::time::Millis;

impl Store {
    /// Evicts a pod, or says why not.
    pub fn evict(&mut self, writer: Writer, meant: &Meant<'_, Key>, grace: Option<Millis>) -> Result<(), Refused> {
        let pod = self.meant::<Pod>(meant)?.clone();
        // What does not serve, or is on its way already, is nothing a budget protects.
        if !matches!(pod.phase, PodPhase::Running | PodPhase::Unknown) || pod.ending.is_some() {
            return self.delete_pod(writer, "evict", meant, grace);
        }
        let budgets: Vec<Key> = self
            .budgets
            .values()
            .filter(|budget| budget.key.namespace == pod.key.namespace && budget.selector.matches(&pod.shape.labels))
            .map(|budget| budget.key.clone())
            .collect();
        match budgets.as_slice() {
            [] => {}
            [budget] => self.ask(budget, &pod)?,
            // "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            _ => return Err(Refused::Internal),
        }
        self.delete_pod(writer, "evict", meant, grace)
    }

    fn ask(&mut self, key: &Key, pod: &Pod) -> Result<(), Refused> {
        let budget = self.budgets.get(key).ok_or(Refused::NotFound)?.clone();
        if !pod.ready {
            let healthy = budget.current_healthy >= budget.desired_healthy && budget.desired_healthy > 0;
            if budget.unhealthy_may_go || healthy {
                return Ok(());
            }
        }
        if !budget.up_to_date || budget.disruptions_allowed <= 0 {
            return Err(Refused::TooManyRequests);
        }
        let now = self.now;
        let disrupted = self.disrupted.entry(key.clone()).or_default();
        disrupted.insert(pod.uid.clone(), now);
        let mut after = PodBudget::clone(&budget);
        after.disruptions_allowed -= 1;
        self.put(Writer::Disruption, "count-down", after);
        Ok(())
    }
}
