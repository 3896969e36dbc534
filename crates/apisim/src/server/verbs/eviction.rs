//! Eviction: deletion of a pod if its disruption budget allows, following upstream's `eviction.go` step by step.

use std::sync::Arc;

use afloat_apischema::apply::{self, Manager};
use serde_json::{Value, json};

use crate::request::LabelSelector;
use crate::resource::GroupVersion;
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, TableKey};

use super::super::answer::Answer;
use super::Call;
use super::delete::DeleteOptions;

/// Evictions that the budget's controller has not confirmed yet; more of them are refused.
const UNCONFIRMED_LIMIT: usize = 2000;

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// What the budgets say.
enum Verdict {
    Allowed,
    /// More than one budget: answered, not refused, with a `Status` of code 500.
    TwoBudgets,
}

impl Call<'_> {
    pub(super) fn evict(&mut self) -> ApiResult<Answer> {
        let dry_run = self.write_options("CreateOptions")?.dry_run;
        let eviction = self.parse_body("Eviction")?.value;
        let expected = match eviction["apiVersion"].as_str() {
            // The old version of this one kind is still read.
            Some("policy/v1beta1") => GroupVersion::new("policy", "v1beta1"),
            _ => GroupVersion::new("policy", "v1"),
        };
        self.check_type(&eviction, &expected, "Eviction")?;
        let named = eviction["metadata"]["name"].as_str().unwrap_or_default();
        if named != self.path.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let mut options = DeleteOptions::from_value(&eviction["deleteOptions"]);
        options.dry_run |= dry_run;
        let pod = self.existing(&self.path.name)?;
        if !may_ignore_budget(&pod)
            && let Verdict::TwoBudgets = self.consult_budgets(&pod, options.dry_run)?
        {
            return Ok(two_budgets());
        }
        self.evict_now(&pod, &options)?;
        let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::Value { code: 201, value: done })
    }

    fn evict_now(&mut self, pod: &Arc<Object>, options: &DeleteOptions) -> ApiResult<()> {
        let marked = if options.dry_run {
            pod.clone()
        } else {
            self.mark_evicted(pod, options)?
        };
        let mut options = options.clone();
        // The mark was a write: a precondition on the version now means the marked one.
        if options.resource_version.is_some() {
            options.resource_version = Some(marked.revision().to_string());
        }
        self.delete_object(&marked, &options).map(drop)
    }

    /// Says on the pod why it goes, before it goes.
    fn mark_evicted(&mut self, pod: &Arc<Object>, options: &DeleteOptions) -> ApiResult<Arc<Object>> {
        if let Some(uid) = options.uid.as_ref().filter(|uid| *uid != pod.uid()) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                pod.uid()
            );
            return Err(ApiError::conflict_named("Pod", pod.name(), &why));
        }
        let current = pod.revision().to_string();
        if let Some(version) = options.resource_version.as_ref().filter(|version| **version != current) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({current}). The object might have been modified"
            );
            return Err(ApiError::conflict_named("Pod", pod.name(), &why));
        }
        let mut value = pod.value().clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": self.timestamp(), "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        set_condition(&mut value, condition);
        if value == *pod.value() {
            return Ok(pod.clone());
        }
        self.rules.settle(&mut value, Some(pod.value()));
        Ok(self.commit(pod.name(), value, false))
    }

    fn consult_budgets(&mut self, pod: &Object, dry_run: bool) -> ApiResult<Verdict> {
        let table = TableKey {
            group: "policy".into(),
            plural: "poddisruptionbudgets".into(),
        };
        let here = format!("{}/", pod.namespace());
        let budgets = self.state.store.range_from(&table, &here);
        let matching: Vec<Arc<Object>> = budgets
            .take_while(|(key, _)| key.starts_with(&here))
            .filter(|(_, budget)| selects(budget.value(), pod))
            .map(|(_, budget)| budget.clone())
            .collect();
        let [budget] = matching.as_slice() else {
            return Ok(if matching.is_empty() {
                Verdict::Allowed
            } else {
                Verdict::TwoBudgets
            });
        };
        if !is_ready(pod.value()) && unhealthy_may_go(budget.value()) {
            return Ok(Verdict::Allowed);
        }
        check_budget(budget)?;
        if !dry_run {
            self.take_from_budget(&table, budget, pod.name());
        }
        Ok(Verdict::Allowed)
    }

    fn take_from_budget(&mut self, table: &TableKey, budget: &Object, pod: &str) {
        let now = self.timestamp();
        let mut value = budget.value().clone();
        let left = value["status"]["disruptionsAllowed"].as_i64().unwrap_or_default() - 1;
        value["status"]["disruptionsAllowed"] = left.into();
        if left == 0 {
            let condition = json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "lastTransitionTime": now, "observedGeneration": value["status"]["observedGeneration"],
            });
            set_condition(&mut value, condition);
        }
        value["status"]["disruptedPods"][pod] = now.as_str().into();
        let schema = self
            .state
            .registry
            .all()
            .find(|resource| resource.plural == table.plural)
            .cloned();
        if let Some(resource) = schema {
            let manager = Manager {
                name: "kube-apiserver",
                api_version: "policy/v1",
                kind: "PodDisruptionBudget",
                subresource: Some("status"),
                time: &now,
                other_versions: &[],
            };
            let reset = self.state.rules_of(&resource).reset_fields("status");
            apply::track_update(
                resource.schema.root(),
                Some(budget.value()),
                &mut value,
                &manager,
                reset.as_ref(),
            );
        }
        self.state.write(table, budget.namespace(), budget.name(), value);
    }
}

fn two_budgets() -> Answer {
    let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": 500,
    });
    Answer::Value { code: 500, value }
}

/// A pod that does not run disrupts nobody by going.
fn may_ignore_budget(pod: &Object) -> bool {
    let phase = pod.value()["status"]["phase"].as_str().unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.is_terminating()
}

fn selects(budget: &Value, pod: &Object) -> bool {
    let selector = budget["spec"].get("selector").and_then(LabelSelector::from_object);
    selector.is_some_and(|selector| selector.matches(pod.metadata("labels")))
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == json!("Ready") && condition["status"] == json!("True"))
}

fn unhealthy_may_go(budget: &Value) -> bool {
    if budget["spec"]["unhealthyPodEvictionPolicy"] == json!("AlwaysAllow") {
        return true;
    }
    let number = |key: &str| budget["status"][key].as_i64().unwrap_or_default();
    number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0
}

fn check_budget(budget: &Object) -> ApiResult<()> {
    let (name, value) = (budget.name(), budget.value());
    let number = |key: &str| value["status"][key].as_i64().unwrap_or_default();
    if number("observedGeneration") < value["metadata"]["generation"].as_i64().unwrap_or_default() {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::disruption_budget(VIOLATES, &cause, 10));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(ApiError::budget_forbidden(name, "pdb disruptions allowed is negative"));
    }
    let unconfirmed = value["status"]["disruptedPods"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    if unconfirmed > UNCONFIRMED_LIMIT {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::budget_forbidden(name, why));
    }
    if allowed == 0 {
        return Err(ApiError::disruption_budget(VIOLATES, &exhausted_cause(name, value), 0));
    }
    Ok(())
}

fn exhausted_cause(name: &str, budget: &Value) -> String {
    let number = |key: &str| budget["status"][key].as_i64().unwrap_or_default();
    let conditions = budget["status"]["conditions"].as_array().into_iter().flatten();
    let told = conditions
        .filter(|condition| condition["type"] == json!("DisruptionAllowed") && condition["status"] == json!("False"))
        .find_map(|condition| {
            let message = condition["message"].as_str().filter(|message| !message.is_empty())?;
            Some((condition["reason"].as_str().unwrap_or_default(), message))
        });
    match told {
        Some(("SyncFailed", message)) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if number("currentHealthy") <= number("desiredHealthy") => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("desiredHealthy"),
            number("currentHealthy")
        ),
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Puts a condition in place of the one of its type; the time of the last transition stays when the status does.
pub(super) fn set_condition(value: &mut Value, mut condition: Value) {
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    if !value["status"]["conditions"].is_array() {
        value["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = value["status"]["conditions"].as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}
