//! One request, one answer: whose turn it is, which path, file or folder or page of the server's own. What an answer looks like is
//! in `draft.rs`. Nothing is ever changed by a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;

use crate::account::{Account, Arrival};
use crate::body::Served;
use crate::checksum::{ChecksumError, Checksums};
use crate::condition::{Validators, Verdict};
use crate::draft::{Draft, WANT_REPR_DIGEST};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::path::Wanted;
use crate::range::{Part, part};
use crate::source::{Content, Entries, Entry, FindError, Found, Source};
use crate::{listing, media};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What a checksum is asked for by, after the name of its file.
const SIBLING: &str = ".sha512";
/// Within what a probe wants to know. A volume that hangs longer cannot be served from.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// The service: what is served, and how much of it at once.
#[derive(Clone, Debug)]
pub struct Repo(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    options: Options,
    requests: Arc<Semaphore>,
    /// One look at the source at a time: on a volume that hangs, probes must not pile up.
    look: Arc<Semaphore>,
    checksums: Checksums,
    metrics: Metrics,
    ending: AtomicBool,
}

impl Repo {
    pub fn new(source: Source, options: Options) -> Self {
        let metrics = Metrics::default();
        Self(Arc::new(Inner {
            requests: Arc::new(Semaphore::new(options.max_requests)),
            look: Arc::new(Semaphore::new(1)),
            checksums: Checksums::new(metrics.clone()),
            source,
            options,
            metrics,
            ending: AtomicBool::new(false),
        }))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// From now on it says that it is not ready, and answers what still comes.
    pub(crate) fn end(&self) {
        self.0.ending.store(true, Ordering::Relaxed);
        self.0.checksums.end();
    }

    /// Answers a request. Its body, if it has one, is not read.
    pub async fn answer<B>(&self, request: Request<B>, arrival: Arrival) -> Response<Served> {
        let mut account = Account::open(&self.0.metrics, &request, arrival);
        let head = request.into_parts().0;
        let draft = self.draft(&head, arrival, &mut account).await;
        draft.finish(head.method == Method::HEAD, account)
    }

    async fn draft(&self, head: &Parts, arrival: Arrival, account: &mut Account) -> Draft {
        if head.method != Method::GET && head.method != Method::HEAD {
            return Draft::not_allowed();
        }
        let path = head.uri.path();
        if let Some(page) = self.page(path).await {
            account.quiet = true;
            return page;
        }
        if arrival.crowded {
            return Draft::busy("too many connections are open");
        }
        let Ok(permit) = Arc::clone(&self.0.requests).try_acquire_owned() else {
            return Draft::busy("too many files are being sent");
        };
        account.permit = Some(permit);
        match Wanted::read(path) {
            Ok(wanted) => self.serve(&wanted, head).await,
            Err(error) => Draft::refusal(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }

    /// The pages of the server itself, where no limit holds: they tell how it is.
    async fn page(&self, path: &str) -> Option<Draft> {
        match path {
            "/healthz" => Some(Draft::text("ok\n")),
            "/readyz" => Some(match self.ready().await {
                Ok(()) => Draft::text("ok\n"),
                Err(problem) => Draft::refusal(StatusCode::SERVICE_UNAVAILABLE, &problem),
            }),
            "/metrics" => Some(Draft::typed(OPEN_METRICS, self.0.metrics.text())),
            _ => None,
        }
    }

    async fn ready(&self) -> Result<(), String> {
        if self.0.ending.load(Ordering::Relaxed) {
            return Err("the server ends".to_owned());
        }
        let inner = Arc::clone(&self.0);
        let looking = async move {
            let place = Arc::clone(&inner.look).acquire_owned().await;
            let place = place.map_err(|error| error.to_string())?;
            let looked = tokio::task::spawn_blocking(move || {
                let found = inner.source.check();
                drop(place);
                found
            });
            looked.await.map_err(|error| error.to_string())?
        };
        let late = |_| "the files cannot be read: their volume does not answer".to_owned();
        tokio::time::timeout(READY_WITHIN, looking).await.map_err(late)?
    }

    async fn serve(&self, wanted: &Wanted, head: &Parts) -> Draft {
        let place = self.0.options.place.names();
        let Some(names) = wanted.names.strip_prefix(place) else {
            return self.above(wanted, &head.headers);
        };
        if wanted.hidden() && !self.0.options.hidden {
            return refusal(&FindError::NotThere);
        }
        match self.find(names).await {
            Ok(Found::Folder) if !wanted.folder => Draft::moved(wanted),
            Ok(Found::Folder) => match self.list(names).await {
                Ok(entries) => listed(wanted, &entries, &head.headers),
                Err(error) => refusal(&error),
            },
            Ok(Found::File(_)) if wanted.folder => refusal(&FindError::NotThere),
            Ok(Found::File(content)) => match checksum_asked(head.uri.query().unwrap_or_default()) {
                Some("sha512") => self.checksum(names, &content).await,
                Some(_) => Draft::refusal(
                    StatusCode::BAD_REQUEST,
                    "the only checksum there is is ?checksum=sha512",
                ),
                None => self.file(names, content, head).await,
            },
            Err(FindError::NotThere) => self.sibling(names).await,
            Err(error) => refusal(&error),
        }
    }

    /// Between the root of the server and the place of the release there is nothing but the way to it.
    fn above(&self, wanted: &Wanted, headers: &HeaderMap) -> Draft {
        let place = &self.0.options.place;
        let Some([next, ..]) = place.names().strip_prefix(wanted.names.as_slice()) else {
            let hint = format!("there is no such file; what is served is under {place}");
            return Draft::refusal(StatusCode::NOT_FOUND, &hint);
        };
        if !wanted.folder {
            return Draft::moved(wanted);
        }
        let entry = Entry {
            name: next.clone(),
            size: None,
            modified: None,
        };
        let entries = Entries {
            list: vec![entry],
            more: false,
        };
        listed(wanted, &entries, headers)
    }

    async fn find(&self, names: &[String]) -> Result<Found, FindError> {
        let names = names.to_vec();
        self.blocking(move |source| source.find(&names)).await
    }

    async fn list(&self, names: &[String]) -> Result<Entries, FindError> {
        let (names, hidden) = (names.to_vec(), self.0.options.hidden);
        self.blocking(move |source| source.list(&names, hidden)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Source) -> Result<T, FindError> + Send + 'static,
    ) -> Result<T, FindError> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&inner.source)).await;
        done.unwrap_or_else(|error| Err(FindError::Broken(std::io::Error::other(error))))
    }

    async fn file(&self, names: &[String], content: Content, head: &Parts) -> Draft {
        let known = Validators::new(&content.mark, content.modified);
        let draft = match known.judge(&head.headers) {
            Verdict::NotModified => return Draft::empty(StatusCode::NOT_MODIFIED).validated(&known),
            Verdict::Failed => {
                let problem = "the file is not the one that was asked for by If-Match or If-Unmodified-Since";
                return Draft::refusal(StatusCode::PRECONDITION_FAILED, problem).validated(&known);
            }
            Verdict::Send => match range_asked(head, &known, content.size) {
                Part::Unsatisfiable => return Draft::unsatisfiable(content.size).validated(&known),
                part => Draft::file(content.clone(), part),
            },
        };
        let media_type = media::of(names.last().map_or("", String::as_str));
        let draft = draft.of_type(media_type).validated(&known);
        if !digest_wanted(&head.headers) {
            return draft;
        }
        // A wish and no more, by its standard: who cannot be told in time is sent the file all the same.
        match self.sum(names, &content).await {
            Ok(sum) => draft.with_digest(&sum),
            Err(_) => draft,
        }
    }

    async fn sum(&self, names: &[String], content: &Content) -> Result<crate::checksum::Sum, ChecksumError> {
        let limit = self.0.options.checksum_timeout;
        self.0.checksums.of(&names.join("/"), content, limit).await
    }

    /// In the form of `sha512sum`, which can check it.
    async fn checksum(&self, names: &[String], content: &Content) -> Draft {
        match self.sum(names, content).await {
            Ok(sum) => {
                let name = names.last().map_or("", String::as_str);
                let line = format!("{}  {name}\n", crate::draft::hexadecimal(&sum));
                Draft::text(&line).with_digest_of(&sum)
            }
            Err(error @ ChecksumError::Late) => Draft::busy(&error.to_string()),
            Err(error) => Draft::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// `NAME.sha512`, where there is no such file but there is `NAME`.
    async fn sibling(&self, names: &[String]) -> Draft {
        let mut of = names.to_vec();
        let stripped = of.last_mut().and_then(|name| {
            let bare = name.strip_suffix(SIBLING).filter(|bare| !bare.is_empty())?;
            *name = bare.to_owned();
            Some(())
        });
        if stripped.is_some()
            && let Ok(Found::File(content)) = self.find(&of).await
        {
            return self.checksum(&of, &content).await;
        }
        refusal(&FindError::NotThere)
    }
}

fn refusal(error: &FindError) -> Draft {
    let status = match error {
        FindError::NotThere => StatusCode::NOT_FOUND,
        FindError::Outside | FindError::Forbidden => StatusCode::FORBIDDEN,
        FindError::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Draft::refusal(status, &error.to_string())
}

fn listed(wanted: &Wanted, entries: &Entries, headers: &HeaderMap) -> Draft {
    let mut path = String::from("/");
    for name in &wanted.names {
        path.push_str(name);
        path.push('/');
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if media::prefers_json(accept.unwrap_or_default()) {
        Draft::typed("application/json", listing::json(&path, entries)).listing()
    } else {
        Draft::typed("text/html; charset=utf-8", listing::html(&path, entries)).listing()
    }
}

/// The part that is asked for. Only GET knows parts, and only one is sent.
fn range_asked(head: &Parts, known: &Validators, size: u64) -> Part {
    let mut lines = head.headers.get_all(RANGE).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) if head.method == Method::GET && known.range_holds(&head.headers) => {
            part(line.to_str().unwrap_or_default(), size)
        }
        _ => Part::Whole,
    }
}

fn checksum_asked(query: &str) -> Option<&str> {
    let mut pairs = query.split('&');
    pairs.find_map(|pair| pair.strip_prefix("checksum="))
}

/// `Want-Repr-Digest: sha-512=1` (RFC 9530); a weight of 0 says no.
fn digest_wanted(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(WANT_REPR_DIGEST).iter();
    lines.filter_map(|line| line.to_str().ok()).any(|line| {
        let mut wishes = line.split(',').filter_map(|wish| wish.trim().split_once('='));
        wishes.any(|(name, weight)| name == "sha-512" && weight.parse::<u8>().is_ok_and(|weight| weight > 0))
    })
}
