//! Printers of access control, admission, scheduling and coordination kinds.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME, boolean, integer, text, wide};
use super::duration::human_duration;
use super::view::View;
use jiff::SignedDuration;

const UNSET: &str = "<unset>";

pub const BINDING_COLUMNS: &[Column] = &[
    NAME,
    text("Role"),
    AGE,
    wide("Users"),
    wide("Groups"),
    wide("ServiceAccounts"),
];

pub fn role_binding(binding: View<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = binding
            .each("/subjects")
            .filter(|subject| subject.text("/kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", subject.text("/namespace"), subject.text("/name")),
                _ => subject.text("/name").to_owned(),
            })
            .collect();
        names.join(", ")
    };
    vec![
        json!(binding.name()),
        json!(format!(
            "{}/{}",
            binding.text("/roleRef/kind"),
            binding.text("/roleRef/name")
        )),
        json!(binding.age()),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ]
}

pub const WEBHOOK_COLUMNS: &[Column] = &[NAME, integer("Webhooks"), AGE];

pub fn webhooks(configuration: View<'_>) -> Vec<Value> {
    vec![
        json!(configuration.name()),
        json!(configuration.count("/webhooks")),
        json!(configuration.age()),
    ]
}

pub const VALIDATING_POLICY_COLUMNS: &[Column] = &[NAME, integer("Validations"), text("ParamKind"), AGE];
pub const MUTATING_POLICY_COLUMNS: &[Column] = &[NAME, integer("Mutations"), text("ParamKind"), AGE];

pub fn validating_policy(policy: View<'_>) -> Vec<Value> {
    admission_policy(policy, "/spec/validations")
}

pub fn mutating_policy(policy: View<'_>) -> Vec<Value> {
    admission_policy(policy, "/spec/mutations")
}

fn admission_policy(policy: View<'_>, rules: &str) -> Vec<Value> {
    let parameters = policy.part("/spec/paramKind").map_or_else(
        || UNSET.to_owned(),
        |kind| format!("{}/{}", kind.text("/apiVersion"), kind.text("/kind")),
    );
    vec![
        json!(policy.name()),
        json!(policy.count(rules)),
        json!(parameters),
        json!(policy.age()),
    ]
}

pub const POLICY_BINDING_COLUMNS: &[Column] = &[NAME, text("PolicyName"), text("ParamRef"), AGE];

pub fn policy_binding(binding: View<'_>) -> Vec<Value> {
    let parameters = binding.part("/spec/paramRef").map_or_else(
        || UNSET.to_owned(),
        |reference| match (reference.text("/namespace"), reference.text("/name")) {
            (_, "") => reference
                .part("/selector")
                .map_or_else(|| UNSET.to_owned(), selector_of_go),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        },
    );
    vec![
        json!(binding.name()),
        json!(binding.text("/spec/policyName")),
        json!(parameters),
        json!(binding.age()),
    ]
}

/// The real server prints the selector's Go form here, not the form that clients write.
fn selector_of_go(selector: View<'_>) -> String {
    let labels: Vec<String> = selector
        .at("/matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions: Vec<String> = selector
        .each("/matchExpressions")
        .map(|expression| {
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                expression.text("/key"),
                expression.text("/operator"),
                expression.texts("/values").join(" "),
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.concat(),
    )
}

pub const PRIORITY_CLASS_COLUMNS: &[Column] = &[
    NAME,
    integer("Value"),
    boolean("Global-Default"),
    AGE,
    text("PreemptionPolicy"),
];

pub fn priority_class(class: View<'_>) -> Vec<Value> {
    vec![
        json!(class.name()),
        json!(class.integer("/value")),
        json!(class.flag("/globalDefault").unwrap_or(false)),
        json!(class.age()),
        json!(class.text("/preemptionPolicy")),
    ]
}

pub const RUNTIME_CLASS_COLUMNS: &[Column] = &[NAME, text("Handler"), AGE];

pub fn runtime_class(class: View<'_>) -> Vec<Value> {
    vec![json!(class.name()), json!(class.text("/handler")), json!(class.age())]
}

pub const LEASE_COLUMNS: &[Column] = &[NAME, text("Holder"), AGE];

pub fn lease(lease: View<'_>) -> Vec<Value> {
    vec![
        json!(lease.name()),
        json!(lease.text("/spec/holderIdentity")),
        json!(lease.age()),
    ]
}

pub const API_SERVICE_COLUMNS: &[Column] = &[NAME, text("Service"), text("Available"), AGE];

pub fn api_service(service: View<'_>) -> Vec<Value> {
    let backend = service.part("/spec/service").map_or_else(
        || "Local".to_owned(),
        |backend| format!("{}/{}", backend.text("/namespace"), backend.text("/name")),
    );
    let available = service.condition("/status/conditions", "Available").map_or_else(
        || "Unknown".to_owned(),
        |condition| match (condition.text("/status"), condition.text("/reason")) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    );
    vec![
        json!(service.name()),
        json!(backend),
        json!(available),
        json!(service.age()),
    ]
}

pub const SIGNING_REQUEST_COLUMNS: &[Column] = &[
    NAME,
    AGE,
    text("SignerName"),
    text("Requestor"),
    text("RequestedDuration"),
    text("Condition"),
];

pub fn signing_request(request: View<'_>) -> Vec<Value> {
    let has = |condition: &str| request.condition("/status/conditions", condition).is_some();
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !request.text("/status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = request
        .at("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .map_or_else(
            || "<none>".to_owned(),
            |seconds| human_duration(SignedDuration::from_secs(seconds)),
        );
    vec![
        json!(request.name()),
        json!(request.age()),
        json!(request.text_or("/spec/signerName", "<none>")),
        json!(request.text("/spec/username")),
        json!(requested),
        json!(condition),
    ]
}

pub const FLOW_SCHEMA_COLUMNS: &[Column] = &[
    NAME,
    text("PriorityLevel"),
    text("MatchingPrecedence"),
    text("DistinguisherMethod"),
    AGE,
    text("MissingPL"),
];

pub fn flow_schema(schema: View<'_>) -> Vec<Value> {
    let dangling = schema.condition("/status/conditions", "Dangling");
    vec![
        json!(schema.name()),
        json!(schema.text("/spec/priorityLevelConfiguration/name")),
        json!(schema.integer("/spec/matchingPrecedence")),
        json!(schema.text_or("/spec/distinguisherMethod/type", "<none>")),
        json!(schema.age()),
        json!(dangling.map_or("?", |condition| condition.text("/status"))),
    ]
}

pub const PRIORITY_LEVEL_COLUMNS: &[Column] = &[
    NAME,
    text("Type"),
    text("NominalConcurrencyShares"),
    text("Queues"),
    text("HandSize"),
    text("QueueLengthLimit"),
    AGE,
];

pub fn priority_level(level: View<'_>) -> Vec<Value> {
    let number = |pointer: &str| level.at(pointer).cloned().unwrap_or_else(|| json!("<none>"));
    vec![
        json!(level.name()),
        json!(level.text("/spec/type")),
        number("/spec/limited/nominalConcurrencyShares"),
        number("/spec/limited/limitResponse/queuing/queues"),
        number("/spec/limited/limitResponse/queuing/handSize"),
        number("/spec/limited/limitResponse/queuing/queueLengthLimit"),
        json!(level.age()),
    ]
}

pub const RESOURCE_CLAIM_COLUMNS: &[Column] = &[NAME, text("State"), AGE];

pub fn resource_claim(claim: View<'_>) -> Vec<Value> {
    let mut states = Vec::new();
    if claim.is_deleted() {
        states.push("deleted");
    }
    if claim.at("/status/allocation").is_some() {
        states.push("allocated");
        if claim.count("/status/reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !claim.is_deleted() {
        states.push("pending");
    }
    vec![json!(claim.name()), json!(states.join(",")), json!(claim.age())]
}

pub const RESOURCE_SLICE_COLUMNS: &[Column] = &[NAME, text("Node"), text("Driver"), text("Pool"), AGE];

pub fn resource_slice(slice: View<'_>) -> Vec<Value> {
    vec![
        json!(slice.name()),
        json!(slice.text("/spec/nodeName")),
        json!(slice.text("/spec/driver")),
        json!(slice.text("/spec/pool/name")),
        json!(slice.age()),
    ]
}
