//! Subresources that only pods have: binding to a node, and logs.

use afloat_apischema::field_error::{FieldError, Path, aggregate};
use serde_json::{Value, json};

use crate::status::{ApiError, ApiResult};
use crate::store::TableKey;

use super::super::answer::Answer;
use super::Call;
use super::eviction::set_condition;
use super::update::storage_path;
use super::write::{metadata_mut, metadata_text};

impl Call<'_> {
    /// Assigns a pod to a node; what the scheduler does.
    pub(super) fn bind(&mut self) -> ApiResult<Answer> {
        let options = self.write_options("CreateOptions")?;
        let binding = self.parse_body("Binding")?.value;
        let legacy = self.resource.plural == "bindings";
        let name = if legacy {
            metadata_text(&binding, "name").to_owned()
        } else {
            self.path.name.clone()
        };
        let named = metadata_text(&binding, "name");
        if !named.is_empty() && named != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        check_target(&binding).map_err(ApiError::raw_internal)?;
        let table = TableKey {
            group: String::new(),
            plural: "pods".into(),
        };
        let pods = self
            .state
            .registry
            .find(&crate::resource::GroupVersion::new("", "v1"), "pods")
            .cloned();
        let pods = pods.ok_or_else(ApiError::no_such_resource)?;
        let key = crate::store::object_key(&self.path.namespace, &name);
        let pod = self
            .state
            .store
            .get(&table, &key)
            .cloned()
            .ok_or_else(|| ApiError::not_found(&pods, &name))?;
        let given = metadata_text(&binding, "uid");
        if !given.is_empty() && given != pod.uid() {
            let path = storage_path(&pods, pod.namespace(), pod.name());
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry{path}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {given}, UID in object meta: {}",
                pod.uid()
            );
            return Err(ApiError::conflict(&pods, &name, &why));
        }
        check_unbound(pod.value()).map_err(|why| ApiError::conflict_named("pods/binding", &name, &why))?;
        let mut value = pod.value().clone();
        self.assign(&mut value, &binding);
        self.state.rules_of(&pods).settle(&mut value, Some(pod.value()));
        if !options.dry_run {
            let namespace = self.path.namespace.clone();
            self.state.write(&table, &namespace, &name, value);
        }
        let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::Value { code: 201, value: done })
    }

    fn assign(&self, pod: &mut Value, binding: &Value) {
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        for bag in ["annotations", "labels"] {
            let Some(extra) = binding["metadata"][bag].as_object() else {
                continue;
            };
            let Some(metadata) = metadata_mut(pod) else { continue };
            let known = metadata.entry(bag).or_insert_with(|| json!({}));
            for (key, value) in extra {
                known[key.as_str()] = value.clone();
            }
        }
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.timestamp(),
        });
        set_condition(pod, condition);
    }

    /// The log of one container, from whoever plays the kubelet.
    pub(super) fn pod_log(&mut self) -> ApiResult<Answer> {
        let pod = self.existing(&self.path.name)?;
        self.check_log_options()?;
        let container = self.log_container(pod.value())?;
        let node = pod.value()["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Ok(Answer::Nothing);
        }
        let source = self.state.pod_logs.clone();
        let read = source.map_or_else(
            || Err(format!("no kubelet answers for node \"{node}\"")),
            |source| source.read(&self.path.namespace, &self.path.name, &container),
        );
        let mut text = read.map_err(|why| {
            let what = format!(
                "container \"{container}\" in pod \"{}\" is waiting to start: {why}",
                self.path.name
            );
            ApiError::bad_request(what)
        })?;
        if let Some(lines) = self.query.integer("tailLines")? {
            text = tail(&text, usize::try_from(lines).unwrap_or_default());
        }
        if let Some(limit) = self.query.integer("limitBytes")? {
            let end = usize::try_from(limit).unwrap_or_default().min(text.len());
            text.truncate(text.floor_char_boundary(end));
        }
        Ok(Answer::Text {
            code: 200,
            content_type: "text/plain",
            text,
        })
    }

    fn check_log_options(&self) -> ApiResult<()> {
        let mut errors = Vec::new();
        let mut check = |field: &str, least: i64, why: &str| -> ApiResult<()> {
            if let Some(found) = self.query.integer(field)?.filter(|found| *found < least) {
                errors.push(FieldError::invalid(&Path::new(field), found, why));
            }
            Ok(())
        };
        check("tailLines", 0, "must be greater than or equal to 0")?;
        check("limitBytes", 1, "must be greater than 0")?;
        check("sinceSeconds", 1, "must be greater than 0")?;
        if self.query.get("sinceSeconds").is_some() && self.query.get("sinceTime").is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden(&Path::new("[]"), why));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid("", "PodLogOptions", &self.path.name, &errors))
        }
    }

    fn log_container(&self, pod: &Value) -> ApiResult<String> {
        let names = |key: &str| -> Vec<&str> {
            let list = pod["spec"][key].as_array().into_iter().flatten();
            list.filter_map(|container| container["name"].as_str()).collect()
        };
        let (containers, init) = (names("containers"), names("initContainers"));
        let asked = self.query.get("container").unwrap_or_default();
        let pod_name = &self.path.name;
        if asked.is_empty() {
            if let ([only], true) = (containers.as_slice(), init.is_empty()) {
                return Ok((*only).to_owned());
            }
            let mut why = format!(
                "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                containers.join(" ")
            );
            if !init.is_empty() {
                why = format!("{why} or one of the init containers: [{}]", init.join(" "));
            }
            return Err(ApiError::bad_request(why));
        }
        if containers.contains(&asked) || init.contains(&asked) {
            return Ok(asked.to_owned());
        }
        Err(ApiError::bad_request(format!(
            "container {asked} is not valid for pod {pod_name}"
        )))
    }
}

/// What is wrong with the target; upstream does not make a proper refusal of it.
fn check_target(binding: &Value) -> Result<(), String> {
    let target = &binding["target"];
    let mut errors = Vec::new();
    let kind = target["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "Node" {
        let path = Path::new("target").child("kind");
        errors.push(FieldError::not_supported(&path, kind, &["Node", "<empty>"]));
    }
    if target["name"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required(&Path::new("target").child("name"), ""));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(aggregate(&errors))
    }
}

fn check_unbound(pod: &Value) -> Result<(), String> {
    let name = metadata_text(pod, "name");
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    all[all.len().saturating_sub(lines)..].concat()
}
