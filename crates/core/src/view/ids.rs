//! Names, uids and revisions as types of their own, so that one is never taken for another. Cheap to copy: a view of
//! 150,000 pods shares what they have in common.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Most texts that meet and are the same are one text, shared: it is not read then.
fn in_order(one: &Arc<str>, other: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(one, other) {
        Ordering::Equal
    } else {
        one.cmp(other)
    }
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
        pub struct $name(Arc<str>);

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                in_order(&self.0, &other.0)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_newtype!(
    /// Name of a Node.
    NodeName
);
text_newtype!(
    /// Uid of an object: a namesake born later has another one.
    Uid
);

/// Namespace and name of an object; the namespace is empty for objects that have none.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        in_order(&self.namespace, &other.namespace).then_with(|| in_order(&self.name, &other.name))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: Arc::from(namespace),
            name: Arc::from(name),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            formatter.write_str(&self.name)
        } else {
            write!(formatter, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The state of an object that a decision was made on. API servers have compared resource versions as numbers since
/// 1.35 and have written them as numbers for ever.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// One object as a decision saw it: what is written goes to this one, in this state, or is refused.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Target {
    pub key: Key,
    pub uid: Uid,
    pub revision: Revision,
}
