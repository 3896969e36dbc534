//! The body of an answer: a few bytes, or a part of a file that is read piece by piece on threads that may wait, one piece ahead
//! of the network.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::account::Account;
use crate::source::Content;

/// Read at once. Two of them are held for every file under way.
const PIECE: u64 = 128 << 10;

/// The body of an answer. Dropping it ends the account of its request.
#[derive(Debug)]
pub struct Served {
    rest: Rest,
    account: Account,
}

#[derive(Debug)]
enum Rest {
    Nothing,
    Text(Bytes),
    File(Reading),
}

/// What is still to be read of a file.
#[derive(Debug)]
struct Reading {
    content: Content,
    at: u64,
    /// Not yet begun to be read.
    left: u64,
    /// Being read.
    next: Option<JoinHandle<io::Result<Bytes>>>,
    /// Not yet handed on, `next` and `left` together.
    owed: u64,
}

impl Served {
    pub(crate) fn nothing(account: Account) -> Self {
        Self {
            rest: Rest::Nothing,
            account,
        }
    }

    pub(crate) fn text(bytes: Bytes, mut account: Account) -> Self {
        account.expected = bytes.len() as u64;
        let rest = if bytes.is_empty() {
            Rest::Nothing
        } else {
            Rest::Text(bytes)
        };
        Self { rest, account }
    }

    pub(crate) fn file(content: Content, first: u64, length: u64, mut account: Account) -> Self {
        account.expected = length;
        let rest = if length == 0 {
            Rest::Nothing
        } else {
            Rest::File(Reading {
                content,
                at: first,
                left: length,
                next: None,
                owed: length,
            })
        };
        Self { rest, account }
    }
}

impl Reading {
    fn begin(&mut self) {
        let length = self.left.min(PIECE);
        if length == 0 || self.next.is_some() {
            return;
        }
        let (content, at) = (self.content.clone(), self.at);
        self.at += length;
        self.left -= length;
        self.next = Some(tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; usize::try_from(length).unwrap_or(0)];
            content.fill_at(at, &mut buffer)?;
            Ok(Bytes::from(buffer))
        }));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.begin();
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let read = ready!(Pin::new(next).poll(context));
        self.next = None;
        let read = read.map_err(io::Error::other).flatten();
        if let Ok(bytes) = &read {
            self.owed -= bytes.len() as u64;
            self.begin();
        }
        Poll::Ready(Some(read))
    }
}

impl Body for Served {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let read = match &mut self.rest {
            Rest::Nothing => None,
            Rest::Text(bytes) => Some(Ok(std::mem::take(bytes))),
            Rest::File(reading) => ready!(reading.poll(context)),
        };
        match &read {
            Some(Ok(bytes)) => {
                self.account.bytes += bytes.len() as u64;
                if self.account.bytes >= self.account.expected {
                    self.rest = Rest::Nothing;
                }
            }
            Some(Err(error)) => {
                self.account.problem = Some(error.to_string());
                self.rest = Rest::Nothing;
            }
            None => {}
        }
        Poll::Ready(read.map(|read| read.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Rest::Nothing => SizeHint::with_exact(0),
            Rest::Text(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Rest::File(reading) => SizeHint::with_exact(reading.owed),
        }
    }
}
