//! An answer in the making: its code, its headers, what is to be sent. `answer.rs` decides which one it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use std::fmt::Write as _;

use crate::account::Account;
use crate::body::Served;
use crate::checksum::Sum;
use crate::condition::Validators;
use crate::path::{Wanted, encode};
use crate::range::Part;
use crate::source::Content;

const TEXT: &str = "text/plain; charset=utf-8";
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const CHECKSUM: HeaderName = HeaderName::from_static("x-checksum-sha512");
pub const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");

#[derive(Debug)]
pub struct Draft {
    status: StatusCode,
    headers: HeaderMap,
    what: What,
}

#[derive(Debug)]
enum What {
    Nothing,
    Text(Bytes),
    File { content: Content, first: u64, length: u64 },
}

impl Draft {
    fn new(status: StatusCode, what: What) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Self { status, headers, what }
    }

    pub fn empty(status: StatusCode) -> Self {
        Self::new(status, What::Nothing)
    }

    pub fn typed(media_type: &'static str, text: String) -> Self {
        Self::new(StatusCode::OK, What::Text(Bytes::from(text))).of_type(media_type)
    }

    pub fn text(text: &str) -> Self {
        Self::typed(TEXT, text.to_owned()).with(CACHE_CONTROL, "no-cache")
    }

    /// A refusal, with its reason as a line.
    pub fn refusal(status: StatusCode, reason: &str) -> Self {
        let mut draft = Self::text(&format!("{reason}\n"));
        draft.status = status;
        draft
    }

    pub fn busy(reason: &str) -> Self {
        let reason = format!("{reason}; try again later");
        Self::refusal(StatusCode::SERVICE_UNAVAILABLE, &reason).with(RETRY_AFTER, "5")
    }

    pub fn not_allowed() -> Self {
        let reason = "this server is only to be read from";
        Self::refusal(StatusCode::METHOD_NOT_ALLOWED, reason).with(ALLOW, "GET, HEAD")
    }

    /// To the same name with a slash: relative, for those who come through a proxy that puts a path before ours.
    pub fn moved(wanted: &Wanted) -> Self {
        let name = wanted.names.last().map_or("", String::as_str);
        let to = format!("./{}/", encode(name));
        Self::refusal(StatusCode::MOVED_PERMANENTLY, "a folder ends in a slash").with(LOCATION, &to)
    }

    pub fn unsatisfiable(size: u64) -> Self {
        let reason = format!("the file has {size} bytes, and none of those asked for");
        let draft = Self::refusal(StatusCode::RANGE_NOT_SATISFIABLE, &reason);
        draft.with(CONTENT_RANGE, &format!("bytes */{size}"))
    }

    /// A file, or the part of it.
    pub fn file(content: Content, part: Part) -> Self {
        let size = content.size;
        match part {
            Part::Bytes { first, length } => {
                let last = first + length.saturating_sub(1);
                let what = What::File { content, first, length };
                let draft = Self::new(StatusCode::PARTIAL_CONTENT, what);
                draft.with(CONTENT_RANGE, &format!("bytes {first}-{last}/{size}"))
            }
            Part::Whole | Part::Unsatisfiable => {
                let what = What::File {
                    content,
                    first: 0,
                    length: size,
                };
                Self::new(StatusCode::OK, what)
            }
        }
    }

    pub fn of_type(self, media_type: &'static str) -> Self {
        self.with(CONTENT_TYPE, media_type)
    }

    /// With what tells this state of the file from others.
    pub fn validated(self, known: &Validators) -> Self {
        let draft = self
            .with(ETAG, known.etag())
            .with(ACCEPT_RANGES, "bytes")
            .with(CACHE_CONTROL, "no-cache");
        match known.last_modified() {
            Some(date) => draft.with(LAST_MODIFIED, &date),
            None => draft,
        }
    }

    /// What is listed may change, and a page of it runs nothing.
    pub fn listing(self) -> Self {
        self.with(VARY, "accept")
            .with(CACHE_CONTROL, "no-cache")
            .with(CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")
    }

    /// The checksum of the whole file, also where a part of it is sent.
    pub fn with_digest(self, sum: &Sum) -> Self {
        let coded = format!("sha-512=:{}:", STANDARD.encode(sum));
        self.with(REPR_DIGEST, &coded).with_digest_of(sum)
    }

    /// The checksum of the file that is spoken of.
    pub fn with_digest_of(self, sum: &Sum) -> Self {
        self.with(CHECKSUM, &hexadecimal(sum))
    }

    fn with(mut self, name: HeaderName, value: &str) -> Self {
        // All values are of our own making and plain; one that is not is left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub fn finish(mut self, head: bool, mut account: Account) -> Response<Served> {
        account.code = self.status;
        let length = match &self.what {
            What::Nothing => None,
            What::Text(bytes) => Some(bytes.len() as u64),
            What::File { length, .. } => Some(*length),
        };
        if let Some(length) = length {
            self.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let body = match self.what {
            _ if head => Served::nothing(account),
            What::Nothing => Served::nothing(account),
            What::Text(bytes) => Served::text(bytes, account),
            What::File { content, first, length } => Served::file(content, first, length, account),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}
