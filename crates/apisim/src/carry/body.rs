//! A reply as an HTTP body: whole at once, or line by line for a watch, with its time limit and its bookmarks.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Interval, MissedTickBehavior, Sleep};

use crate::server::{ReplyBody, Watch};

/// Upstream sends a bookmark about once a minute.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);

/// A watch without a time limit of its own is closed after this, as the real server does after 30 to 60 minutes.
const LONGEST_WATCH: Duration = Duration::from_mins(45);

/// The body of a reply on its way to a client.
pub struct ReplyStream(Kind);

enum Kind {
    Full(Full<Bytes>),
    Watch(Box<Streaming>),
}

struct Streaming {
    watch: Watch,
    end: Pin<Box<Sleep>>,
    bookmarks: Interval,
}

impl ReplyStream {
    pub fn new(body: ReplyBody) -> Self {
        Self(match body {
            ReplyBody::Full(bytes) => Kind::Full(Full::new(bytes)),
            ReplyBody::Watch(watch) => {
                let limit = watch.timeout_seconds().map_or(LONGEST_WATCH, Duration::from_secs);
                let mut bookmarks = tokio::time::interval(BOOKMARK_PERIOD);
                bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                bookmarks.reset();
                let end = Box::pin(tokio::time::sleep(limit));
                Kind::Watch(Box::new(Streaming {
                    watch: *watch,
                    end,
                    bookmarks,
                }))
            }
        })
    }
}

impl Streaming {
    fn poll_line(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Poll::Ready(line) = self.watch.poll_next(context) {
            return Poll::Ready(line);
        }
        if self.bookmarks.poll_tick(context).is_ready() {
            self.watch.bookmark();
            if let Poll::Ready(line) = self.watch.poll_next(context) {
                return Poll::Ready(line);
            }
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Body for ReplyStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Full(full) => Pin::new(full).poll_frame(context),
            Kind::Watch(streaming) => streaming
                .poll_line(context)
                .map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(full) => full.is_end_stream(),
            Kind::Watch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(full) => full.size_hint(),
            Kind::Watch(_) => SizeHint::default(),
        }
    }
}
