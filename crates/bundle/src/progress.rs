//! What goes on while something long does: told to whoever wants to show it. How it is shown is the caller's.

/// A piece of news about long work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum News<'a> {
    /// Something a person should know, said once.
    Note(&'a str),
    /// Work on so many bytes begins.
    Begins { what: &'a str, bytes: u64 },
    /// So many bytes more of it are done.
    Bytes(u64),
    /// It is done, or nothing had to be.
    Ends { skipped: bool },
}

/// Hears the news.
pub type Tell<'a> = &'a (dyn Fn(News<'_>) + Sync);

/// Hears nothing.
pub fn silent(_: News<'_>) {}
