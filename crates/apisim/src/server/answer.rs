//! Answers: what a verb gives back, and the HTTP reply made of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use serde_json::Value;

use crate::resource::ResourceType;
use crate::status::ApiError;
use crate::store::Object;

use super::present::{self, Encoding, Form};
use super::watch::Watch;

/// What a verb gives back, before it is put into the form that the client asked for.
pub(crate) enum Answer {
    Object {
        code: u16,
        resource: Arc<ResourceType>,
        object: Arc<Object>,
    },
    List {
        resource: Arc<ResourceType>,
        items: Vec<Arc<Object>>,
        metadata: Value,
    },
    /// A body that is not a stored object: a `Status`, a review, a `Scale`.
    Value {
        code: u16,
        value: Value,
    },
    /// 204.
    Nothing,
    Text {
        code: u16,
        content_type: &'static str,
        text: String,
    },
    Watch(Box<Watch>),
}

impl Answer {
    pub fn ok(value: Value) -> Self {
        Self::Value { code: 200, value }
    }
}

/// A reply without I/O: the body is there, or it is a stream to poll.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ReplyBody,
    /// How long the simulator wants the carrier to wait before it hands the reply over.
    pub latency: Duration,
}

/// The body of a reply.
pub enum ReplyBody {
    Full(Bytes),
    Watch(Box<Watch>),
}

impl Reply {
    pub(crate) fn new(code: u16, content_type: &'static str, body: ReplyBody) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(
            HeaderName::from_static("cache-control"),
            HeaderValue::from_static("no-cache, private"),
        );
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self {
            status,
            headers,
            body,
            latency: Duration::ZERO,
        }
    }

    pub(crate) fn full(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self::new(code, content_type, ReplyBody::Full(body.into()))
    }

    pub(crate) fn value(code: u16, value: &Value, encoding: Encoding) -> Self {
        let form = Form {
            encoding,
            ..Form::default()
        };
        Self::full(code, form.content_type(), present::encode(value, encoding))
    }

    pub(crate) fn refused(error: &ApiError, encoding: Encoding) -> Self {
        if let Some(text) = error.plain_text() {
            return Self::full(
                error.status_code().as_u16(),
                "text/plain; charset=utf-8",
                text.to_owned(),
            );
        }
        let mut reply = Self::value(error.status_code().as_u16(), &error.body(), encoding);
        if let Some(seconds) = error.retry_after() {
            reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply
    }

    /// Adds `Warning` headers (RFC 7234, code 299), as upstream writes them.
    pub(crate) fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                self.headers.append(WARNING, value);
            }
        }
    }

    /// The body of a reply that is not a watch.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.body {
            ReplyBody::Full(bytes) => Some(bytes),
            ReplyBody::Watch(_) => None,
        }
    }
}
