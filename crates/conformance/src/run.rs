//! Runs the steps of one case on one server and records what it answers; masks a recording so that two of them can be compared.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    Error,
    body::parse_body,
    case::{Case, Compare, Payload, Step, Verb},
    compare::Difference,
    discovery,
    events::Reading,
    mask::{Masker, Patterns},
    placeholders::{Placeholders, at},
    target::{Request, Response, Target, Watch},
};

/// Longest wait for something that the server does on its own.
const SETTLE: Duration = Duration::from_secs(15);
/// Headers that carry meaning; the others are transport, tracing and flow control.
const HEADERS: [&str; 4] = ["content-type", "retry-after", "location", "allow"];

/// What one server said to one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Number of the step, from 1.
    pub index: usize,
    pub step: String,
    pub status: u16,
    pub headers: Value,
    pub body: Value,
    pub events: Vec<Value>,
}

/// What one server said to a whole case.
#[derive(Debug, Clone)]
pub struct Recording {
    pub answers: Vec<Answer>,
    /// Requests sent, polls not counted.
    pub requests: usize,
    /// Where the answers are not what the case expects of the real server.
    pub complaints: Vec<String>,
    compare: Vec<Compare>,
    at: Timestamp,
}

struct Runner<'a> {
    target: &'a mut dyn Target,
    reading: Reading<'a>,
    placeholders: Placeholders,
    watches: BTreeMap<String, Box<dyn Watch>>,
    recording: Recording,
}

/// Runs a case in the given namespace.
pub(crate) fn case(
    target: &mut dyn Target,
    case: &Case,
    namespace: &str,
    reading: Reading<'_>,
) -> Result<Recording, Error> {
    let recording = Recording {
        answers: Vec::new(),
        requests: 0,
        complaints: Vec::new(),
        compare: Vec::new(),
        at: Timestamp::now(),
    };
    let mut runner = Runner {
        target,
        reading,
        placeholders: Placeholders::new(namespace),
        watches: BTreeMap::new(),
        recording,
    };
    if case.namespace {
        runner.make_namespace(namespace)?;
    }
    for (index, step) in case.steps.iter().enumerate() {
        let answer = runner.step(step).unwrap_or_else(|error| {
            // No answer is one as well: where only one of the servers gives none, that is a difference.
            runner
                .recording
                .complaints
                .push(format!("step {} {}: {error}", index + 1, step.action));
            Some(Answer {
                body: Value::from(error.to_string()),
                ..Answer::default()
            })
        });
        if let Some(answer) = answer {
            runner.record(
                Answer {
                    index: index + 1,
                    step: step.action.clone(),
                    ..answer
                },
                step,
            );
        }
    }
    Ok(runner.recording)
}

impl Runner<'_> {
    fn make_namespace(&mut self, namespace: &str) -> Result<(), Error> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let answer = self.target.send(&Request {
            method: "POST".to_owned(),
            path: "/api/v1/namespaces".to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into_bytes(),
        })?;
        if answer.status != 201 {
            self.recording.complaints.push(format!(
                "namespace {namespace}: {}",
                String::from_utf8_lossy(&answer.body)
            ));
        }
        Ok(())
    }

    /// What the server says to a step; nothing where a step is not about an answer.
    fn step(&mut self, step: &Step) -> Result<Option<Answer>, Error> {
        let verb = step.verb();
        if !matches!(verb, Verb::Establish | Verb::Compact | Verb::Events) {
            self.recording.requests += 1;
        }
        let answer = match verb {
            Verb::Request => parse(&self.target.send(&self.request(step, step.word()))?),
            Verb::Await => self.await_answer(step)?,
            Verb::Watch | Verb::Open => {
                let watch = self.target.watch(&self.watch_request(step))?;
                self.opened(step, watch)
            }
            Verb::Events => match self.watches.remove(step.operand()) {
                Some(mut watch) => {
                    let events = self.read_events(&mut *watch, step);
                    self.watches.insert(step.operand().to_owned(), watch);
                    Answer {
                        status: 200,
                        events,
                        ..Answer::default()
                    }
                }
                None => {
                    return Err(Error::Target(format!(
                        "{}: no watch of that name is open",
                        step.operand()
                    )));
                }
            },
            Verb::Establish => return self.establish(step).map(|()| None),
            Verb::Compact => return self.target.compact().map(|()| None),
        };
        Ok(Some(answer))
    }

    fn record(&mut self, answer: Answer, step: &Step) {
        self.check(step, &answer);
        if let Some(name) = &step.keep {
            self.keep(name, &answer);
        }
        self.recording.answers.push(answer);
        self.recording.compare.push(step.compare);
    }

    /// Errors are not kept over an object that was: a later step wants the object.
    fn keep(&mut self, name: &str, answer: &Answer) {
        if answer.status < 300 {
            self.placeholders.keep(name, answer.body.clone());
        }
    }

    fn request(&self, step: &Step, method: &str) -> Request {
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut body = Vec::new();
        if let Some((payload, content_type)) = step.payload() {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
            body = match payload {
                Payload::Json(value) => self.placeholders.json(value).to_string().into_bytes(),
                Payload::Text(text) => self.placeholders.text(text).into_bytes(),
            };
        } else if let Some(content_type) = &step.content_type {
            headers.push(("content-type".to_owned(), content_type.clone()));
        }
        headers.push((
            "accept".to_owned(),
            step.accept.clone().unwrap_or_else(|| "application/json".to_owned()),
        ));
        headers.push(("user-agent".to_owned(), "conformance/1.0".to_owned()));
        headers.extend(step.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        Request {
            method: method.to_owned(),
            path: self.placeholders.text(step.operand()),
            headers,
            body,
        }
    }

    fn watch_request(&self, step: &Step) -> Request {
        let mut request = self.request(step, "GET");
        let separator = if request.path.contains('?') { '&' } else { '?' };
        request.path = format!("{}{separator}watch=true", request.path);
        request
    }

    fn opened(&mut self, step: &Step, mut watch: Box<dyn Watch>) -> Answer {
        let status = watch.status();
        let headers = headers_of(watch.headers());
        if status != 200 {
            let mut body = Vec::new();
            while let Some(line) = watch.line(self.reading.due) {
                body.extend_from_slice(&line);
            }
            return Answer {
                status,
                headers,
                body: parse_body(&body),
                ..Answer::default()
            };
        }
        let events = match step.verb() {
            Verb::Open => {
                self.watches.insert(step.keep.clone().unwrap_or_default(), watch);
                Vec::new()
            }
            _ => self.read_events(&mut *watch, step),
        };
        Answer {
            status,
            headers,
            events,
            ..Answer::default()
        }
    }

    fn read_events(&self, watch: &mut dyn Watch, step: &Step) -> Vec<Value> {
        let other = self
            .reading
            .counts
            .and_then(|counts| counts.get(self.recording.answers.len()).copied());
        let due = step.events.or(other).unwrap_or(0);
        let last = step.until.as_ref().map(|name| self.placeholders.text(name));
        self.reading.events(watch, due, last.as_deref())
    }

    fn await_answer(&mut self, step: &Step) -> Result<Answer, Error> {
        let request = self.request(step, "GET");
        let deadline = Instant::now() + SETTLE;
        loop {
            let answer = parse(&self.target.send(&request)?);
            let met = step.has.iter().all(|(path, wanted)| self.holds(&answer, path, wanted));
            let status_met = step.expect.is_none_or(|status| status == answer.status);
            if (met && status_met) || Instant::now() > deadline {
                return Ok(answer);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A new resource serves a moment after its definition is established, on the real server.
    fn establish(&mut self, step: &Step) -> Result<(), Error> {
        let name = self.placeholders.text(step.operand());
        let get = |path: String| Request {
            method: "GET".to_owned(),
            path,
            ..Request::default()
        };
        let definition = get(self.placeholders.text(&format!("$crds/{name}")));
        let deadline = Instant::now() + SETTLE;
        loop {
            let body = parse_body(&self.target.send(&definition)?.body);
            let established = body["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Established" && one["status"] == "True")
            });
            let group = body["spec"]["group"].as_str().unwrap_or_default();
            let plural = body["spec"]["names"]["plural"].as_str().unwrap_or_default();
            let versions = body["spec"]["versions"].as_array().cloned().unwrap_or_default();
            let mut serving = established;
            for version in versions.iter().filter(|version| version["served"] == true) {
                let version = version["name"].as_str().unwrap_or_default();
                serving &= self
                    .target
                    .send(&get(format!("/apis/{group}/{version}/{plural}")))?
                    .status
                    == 200;
            }
            if serving {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.recording
                    .complaints
                    .push(format!("{name} is not served: {}", body["status"]));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn check(&mut self, step: &Step, answer: &Answer) {
        let right = step
            .expect
            .map_or((200..300).contains(&answer.status), |status| status == answer.status);
        let told = |what: String| {
            format!(
                "step {} {}: {what}\n    {}",
                answer.index,
                answer.step,
                short(&answer.body)
            )
        };
        if !right {
            let wanted = step.expect.map_or("2xx".to_owned(), |status| status.to_string());
            self.recording
                .complaints
                .push(told(format!("expected {wanted}, got {}", answer.status)));
        }
        if let Some(reason) = &step.reason
            && answer.body["reason"].as_str() != Some(reason)
        {
            self.recording
                .complaints
                .push(told(format!("expected reason {reason}")));
        }
        for (path, wanted) in &step.has {
            if !self.holds(answer, path, wanted) {
                self.recording
                    .complaints
                    .push(told(format!("expected {path} = {wanted}")));
            }
        }
        if let Some(due) = step
            .events
            .filter(|due| *due != answer.events.len() && step.verb() != Verb::Open)
        {
            let kinds: Vec<_> = answer.events.iter().map(|event| event["type"].to_string()).collect();
            self.recording
                .complaints
                .push(told(format!("expected {due} events, got {}", kinds.join(" "))));
        }
    }

    /// `null` stands for absence. A path that starts with `events` looks there, `headers` there, any other in the body.
    fn holds(&self, answer: &Answer, path: &str, wanted: &Value) -> bool {
        let wanted = self.placeholders.json(wanted);
        let whole = json!({"events": answer.events, "headers": answer.headers});
        let found = match path.split('.').next() {
            Some("events" | "headers") => at(&whole, path),
            _ => at(&answer.body, path),
        };
        match (&wanted, found) {
            (Value::Null, found) => found.is_none_or(Value::is_null),
            // `~text` asks for a part of it.
            (Value::String(part), Some(Value::String(text))) if part.starts_with('~') => text.contains(&part[1..]),
            (wanted, found) => found == Some(wanted),
        }
    }
}

impl Recording {
    /// The answers ready for comparison.
    pub(crate) fn masked(&self, patterns: &Patterns) -> Vec<Answer> {
        let bodies = self
            .answers
            .iter()
            .flat_map(|answer| answer.events.iter().chain([&answer.body]));
        let mut masker = Masker::new(patterns, self.at, bodies);
        self.answers
            .iter()
            .map(|answer| Answer {
                index: answer.index,
                step: answer.step.clone(),
                status: answer.status,
                headers: masker.value(&answer.headers),
                body: masker.value(&answer.body),
                events: answer.events.iter().map(|event| masker.value(event)).collect(),
            })
            .collect()
    }

    /// Where the simulator's answers differ from the real server's, which `self` is.
    pub(crate) fn differences(&self, sim: &Self, patterns: &Patterns) -> Vec<Difference> {
        let (left, right) = (self.masked(patterns), sim.masked(patterns));
        let mut found = Vec::new();
        for ((real, sim), compare) in left.iter().zip(&right).zip(&self.compare) {
            found.extend(match compare {
                Compare::Full => crate::compare::answers(real, sim),
                Compare::Status => crate::compare::answers(&without_body(real), &without_body(sim)),
                Compare::Served => crate::compare::answers(&discovery::served_by_both(real, sim), sim),
            });
        }
        if left.len() != right.len() {
            let (real, sim) = (Some(Value::from(left.len())), Some(Value::from(right.len())));
            found.push(Difference {
                index: 0,
                step: "all".to_owned(),
                path: "answers".to_owned(),
                real,
                sim,
            });
        }
        found
    }

    pub(crate) fn event_counts(&self) -> Vec<usize> {
        self.answers.iter().map(|answer| answer.events.len()).collect()
    }
}

fn without_body(answer: &Answer) -> Answer {
    Answer {
        body: Value::Null,
        ..answer.clone()
    }
}

fn parse(response: &Response) -> Answer {
    Answer {
        status: response.status,
        headers: headers_of(&response.headers),
        body: parse_body(&response.body),
        ..Answer::default()
    }
}

fn headers_of(headers: &[(String, String)]) -> Value {
    let mut out = Map::new();
    for (name, value) in headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str())) {
        out.insert(name.clone(), Value::from(value.clone()));
    }
    let warnings: Vec<&String> = headers
        .iter()
        .filter(|(name, _)| name == "warning")
        .map(|(_, value)| value)
        .collect();
    if !warnings.is_empty() {
        out.insert("warning".to_owned(), json!(warnings));
    }
    Value::Object(out)
}

fn short(body: &Value) -> String {
    body.to_string().chars().take(700).collect()
}
