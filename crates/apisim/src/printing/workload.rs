//! Printers of the workload kinds: what runs pods, what counts them and what guards them.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME, boolean, integer, text, wide};
use super::duration::human_duration;
use super::view::{View, or_none, with_more};

const TEMPLATE_CONTAINERS: &str = "/spec/template/spec/containers";

pub const REPLICA_COLUMNS: &[Column] = &[
    NAME,
    integer("Desired"),
    integer("Current"),
    integer("Ready"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub fn replica_set(set: View<'_>) -> Vec<Value> {
    replicas(set, &or_none(set.selector("/spec/selector")))
}

pub fn replication_controller(controller: View<'_>) -> Vec<Value> {
    replicas(controller, &controller.labels("/spec/selector"))
}

fn replicas(set: View<'_>, selector: &str) -> Vec<Value> {
    let (names, images) = set.containers(TEMPLATE_CONTAINERS);
    vec![
        json!(set.name()),
        json!(set.integer("/spec/replicas")),
        json!(set.integer("/status/replicas")),
        json!(set.integer("/status/readyReplicas")),
        json!(set.age()),
        json!(names),
        json!(images),
        json!(selector),
    ]
}

pub const DEPLOYMENT_COLUMNS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Up-to-date"),
    text("Available"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub fn deployment(deployment: View<'_>) -> Vec<Value> {
    let (names, images) = deployment.containers(TEMPLATE_CONTAINERS);
    let ready = deployment.integer("/status/readyReplicas");
    vec![
        json!(deployment.name()),
        json!(format!("{ready}/{}", deployment.integer("/spec/replicas"))),
        json!(deployment.integer("/status/updatedReplicas")),
        json!(deployment.integer("/status/availableReplicas")),
        json!(deployment.age()),
        json!(names),
        json!(images),
        json!(deployment.selector("/spec/selector")),
    ]
}

pub const STATEFUL_SET_COLUMNS: &[Column] = &[NAME, text("Ready"), AGE, wide("Containers"), wide("Images")];

pub fn stateful_set(set: View<'_>) -> Vec<Value> {
    let (names, images) = set.containers(TEMPLATE_CONTAINERS);
    let ready = set.integer("/status/readyReplicas");
    vec![
        json!(set.name()),
        json!(format!("{ready}/{}", set.integer("/spec/replicas"))),
        json!(set.age()),
        json!(names),
        json!(images),
    ]
}

pub const DAEMON_SET_COLUMNS: &[Column] = &[
    NAME,
    integer("Desired"),
    integer("Current"),
    integer("Ready"),
    integer("Up-to-date"),
    integer("Available"),
    text("Node Selector"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub fn daemon_set(set: View<'_>) -> Vec<Value> {
    let (names, images) = set.containers(TEMPLATE_CONTAINERS);
    vec![
        json!(set.name()),
        json!(set.integer("/status/desiredNumberScheduled")),
        json!(set.integer("/status/currentNumberScheduled")),
        json!(set.integer("/status/numberReady")),
        json!(set.integer("/status/updatedNumberScheduled")),
        json!(set.integer("/status/numberAvailable")),
        json!(set.labels("/spec/template/spec/nodeSelector")),
        json!(set.age()),
        json!(names),
        json!(images),
        json!(or_none(set.selector("/spec/selector"))),
    ]
}

pub const CONTROLLER_REVISION_COLUMNS: &[Column] = &[NAME, text("Controller"), text("Revision"), AGE];

pub fn controller_revision(revision: View<'_>) -> Vec<Value> {
    let owner = revision
        .each("/metadata/ownerReferences")
        .find(|owner| owner.flag("/controller") == Some(true));
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let kind = owner.text("/kind").to_lowercase();
            match owner.text("/apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), owner.text("/name")),
                None => format!("{kind}/{}", owner.text("/name")),
            }
        },
    );
    vec![
        json!(revision.name()),
        json!(controller),
        json!(revision.integer("/revision")),
        json!(revision.age()),
    ]
}

pub const JOB_COLUMNS: &[Column] = &[
    NAME,
    text("Status"),
    text("Completions"),
    text("Duration"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub fn job(job: View<'_>) -> Vec<Value> {
    let succeeded = job.integer("/status/succeeded");
    let completions = match (job.at("/spec/completions"), job.integer("/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let taken = job.moment("/status/startTime").map_or_else(String::new, |start| {
        let end = job.moment("/status/completionTime").unwrap_or_else(|| job.now());
        human_duration(end.duration_since(start))
    });
    let (names, images) = job.containers(TEMPLATE_CONTAINERS);
    vec![
        json!(job.name()),
        json!(job_status(job)),
        json!(completions),
        json!(taken),
        json!(job.age()),
        json!(names),
        json!(images),
        json!(or_none(job.selector("/spec/selector"))),
    ]
}

fn job_status(job: View<'_>) -> &'static str {
    let is = |condition: &str| job.condition_is_true("/status/conditions", condition);
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if job.is_deleted() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub const CRON_JOB_COLUMNS: &[Column] = &[
    NAME,
    text("Schedule"),
    text("Timezone"),
    boolean("Suspend"),
    integer("Active"),
    text("Last Schedule"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

pub fn cron_job(job: View<'_>) -> Vec<Value> {
    let (names, images) = job.containers("/spec/jobTemplate/spec/template/spec/containers");
    let last = match job.at("/status/lastScheduleTime") {
        Some(_) => job.since("/status/lastScheduleTime"),
        None => "<none>".to_owned(),
    };
    // The column calls itself boolean, but the real server puts words into it.
    let suspend = match job.flag("/spec/suspend") {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    vec![
        json!(job.name()),
        json!(job.text("/spec/schedule")),
        json!(job.at("/spec/timeZone").and_then(Value::as_str).unwrap_or("<none>")),
        json!(suspend),
        json!(job.count("/status/active")),
        json!(last),
        json!(job.age()),
        json!(names),
        json!(images),
        json!(or_none(job.selector("/spec/jobTemplate/spec/selector"))),
    ]
}

pub const POD_TEMPLATE_COLUMNS: &[Column] = &[NAME, text("Containers"), text("Images"), text("Pod Labels")];

pub fn pod_template(template: View<'_>) -> Vec<Value> {
    let (names, images) = template.containers("/template/spec/containers");
    vec![
        json!(template.name()),
        json!(names),
        json!(images),
        json!(template.labels("/template/metadata/labels")),
    ]
}

pub const DISRUPTION_BUDGET_COLUMNS: &[Column] = &[
    NAME,
    text("Min Available"),
    text("Max Unavailable"),
    integer("Allowed Disruptions"),
    AGE,
];

pub fn disruption_budget(budget: View<'_>) -> Vec<Value> {
    let bound = |pointer: &str| budget.int_or_string(pointer).unwrap_or_else(|| "N/A".to_owned());
    vec![
        json!(budget.name()),
        json!(bound("/spec/minAvailable")),
        json!(bound("/spec/maxUnavailable")),
        json!(budget.integer("/status/disruptionsAllowed")),
        json!(budget.age()),
    ]
}

pub const SCALE_COLUMNS: &[Column] = &[text("Name"), integer("Desired"), integer("Available"), AGE];

pub fn scale(scale: View<'_>) -> Vec<Value> {
    vec![
        json!(scale.name()),
        json!(scale.integer("/spec/replicas")),
        json!(scale.integer("/status/replicas")),
        json!(scale.age()),
    ]
}

pub const AUTOSCALER_COLUMNS: &[Column] = &[
    NAME,
    text("Reference"),
    text("Targets"),
    text("MinPods"),
    text("MaxPods"),
    text("Replicas"),
    AGE,
];

pub fn autoscaler(scaler: View<'_>) -> Vec<Value> {
    let reference = format!(
        "{}/{}",
        scaler.text("/spec/scaleTargetRef/kind"),
        scaler.text("/spec/scaleTargetRef/name")
    );
    let least = scaler
        .at("/spec/minReplicas")
        .map_or_else(|| "<unset>".to_owned(), Value::to_string);
    vec![
        json!(scaler.name()),
        json!(reference),
        json!(autoscaler_targets(scaler)),
        json!(least),
        json!(scaler.integer("/spec/maxReplicas")),
        json!(scaler.integer("/status/currentReplicas")),
        json!(scaler.age()),
    ]
}

/// `now/wanted` of each metric, the first two of them.
fn autoscaler_targets(scaler: View<'_>) -> String {
    if let Some(wanted) = scaler.at("/spec/targetCPUUtilizationPercentage") {
        let now = scaler.at("/status/currentCPUUtilizationPercentage");
        return format!(
            "cpu: {}/{wanted}%",
            now.map_or_else(|| "<unknown>".to_owned(), |now| format!("{now}%"))
        );
    }
    let statuses: Vec<View<'_>> = scaler.each("/status/currentMetrics").collect();
    let targets: Vec<String> = scaler
        .each("/spec/metrics")
        .enumerate()
        .map(|(index, metric)| metric_target(metric, statuses.get(index).copied()))
        .collect();
    or_none(with_more(&targets, 2, ", "))
}

fn metric_target(metric: View<'_>, status: Option<View<'_>>) -> String {
    let source = match metric.text("/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = |field: &str| metric.at(&format!("/{source}/target/{field}"));
    let now = |field: &str| status.and_then(|status| status.at(&format!("/{source}/current/{field}")));
    let shown = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("<unknown>").to_owned();
    let percent = |value: Option<&Value>, absent: &str| match value {
        Some(value) => format!("{value}%"),
        None => absent.to_owned(),
    };
    let average = target("averageValue");
    match (source, average) {
        ("external" | "object", Some(average)) => {
            format!("{}/{} (avg)", shown(now("averageValue")), shown(Some(average)))
        }
        ("external" | "object", None) => format!("{}/{}", shown(now("value")), shown(target("value"))),
        ("pods", average) => format!("{}/{}", shown(now("averageValue")), shown(average)),
        (_, Some(average)) => {
            let name = metric.text(&format!("/{source}/name"));
            format!("{name}: {}/{}", shown(now("averageValue")), shown(Some(average)))
        }
        (_, None) => {
            let name = metric.text(&format!("/{source}/name"));
            let wanted = percent(target("averageUtilization"), "<auto>");
            format!("{name}: {}/{wanted}", percent(now("averageUtilization"), "<unknown>"))
        }
    }
}
